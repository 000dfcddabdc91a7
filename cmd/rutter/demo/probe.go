package demo

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// linkView is the expected state of the link and the routes in a VM's namespace.
type linkView struct {
	mtu     int
	gateway netip.Addr
	routes  map[netip.Prefix]netip.Addr
}

// check compares a VM's IPv4 link and routes with want.
func (v *vm) check(want linkView) error {
	return v.ns.Do(func() error {
		mtu, err := mtuOf(v.address(false))
		if err != nil {
			return err
		}
		if mtu != want.mtu {
			return fmt.Errorf("mtu is %d, want %d", mtu, want.mtu)
		}
		routes, err := readRoutes()
		if err != nil {
			return err
		}
		if got := routes[netip.PrefixFrom(netip.IPv4Unspecified(), 0)]; got != want.gateway {
			return fmt.Errorf("gateway is %s, want %s", got, want.gateway)
		}
		for dst, via := range want.routes {
			if routes[dst] != via {
				return fmt.Errorf("route %s is via %s, want %s", dst, routes[dst], via)
			}
		}
		return nil
	})
}

// mtuOf returns the MTU of the link that has address, in this thread's namespace.
func mtuOf(address netip.Addr) (int, error) {
	links, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return 0, err
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == address {
				return l.MTU, nil
			}
		}
	}
	return 0, fmt.Errorf("no link has %s", address)
}

// readRoutes reads the IPv4 routes of this thread's namespace from
// /proc/net/route, whose numbers are in the machine's byte order (proc(5)).
func readRoutes() (map[netip.Prefix]netip.Addr, error) {
	file, err := os.Open("/proc/thread-self/net/route")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	routes := make(map[netip.Prefix]netip.Addr)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[0] == "Iface" {
			continue
		}
		dst, err1 := procAddr(fields[1])
		via, err2 := procAddr(fields[2])
		mask, err3 := procAddr(fields[7])
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
		ones, _ := net.IPMask(mask.AsSlice()).Size()
		routes[netip.PrefixFrom(dst, ones)] = via
	}
	return routes, lines.Err()
}

// procAddr reads eight hexadecimal digits, least significant byte first, as
// little-endian machines print an address.
func procAddr(text string) (netip.Addr, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 4 {
		return netip.Addr{}, fmt.Errorf("/proc/net/route has %q for an address", text)
	}
	return netip.AddrFrom4([4]byte{b[3], b[2], b[1], b[0]}), nil
}

// isUnreachable reports whether the kernel itself reported that there is no route.
func isUnreachable(err error) bool {
	return errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}
