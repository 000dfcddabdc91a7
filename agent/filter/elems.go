package filter

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// derived is the comment of the link-local address that follows from a port's MAC, unless it
// is one of the port's Addresses too.
const derived = "link-local"

// maxAddresses is how many addresses a port may have.
const maxAddresses = 4096

func indexKey(index uint32) []byte { return binary.NativeEndian.AppendUint32(nil, index) }

// reasonKey is the number of a reason, as rules load it into a register.
func reasonKey(r Reason) []byte {
	at := slices.Index(portReasons, r)
	if at < 0 {
		at = slices.Index(underlayReasons, r)
	}
	return binary.NativeEndian.AppendUint32(nil, uint32(at+1))
}

// LinkLocal is the link-local address that follows from a MAC (RFC 4291 appendix A).
func LinkLocal(mac log.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

func addrElem(index uint32, a netip.Addr) elem {
	set := setV6
	if a.Is4() {
		set = setV4
	}
	var key [4 + 16]byte
	b := binary.NativeEndian.AppendUint32(key[:0], index)
	if a.Is4() {
		a4 := a.As4()
		b = append(b, a4[:]...)
	} else {
		a16 := a.As16()
		b = append(b, a16[:]...)
	}
	return elem{family: bridge, set: set, key: string(b)}
}

// elems are the elements of a port, in the order of compareElems.
func (p Port) elems() []elem {
	key := string(indexKey(p.Index))
	one := func(set string, rest ...byte) elem {
		if len(rest) == 0 {
			return elem{family: bridge, set: set, key: key}
		}
		return elem{family: bridge, set: set, key: key + string(rest)}
	}
	closed := []elem{one(setClosed), one(setClosed)}
	closed[0].family, closed[1].family = inet, arp
	head := one(setPorts)
	head.note = p.Name
	mac := p.MAC
	// They are made in their order as far as it is known, so that sorting costs little.
	out := make([]elem, 0, 2*len(p.Addresses)+9)
	out = append(out, closed...)
	for _, f := range []struct {
		set string
		on  bool
	}{{setAnyIP, p.AnyIP}, {setAnyMAC, p.AnyMAC}, {setAnyOther, p.AnyTraffic}, {setDHCP, p.DHCPServer}} {
		if f.on {
			out = append(out, one(f.set))
		}
	}
	out = append(out, one(setMACs, append(mac[:], 0, 0)...), head)
	for _, a := range p.Addresses {
		out = append(out, addrElem(p.Index, a))
	}
	if own := LinkLocal(p.MAC); !slices.Contains(p.Addresses, own) {
		e := addrElem(p.Index, own)
		e.note = derived
		out = append(out, e)
	}
	for _, a := range p.Addresses {
		if a.Is4() {
			a4 := a.As4()
			out = append(out, one(setWhole4, slices.Concat(mac[:], etherIPv4, a4[:])...))
		}
	}
	slices.SortFunc(out, compareElems)
	return slices.CompactFunc(out, func(a, b elem) bool { return compareElems(a, b) == 0 })
}

func compareElems(a, b elem) int {
	return cmp.Or(cmp.Compare(a.family, b.family), strings.Compare(a.set, b.set), strings.Compare(a.key, b.key))
}

// portOf is the port that a kernel has with these elements, which are of one index. If they
// are not those of any port, something is missing in the result, or too much, so it is not
// equal to any port that is wanted.
func portOf(index uint32, elems []elem) Port {
	p := Port{Index: index}
	for _, e := range elems {
		rest := []byte(e.key[4:])
		switch e.set {
		case setPorts:
			p.Name = e.note
		case setMACs:
			p.MAC = log.MAC(rest[:6])
		case setV4, setV6:
			if a, ok := netip.AddrFromSlice(rest); ok && e.note != derived {
				p.Addresses = append(p.Addresses, a)
			}
		case setAnyMAC:
			p.AnyMAC = true
		case setAnyIP:
			p.AnyIP = true
		case setDHCP:
			p.DHCPServer = true
		case setAnyOther:
			p.AnyTraffic = true
		}
	}
	slices.SortFunc(p.Addresses, netip.Addr.Compare)
	if !slices.Equal(p.elems(), elems) {
		return Port{Index: index}
	}
	return p
}

func peerElem(p Peer) elem {
	set := setPeers6
	if p.VTEP.Is4() {
		set = setPeers4
	}
	vni := []byte{byte(p.VNI >> 16), byte(p.VNI >> 8), byte(p.VNI), 0}
	return elem{family: inet, set: set, key: string(append(p.VTEP.AsSlice(), vni...))}
}

func peerOf(e elem) (Peer, bool) {
	at := len(e.key) - 4
	a, ok := netip.AddrFromSlice([]byte(e.key[:at]))
	vni := binary.BigEndian.Uint32([]byte(e.key[at:]))
	return Peer{VTEP: a, VNI: vni >> 8}, ok && vni&0xff == 0
}

func (u Underlay) elems() []elem {
	var out []elem
	for _, port := range u.Ports {
		out = append(out, elem{family: inet, set: setVXLANPorts, key: string(binary.BigEndian.AppendUint16(nil, port))})
	}
	for _, name := range u.Interfaces {
		out = append(out, elem{family: inet, set: setInterfaces, key: name + strings.Repeat("\x00", unix.IFNAMSIZ-len(name))})
	}
	slices.SortFunc(out, compareElems)
	return slices.CompactFunc(out, func(a, b elem) bool { return compareElems(a, b) == 0 })
}

func underlayOf(elems []elem) Underlay {
	var u Underlay
	for _, e := range elems {
		if e.set == setVXLANPorts {
			u.Ports = append(u.Ports, binary.BigEndian.Uint16([]byte(e.key)))
		} else {
			u.Interfaces = append(u.Interfaces, strings.TrimRight(e.key, "\x00"))
		}
	}
	return u
}

func segmentName(index uint32) string { return fmt.Sprintf("segment%d", index) }

// maxName is how long the name of a link may be in bytes (IFNAMSIZ less the zero).
const maxName = unix.IFNAMSIZ - 1

func checkName(what, name string) error {
	if name == "" || len(name) > maxName || strings.ContainsAny(name, "/ \x00") {
		return fmt.Errorf("%s: %q is not the name of a link; it has 1 to %d bytes without a slash or a space", what, name, maxName)
	}
	return nil
}

// check says what is wrong with a change that the kernel would take to mean something else.
func (c Change) check() error {
	switch {
	case c.SetPort != nil:
		return c.SetPort.check()
	case c.SetSegment != nil:
		if c.SetSegment.Index == 0 {
			return fmt.Errorf("segment %q has no ifindex; make its bridge first", c.SetSegment.Name)
		}
		return checkName("segment", c.SetSegment.Name)
	case c.AddPeer != nil:
		return c.AddPeer.check()
	case c.DelPeer != nil:
		return c.DelPeer.check()
	case c.SetUnderlay != nil:
		for _, name := range c.SetUnderlay.Interfaces {
			if err := checkName("underlay", name); err != nil {
				return err
			}
		}
	case c.DelPort == 0 && c.DelSegment == 0:
		return fmt.Errorf("a change that is empty; set one of its fields")
	}
	return nil
}

func (p Port) check() error {
	if p.Index == 0 {
		return fmt.Errorf("port %q has no ifindex; make its link first", p.Name)
	}
	if err := checkName("port", p.Name); err != nil {
		return err
	}
	if len(p.Addresses) > maxAddresses {
		return fmt.Errorf("port %q has %d addresses; the limit is %d", p.Name, len(p.Addresses), maxAddresses)
	}
	for _, a := range p.Addresses {
		if !a.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return fmt.Errorf("port %q: %v cannot be a source address; remove it from the NIC", p.Name, a)
		}
	}
	return nil
}

func (p Peer) check() error {
	if !p.VTEP.IsValid() || p.VTEP.Is4In6() || p.VTEP.Zone() != "" || p.VNI >= 1<<24 {
		return fmt.Errorf("peer %v of VNI %d: it needs an IPv4 or IPv6 address and a VNI below %d", p.VTEP, p.VNI, 1<<24)
	}
	return nil
}
