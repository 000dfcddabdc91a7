package serviceaddr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Max bounds the service addresses of a server. Each costs probes while it is taken, and
// messages to the kernel while it is held.
const Max = 8

// Address is a service address and the link that has it.
type Address struct {
	// Prefix is the address with the length of its subnet's prefix. The kernel gets the
	// address alone (/32 or /128), so that no route and no source address follows from it.
	Prefix netip.Prefix
	Link   string // name of the link
}

// String returns the address as Parse reads it.
func (a Address) String() string { return a.Prefix.String() + "@" + a.Link }

// IP is the address alone.
func (a Address) IP() netip.Addr { return a.Prefix.Addr() }

// maxLink is the longest name of a link (IFNAMSIZ without the end).
const maxLink = unix.IFNAMSIZ - 1

// Parse reads ADDRESS/PREFIX@LINK.
func Parse(text string) (a Address, err error) {
	prefix, link, found := strings.Cut(text, "@")
	if !found || link == "" || len(link) > maxLink || strings.ContainsAny(link, "/ \t\n") {
		return a, fmt.Errorf("%q: want ADDRESS/PREFIX@LINK, as in 10.99.99.9/24@eth0", text)
	}
	if a.Prefix, err = netip.ParsePrefix(prefix); err != nil {
		return a, fmt.Errorf("%q: %w; want ADDRESS/PREFIX@LINK, as in 10.99.99.9/24@eth0", text, err)
	}
	ip := a.IP()
	switch {
	case ip.Is4In6() || ip.Zone() != "" || !ip.IsGlobalUnicast():
		return a, fmt.Errorf("%q: %s is no address that clients on other machines can dial; choose a global or private unicast address", text, ip)
	case a.Prefix.Bits() == 0:
		return a, fmt.Errorf("%q: a prefix of length 0 is no subnet; write the length of the link's subnet, as in /24", text)
	}
	a.Link = link
	return a, nil
}

// ParseAll reads several, and refuses one address twice.
func ParseAll(texts []string) (all []Address, err error) {
	if len(texts) > Max {
		return nil, fmt.Errorf("there are %d addresses: a server keeps at most %d", len(texts), Max)
	}
	seen := make(map[netip.Addr]bool)
	for _, text := range texts {
		a, err := Parse(text)
		if err != nil {
			return nil, err
		}
		if seen[a.IP()] {
			return nil, fmt.Errorf("%q: %s is named twice; name each address once", text, a.IP())
		}
		seen[a.IP()] = true
		all = append(all, a)
	}
	return all, nil
}

// Listen listens on a TCP address. Its host may be a service address, which this server
// has only while it leads: that listener accepts connections as soon as the kernel has
// the address (IP_FREEBIND of ip(7)).
func Listen(all []Address, address string) (net.Listener, error) {
	var lc net.ListenConfig
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip, err := netip.ParseAddr(host); err == nil && named(all, ip) {
		lc.Control = func(_, _ string, c syscall.RawConn) error {
			level, option := unix.SOL_IP, unix.IP_FREEBIND
			if ip.Is6() {
				level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
			}
			var failed error
			err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, 1) })
			return errors.Join(err, failed)
		}
	}
	return lc.Listen(context.Background(), "tcp", address)
}

func named(all []Address, ip netip.Addr) bool {
	for _, a := range all {
		if a.IP() == ip {
			return true
		}
	}
	return false
}
