package miss

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
	"rutter/log"
)

// Kind is the kind of a missing entry.
type Kind uint8

// The kinds of miss, as spec/kernel.md section 1 names them.
const (
	Neighbour Kind = iota + 1 // A: a link asks for the MAC of IP, and keeps a packet for it
	Proxy                     // B: a VXLAN device saw ARP or ND for IP, and has no such neighbour
	Forward                   // C: a VXLAN device has no entry for MAC; the packet is lost
)

// String names a kind.
func (k Kind) String() string {
	switch k {
	case Neighbour:
		return "neighbour"
	case Proxy:
		return "proxy"
	case Forward:
		return "forward"
	}
	return fmt.Sprintf("kind %d", k)
}

// OwnNamespace is the Namespace of a miss in the listener's namespace.
const OwnNamespace int32 = -1

// Miss is one entry that the kernel misses. It is comparable.
type Miss struct {
	Kind Kind
	// Namespace is the number that the listener's namespace has for the link's
	// (RTM_GETNSID), or OwnNamespace.
	Namespace int32
	Link      int32      // ifindex, in that namespace
	IP        netip.Addr // Neighbour, Proxy: the address asked for
	// MAC is what Forward asks for. For a Neighbour it is the known MAC that must be
	// confirmed, or zero.
	MAC log.MAC
}

// String returns the miss as text.
func (m Miss) String() string {
	at := fmt.Sprintf("link %d", m.Link)
	if m.Namespace != OwnNamespace {
		at += fmt.Sprintf(" of namespace %d", m.Namespace)
	}
	if m.Kind == Forward {
		return fmt.Sprintf("%s: no forwarding entry for %s", at, m.MAC)
	}
	return fmt.Sprintf("%s: no neighbour %s", at, m.IP)
}

var native = binary.NativeEndian

// Sizes of netlink structures.
const (
	sizeofNlMsghdr = 16 // struct nlmsghdr, linux/netlink.h
	sizeofNdMsg    = 12 // struct ndmsg, linux/neighbour.h
)

// parse appends the misses in one datagram to list. Other messages are skipped: the
// group has other notifications.
func parse(list []Miss, datagram []byte, namespace int32) []Miss {
	for h, body, rest, ok := nlmsg.Next(datagram); ok; h, body, rest, ok = nlmsg.Next(rest) {
		if h.Type != unix.RTM_GETNEIGH {
			continue
		}
		if m, ok := parseMiss(body, h.Flags); ok {
			m.Namespace = namespace
			list = append(list, m)
		}
	}
	return list
}

// parseMiss reads the body of a GETNEIGH that the kernel sent with these flags.
func parseMiss(b []byte, flags uint16) (m Miss, ok bool) {
	m, state, ok := parseNeigh(b)
	switch {
	case !ok:
		return m, false
	case flags&unix.NLM_F_REQUEST != 0:
		m.Kind = Neighbour
	case m.IP.IsValid():
		m.Kind, m.MAC = Proxy, log.MAC{}
	default:
		m.Kind = Forward
	}
	if m.Kind == Forward {
		return m, !m.MAC.IsZero() && state != 0
	}
	return m, m.IP.IsValid()
}

// parseNeigh reads a struct ndmsg and its attributes.
func parseNeigh(b []byte) (m Miss, state uint16, ok bool) {
	if len(b) < sizeofNdMsg {
		return m, 0, false
	}
	m.Namespace, m.Link, state = OwnNamespace, int32(native.Uint32(b[4:])), native.Uint16(b[8:])
	for typ, value, rest, ok := nlmsg.NextAttr(b[sizeofNdMsg:]); ok; typ, value, rest, ok = nlmsg.NextAttr(rest) {
		switch typ {
		case unix.NDA_DST:
			m.IP, _ = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			if len(value) == len(m.MAC) {
				copy(m.MAC[:], value)
			}
		}
	}
	return m, state, true
}
