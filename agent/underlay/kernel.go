package underlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
)

// errNoLink: no link of this node has the address.
var errNoLink = errors.New("underlay: no interface of this node has the address")

// Link is a link of this node.
type Link struct {
	Index    uint32
	Name     string
	MTU      uint32 // bytes
	Loopback bool
}

// Route is where packets to an address leave this node.
type Route struct {
	Link Link
	MTU  uint32 // bytes; of the route, 0: none
}

// carries returns the largest packet, in bytes, that leaves by the route.
func (r Route) carries() uint32 {
	if r.MTU != 0 {
		return min(r.MTU, r.Link.MTU)
	}
	return r.Link.MTU
}

// cacheExpires is where struct rta_cacheinfo has rta_expires (linux/rtnetlink.h).
const cacheExpires = 8

// kernel asks the kernel of this network namespace. It is not safe for concurrent use.
type kernel struct {
	conn  *netlink.Conn
	links map[uint32]Link // that were read, by index
}

func openKernel() (*kernel, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{})
	if err != nil {
		return nil, fmt.Errorf("underlay: netlink: %w", err)
	}
	return &kernel{conn: conn, links: map[uint32]Link{}}, nil
}

func (k *kernel) close() { _ = k.conn.Close() } // nothing was written

func familyOf(a netip.Addr) byte {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// linkOf returns the link that has an address. Error: errNoLink.
func (k *kernel) linkOf(addr netip.Addr) (Link, error) {
	body := make([]byte, unix.SizeofIfAddrmsg)
	body[0] = familyOf(addr)
	answers, err := k.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETADDR, Flags: netlink.Request | netlink.Dump}, Data: body})
	if err != nil {
		return Link{}, fmt.Errorf("underlay: addresses: %w", err)
	}
	for _, m := range answers {
		if len(m.Data) < unix.SizeofIfAddrmsg {
			continue
		}
		var local, address netip.Addr
		nlmsg.Attrs(m.Data[unix.SizeofIfAddrmsg:], func(typ uint16, value []byte) {
			switch typ {
			case unix.IFA_LOCAL:
				local, _ = netip.AddrFromSlice(value)
			case unix.IFA_ADDRESS:
				address, _ = netip.AddrFromSlice(value)
			}
		})
		if !local.IsValid() {
			local = address // IPv6 has the one (linux/if_addr.h)
		}
		if local == addr {
			return k.link(binary.NativeEndian.Uint32(m.Data[4:]))
		}
	}
	return Link{}, fmt.Errorf("%w %s", errNoLink, addr)
}

// link returns the link of an index.
func (k *kernel) link(index uint32) (Link, error) {
	if l, ok := k.links[index]; ok {
		return l, nil
	}
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], index)
	answers, err := k.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: body})
	if err != nil || len(answers) == 0 || len(answers[0].Data) < unix.SizeofIfInfomsg {
		return Link{}, fmt.Errorf("underlay: link %d: %w", index, errors.Join(err, errNoLink))
	}
	l := Link{Index: index}
	data := answers[0].Data
	l.Loopback = binary.NativeEndian.Uint32(data[8:])&unix.IFF_LOOPBACK != 0
	nlmsg.Attrs(data[unix.SizeofIfInfomsg:], func(typ uint16, value []byte) {
		switch {
		case typ == unix.IFLA_MTU && len(value) == 4:
			l.MTU = binary.NativeEndian.Uint32(value)
		case typ == unix.IFLA_IFNAME && len(value) > 0:
			l.Name = string(value[:len(value)-1])
		}
	})
	k.links[index] = l
	return l, nil
}

// route returns the way from an address of this node to another. Its MTU is that of the
// route as it was configured (ip-route(8), mtu). What the kernel has learned of the path
// does not count: any host that can send an ICMP packet here can say that a packet was too
// large. The probe finds what arrives.
func (k *kernel) route(from, to netip.Addr) (r Route, err error) {
	r, learned, err := k.ask(from, to, 0)
	if err == nil && learned {
		r.MTU = 0
		if configured, _, err := k.ask(from, to, unix.RTM_F_FIB_MATCH); err == nil {
			r.MTU = configured.MTU
		}
	}
	return r, err
}

// ask asks for a route with flags of rtnetlink(7), and reports whether the answer has
// something that the kernel has learned and will forget.
func (k *kernel) ask(from, to netip.Addr, flags uint32) (r Route, learned bool, err error) {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1], body[2] = familyOf(to), byte(to.BitLen()), byte(from.BitLen())
	binary.NativeEndian.PutUint32(body[8:], flags)
	encoder := netlink.NewAttributeEncoder()
	encoder.Bytes(unix.RTA_DST, to.AsSlice())
	encoder.Bytes(unix.RTA_SRC, from.AsSlice())
	attributes, err := encoder.Encode()
	if err != nil {
		return r, false, err
	}
	answers, err := k.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request}, Data: append(body, attributes...)})
	if err != nil || len(answers) == 0 || len(answers[0].Data) < unix.SizeofRtMsg {
		return r, false, fmt.Errorf("underlay: no route from %s to %s: %w", from, to, err)
	}
	var index uint32
	nlmsg.Attrs(answers[0].Data[unix.SizeofRtMsg:], func(typ uint16, value []byte) {
		switch {
		case typ == unix.RTA_OIF && len(value) == 4:
			index = binary.NativeEndian.Uint32(value)
		case typ == unix.RTA_CACHEINFO && len(value) >= cacheExpires+4:
			learned = binary.NativeEndian.Uint32(value[cacheExpires:]) != 0
		case typ == unix.RTA_METRICS:
			nlmsg.Attrs(value, func(typ uint16, value []byte) {
				if typ == unix.RTAX_MTU && len(value) == 4 {
					r.MTU = binary.NativeEndian.Uint32(value)
				}
			})
		}
	})
	if index == 0 && flags != 0 { // several next hops, of which the other answer has chosen one
		return r, learned, nil
	}
	r.Link, err = k.link(index)
	return r, learned, err
}
