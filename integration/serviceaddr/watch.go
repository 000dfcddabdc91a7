package serviceaddr

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch looks for an address at two servers at once: in their kernels, and in answers to
// ARP that the client gets.
type Watch struct {
	world *World
	conns [servers]*netlink.Conn
	arp   int // packet socket of the client
	mac   net.HardwareAddr

	mu      sync.Mutex // protects what follows
	holders map[netip.Addr][]int
	looks   int
	answers int
	errs    []error
}

// sampleEvery is the time between two looks at all kernels.
const sampleEvery = 3 * time.Millisecond

// NewWatch makes a Watch, for Run.
func (w *World) NewWatch() (_ *Watch, err error) {
	v := &Watch{world: w, holders: make(map[netip.Addr][]int), arp: -1}
	for i, h := range w.Hosts {
		err = errors.Join(err, h.Namespace.Do(func() (err error) {
			v.conns[i], err = netlink.Dial(unix.NETLINK_ROUTE, nil)
			return err
		}))
	}
	err = errors.Join(err, w.Client.Do(func() error {
		ifi, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		v.mac = ifi.HardwareAddr
		protocol := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff})
		if v.arp, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(protocol)); err != nil {
			return err
		}
		return unix.Bind(v.arp, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: ifi.Index})
	}))
	return v, err
}

// Run looks until ctx ends.
func (v *Watch) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { v.sample(ctx) })
	all.Go(func() { v.ask(ctx) })
	all.Wait()
	for _, c := range v.conns {
		_ = c.Close()
	}
	_ = unix.Close(v.arp)
}

func (v *Watch) note(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.errs) < 20 {
		v.errs = append(v.errs, err)
	}
}

// Err returns what was found wrong, and how often was looked.
func (v *Watch) Err() (looks, answers int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.looks, v.answers, errors.Join(v.errs...)
}

// sample looks at the kernels in turn. An address was at two servers at once if one had
// it before and after the other had it.
func (v *Watch) sample(ctx context.Context) {
	for ctx.Err() == nil {
		var has [servers + 1]map[netip.Addr]bool
		for i := range has { // the first one twice
			has[i] = v.addresses(i % servers)
		}
		holders := make(map[netip.Addr][]int)
		for _, ip := range []netip.Addr{IPv4, IPv6} {
			for i := range servers {
				if has[i][ip] {
					holders[ip] = append(holders[ip], i)
				}
			}
			if n := holders[ip]; len(n) > 1 && v.stillHas(n[0], ip) {
				v.note(fmt.Errorf("%s: s%d and s%d have %s at once", time.Now().Format("05.000"), n[0]+1, n[1]+1, ip))
			}
		}
		v.mu.Lock()
		v.holders = holders
		v.looks++
		v.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(sampleEvery):
		}
	}
}

func (v *Watch) stillHas(host int, ip netip.Addr) bool { return v.addresses(host)[ip] }

// addresses returns the service addresses that a host's kernel has.
func (v *Watch) addresses(host int) map[netip.Addr]bool {
	has := make(map[netip.Addr]bool)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		answers, err := v.conns[host].Execute(netlink.Message{
			Header: netlink.Header{Type: unix.RTM_GETADDR, Flags: netlink.Request | netlink.Dump}, Data: []byte{family, 0, 0, 0, 0, 0, 0, 0},
		})
		if err != nil {
			v.note(err)
			continue
		}
		for _, m := range answers {
			ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfAddrmsg:])
			if err != nil {
				v.note(err)
				continue
			}
			for ad.Next() {
				if ip, ok := netip.AddrFromSlice(ad.Bytes()); ad.Type() == unix.IFA_ADDRESS && ok && (ip == IPv4 || ip == IPv6) {
					has[ip] = true
				}
			}
		}
	}
	return has
}

// askEvery is the time between two ARP requests of the client.
const askEvery = 20 * time.Millisecond

// ask sends ARP requests for the IPv4 address. Two machines have it if both answer one.
func (v *Watch) ask(ctx context.Context) {
	for ctx.Err() == nil {
		frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, v.mac...)
		frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		frame = append(append(frame, v.mac...), client.AsSlice()...)
		frame = append(append(frame, 0, 0, 0, 0, 0, 0), IPv4.AsSlice()...)
		if _, err := unix.Write(v.arp, frame); err != nil && !errors.Is(err, unix.ENOBUFS) {
			v.note(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askEvery):
		}
		macs := make(map[string]bool)
		var b [128]byte
		for {
			n, _, err := unix.Recvfrom(v.arp, b[:], unix.MSG_DONTWAIT)
			if err != nil {
				break
			}
			// Answers to this client; announcements go to all.
			if n >= 42 && b[21] == 2 && netip.AddrFrom4([4]byte(b[28:32])) == IPv4 && net.HardwareAddr(b[:6]).String() == v.mac.String() {
				macs[net.HardwareAddr(b[22:28]).String()] = true
			}
		}
		v.mu.Lock()
		v.answers += len(macs)
		v.mu.Unlock()
		if len(macs) > 1 {
			v.note(fmt.Errorf("%s: %d machines answer for %s: %v", time.Now().Format("05.000"), len(macs), IPv4, macs))
		}
	}
}

// Holder returns the host that had the address at the last look; nil: none had it.
func (v *Watch) Holder(ip netip.Addr) *Host {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := v.holders[ip]; len(n) == 1 {
		return v.world.Hosts[n[0]]
	}
	return nil
}

// AwaitHolder waits until one host has the address.
func (v *Watch) AwaitHolder(ctx context.Context, ip netip.Addr) (*Host, error) {
	return v.await(ctx, func() *Host { return v.Holder(ip) }, "no server has "+ip.String())
}

// AwaitOther waits until a host other than h has the address.
func (v *Watch) AwaitOther(ctx context.Context, ip netip.Addr, h *Host) (*Host, error) {
	return v.await(ctx, func() *Host {
		if now := v.Holder(ip); now != h {
			return now
		}
		return nil
	}, "no server besides "+h.Name+" has "+ip.String())
}

// AwaitNone waits until h does not have the address.
func (v *Watch) AwaitNone(ctx context.Context, ip netip.Addr, h *Host) error {
	_, err := v.await(ctx, func() *Host {
		if v.Holder(ip) == h {
			return nil
		}
		return h
	}, h.Name+" still has "+ip.String())
	return err
}

func (v *Watch) await(ctx context.Context, found func() *Host, otherwise string) (*Host, error) {
	for {
		if h := found(); h != nil {
			return h, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.New(otherwise)
		case <-time.After(sampleEvery):
		}
	}
}
