package link

import (
	"net/netip"
	"slices"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
)

// expectedEntries has what single entries were programmed, or are wanted, to be since
// the last dump. Its keys and values have no pointers and no gaps: there are tens of
// thousands of them, each written beside its step. A programmed entry names its link by
// ifindex; a wanted one by the NIC's MAC, or a VXLAN device by its vnet.
type expectedEntries struct {
	neighs   map[neighAt]log.MAC // zero: none
	forwards map[forwardAt]forwardTo
}

// neighAt is a neighbour on a link.
type neighAt struct {
	link uint64
	bits uint64 // of the address: 32 or 128
	ip   [16]byte
}

// forwardAt is a forwarding entry on a VXLAN device.
type forwardAt struct {
	device uint32
	mac    log.MAC
	_      [2]byte
}

// forwardTo is the target of a forwarding entry; zero: there is none.
type forwardTo struct {
	bits uint16 // of the address: 32 or 128
	port uint16
	dst  [16]byte
}

func newExpectedEntries() expectedEntries {
	return expectedEntries{neighs: map[neighAt]log.MAC{}, forwards: map[forwardAt]forwardTo{}}
}

func (e *expectedEntries) clear() {
	clear(e.neighs)
	clear(e.forwards)
}

func neighAtOf(link uint64, ip netip.Addr) neighAt {
	return neighAt{link: link, bits: uint64(ip.BitLen()), ip: ip.As16()}
}

// number is a MAC as the id of a link.
func number(mac log.MAC) uint64 {
	return uint64(mac[0])<<40 | uint64(mac[1])<<32 | uint64(mac[2])<<24 | uint64(mac[3])<<16 | uint64(mac[4])<<8 | uint64(mac[5])
}

func (e *expectedEntries) setNeigh(link uint64, ip netip.Addr, mac log.MAC) {
	e.neighs[neighAtOf(link, ip)] = mac
}

func (e *expectedEntries) setForward(device uint32, mac log.MAC, dst netip.Addr, port uint16) {
	var to forwardTo
	if dst.IsValid() {
		to = forwardTo{bits: uint16(dst.BitLen()), port: port, dst: dst.As16()}
	}
	e.forwards[forwardAt{device: device, mac: mac}] = to
}

// neigh returns the recorded neighbour, if there is one.
func (e *expectedEntries) neigh(link uint64, ip netip.Addr) (p plan.Target, ok bool) {
	p.MAC, ok = e.neighs[neighAtOf(link, ip)]
	return p, ok
}

// forward returns the recorded forwarding entry, if there is one.
func (e *expectedEntries) forward(device uint32, mac log.MAC) (p plan.Target, ok bool) {
	to, ok := e.forwards[forwardAt{device: device, mac: mac}]
	switch to.bits {
	case 32:
		p = plan.Target{Dst: netip.AddrFrom16(to.dst).Unmap(), Port: to.port}
	case 128:
		p = plan.Target{Dst: netip.AddrFrom16(to.dst), Port: to.port}
	}
	return p, ok
}

// observePort checks a notification of a port of a bridge: only its flags. That a port left
// its bridge is in another notification too.
func (t *expected) observePort(body []byte) bool {
	index, flags, ok := wire.ParsePort(body)
	l := t.links[index]
	if !ok || l == nil || !l.Ours || l.Master == "" || l.Flags == flags {
		return false
	}
	t.doubtful[index] = true
	return true
}

// observeFlood checks a notification of an entry for all MACs that have none, of which a
// device has several.
func (t *expected) observeFlood(l *plan.Link, n *wire.RawNeigh, deleted bool) bool {
	if slices.ContainsFunc(l.FDB, func(f plan.Forward) bool { return f.MAC.IsZero() && f.Dst == n.Dst }) != deleted {
		return false
	}
	t.mismatches(l)
	return true
}

// observeStatic checks a notification of a bridge's entry of a port.
func (t *expected) observeStatic(l *plan.Link, n *wire.RawNeigh, deleted bool) bool {
	if !l.Host || n.VLAN != 0 || (slices.Contains(l.Static, n.MAC) == (!deleted && n.IsStatic())) {
		return false
	}
	t.mismatches(l)
	return true
}
