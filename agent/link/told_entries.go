package link

import (
	"net/netip"

	"rutter/log"
)

// toldEntries has what single entries are told to be since the last dump. Its
// keys and values have no pointers and no gaps: there are tens of thousands of
// them, each written before its step is sent.
type toldEntries struct {
	neighs   map[neighAt]log.MAC // zero: none
	forwards map[forwardAt]forwardTo
}

// neighAt is a neighbour on the link of an ifindex.
type neighAt struct {
	index int32
	bits  uint32 // of the address: 32 or 128
	ip    [16]byte
}

// forwardAt is a forwarding entry on the VXLAN device of an ifindex.
type forwardAt struct {
	index int32
	mac   log.MAC
	_     [2]byte
}

// forwardTo is what a forwarding entry leads to; zero: there is none.
type forwardTo struct {
	bits uint16 // of the address: 32 or 128
	port uint16
	dst  [16]byte
}

func newToldEntries() toldEntries {
	return toldEntries{neighs: map[neighAt]log.MAC{}, forwards: map[forwardAt]forwardTo{}}
}

func (e *toldEntries) clear() {
	clear(e.neighs)
	clear(e.forwards)
}

func neighKeyOf(index int32, ip netip.Addr) neighAt {
	return neighAt{index: index, bits: uint32(ip.BitLen()), ip: ip.As16()}
}

func (e *toldEntries) setNeigh(index int32, ip netip.Addr, mac log.MAC) {
	e.neighs[neighKeyOf(index, ip)] = mac
}

func (e *toldEntries) setForward(index int32, mac log.MAC, dst netip.Addr, port uint16) {
	var to forwardTo
	if dst.IsValid() {
		to = forwardTo{bits: uint16(dst.BitLen()), port: port, dst: dst.As16()}
	}
	e.forwards[forwardAt{index: index, mac: mac}] = to
}

// get returns what an entry was told to be, if it was told.
func (e *toldEntries) get(key entryKey) (p placed, ok bool) {
	if key.ip.IsValid() {
		p.mac, ok = e.neighs[neighKeyOf(key.index, key.ip)]
		return p, ok
	}
	to, ok := e.forwards[forwardAt{index: key.index, mac: key.mac}]
	switch to.bits {
	case 32:
		p = placed{dst: netip.AddrFrom16(to.dst).Unmap(), port: to.port}
	case 128:
		p = placed{dst: netip.AddrFrom16(to.dst), port: to.port}
	}
	return p, ok
}
