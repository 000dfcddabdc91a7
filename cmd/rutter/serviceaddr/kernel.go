package serviceaddr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Mark is the mark of addresses that this program has set (IFA_PROTO of rtnetlink: who
// set the address). Kernels since 5.18 keep it.
const Mark = 0x72

// ifaProto is IFA_PROTO (linux/if_addr.h), which package unix lacks.
const ifaProto = 11

// kernelTimeout bounds the wait for the kernel's answer to one message.
const kernelTimeout = time.Second

// errLate: the time to set the address is over.
var errLate = errors.New("the proof of leadership is too old")

// kernel sets addresses by rtnetlink, in the network namespace of its thread at open.
type kernel struct {
	conn    *netlink.Conn
	timeout time.Duration // of each message
}

func openKernel() (*kernel, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &kernel{conn, kernelTimeout}, nil
}

func (k *kernel) close() error { return k.conn.Close() }

// message returns a request about an address on a link. With set it is set as one of this
// program, with Lifetime, and never chosen as a source address.
func message(kind netlink.HeaderType, flags netlink.HeaderFlags, a Address, index int, set bool) (netlink.Message, error) {
	ip := a.IP()
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[0] = unix.AF_INET
	if ip.Is6() {
		header[0] = unix.AF_INET6
	}
	header[1] = byte(ip.BitLen())
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.IFA_LOCAL, ip.AsSlice())
	ae.Bytes(unix.IFA_ADDRESS, ip.AsSlice())
	if set {
		// The probes of Holder have shown that the address is free: IPv6 need not wait.
		ae.Uint32(unix.IFA_FLAGS, unix.IFA_F_NOPREFIXROUTE|unix.IFA_F_NODAD)
		info := make([]byte, unix.SizeofIfaCacheinfo) // preferred for 0 s: deprecated
		binary.NativeEndian.PutUint32(info[4:], uint32(Lifetime/time.Second))
		ae.Bytes(unix.IFA_CACHEINFO, info)
		ae.Uint8(ifaProto, Mark)
	}
	data, err := ae.Encode()
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Acknowledge | flags}, Data: append(header, data...)}, err
}

// set sets an address, or with renew sets its lifetime again; without renew it is an error
// if the link has the address. It calls may immediately before the message goes to the
// kernel, and sends nothing if that returns false (errLate). The kernel has done its work
// when the message is sent.
func (k *kernel) set(a Address, index int, renew bool, may func() bool) error {
	flags := netlink.Create | netlink.Excl
	if renew {
		flags = netlink.Create | netlink.Replace
	}
	m, err := message(unix.RTM_NEWADDR, flags, a, index, true)
	if err != nil {
		return err
	}
	if err := k.conn.SetDeadline(time.Now().Add(k.timeout)); err != nil {
		return err
	}
	if !may() {
		return errLate
	}
	return k.exchange(m)
}

// drop deletes an address. It is no error if the kernel does not have it.
func (k *kernel) drop(a Address, index int) error {
	m, err := message(unix.RTM_DELADDR, 0, a, index, false)
	if err != nil {
		return err
	}
	if err := k.conn.SetDeadline(time.Now().Add(k.timeout)); err != nil {
		return err
	}
	if err := k.exchange(m); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

func (k *kernel) exchange(m netlink.Message) error {
	sent, err := k.conn.Send(m)
	if err != nil {
		return err
	}
	for {
		answers, err := k.conn.Receive()
		if err != nil {
			return err
		}
		for _, answer := range answers {
			if answer.Header.Sequence == sent.Header.Sequence {
				return nil
			}
		} // else the answer to a message that was given up
	}
}

// found is an address that the kernel has.
type found struct {
	index    int
	bits     int
	proto    byte
	lifetime uint32 // seconds, math.MaxUint32: without end
}

// ours reports whether this program has set it. A kernel without marks shows none: there
// an address alone with a lifetime of at most Lifetime is one that ends by itself.
func (f *found) ours() bool { return f.proto == Mark }

// ends reports whether it goes without being deleted.
func (f *found) ends() bool { return f.proto == 0 && f.lifetime <= uint32(Lifetime/time.Second) }

// find returns where this machine has an address.
func (k *kernel) find(ip netip.Addr) (all []found, err error) {
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[0] = unix.AF_INET
	if ip.Is6() {
		header[0] = unix.AF_INET6
	}
	if err := k.conn.SetDeadline(time.Now().Add(k.timeout)); err != nil {
		return nil, err
	}
	answers, err := k.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETADDR, Flags: netlink.Request | netlink.Dump}, Data: header})
	if err != nil {
		return nil, fmt.Errorf("read this machine's addresses: %w", err)
	}
	for _, m := range answers {
		if len(m.Data) < unix.SizeofIfAddrmsg {
			continue
		}
		f := found{bits: int(m.Data[1]), index: int(binary.NativeEndian.Uint32(m.Data[4:])), lifetime: ^uint32(0)}
		ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfAddrmsg:])
		if err != nil {
			return nil, err
		}
		var address, local netip.Addr
		for ad.Next() {
			switch ad.Type() {
			case unix.IFA_ADDRESS:
				address, _ = netip.AddrFromSlice(ad.Bytes())
			case unix.IFA_LOCAL:
				local, _ = netip.AddrFromSlice(ad.Bytes())
			case ifaProto:
				f.proto = ad.Uint8()
			case unix.IFA_CACHEINFO:
				if b := ad.Bytes(); len(b) >= 8 {
					f.lifetime = binary.NativeEndian.Uint32(b[4:])
				}
			}
		}
		if err := ad.Err(); err != nil {
			return nil, err
		}
		if local == ip || !local.IsValid() && address == ip {
			all = append(all, f)
		}
	}
	return all, nil
}

// link is a link as it is now.
type link struct {
	index int
	mac   net.HardwareAddr
}

// lookLink returns a link that can carry the address.
func lookLink(name string) (l link, err error) {
	ifi, err := net.InterfaceByName(name)
	switch {
	case err != nil:
		return l, fmt.Errorf("link %s: %w; create it, or name another one", name, err)
	case ifi.Flags&net.FlagUp == 0:
		return l, fmt.Errorf("link %s is down; set it up", name)
	case ifi.Flags&net.FlagRunning == 0:
		return l, fmt.Errorf("link %s has no carrier; look at its cable or its bridge", name)
	case len(ifi.HardwareAddr) != 6:
		return l, fmt.Errorf("link %s is not Ethernet; name one that clients' ARP requests reach", name)
	}
	return link{ifi.Index, ifi.HardwareAddr}, nil
}

// misplaced says what is wrong if the link of a service address has no address of its own
// in its subnet: one of the two in the setting is probably not what was meant. Without a
// subnet in the setting (/32, /128) there is nothing to compare.
func misplaced(a Address) string {
	ifi, err := net.InterfaceByName(a.Link)
	if err != nil || a.Prefix.IsSingleIP() {
		return ""
	}
	all, err := ifi.Addrs()
	if err != nil {
		return ""
	}
	for _, one := range all {
		if own, err := netip.ParsePrefix(one.String()); err == nil && own.Addr() != a.IP() && a.Prefix.Contains(own.Addr()) {
			return ""
		}
	}
	return fmt.Sprintf("link %s has no address of its own in %s, so clients there may get no answer: look at the prefix and the link in --service-address, or give the link an address", a.Link, a.Prefix.Masked())
}
