package varp

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/varp/internal/slots"
)

// vxlanPort is the UDP port of VXLAN (IANA; RFC 7348, section 5).
const vxlanPort = 4789

// mappingTable is the copy: nothing but what answers need.
type mappingTable struct {
	nets  map[log.UUID]uint32
	nodes *nodeTable
	macs  *slots.Table[macKey, uint32] // the node's number
	ips   *slots.Table[ipKey, hostRow]
}

type hostRow struct {
	mac  log.MAC
	node uint32
}

func (t *mappingTable) vl2(vnet uint32, mac log.MAC) (Underlay, bool) {
	node, ok := t.macs.Get(macKey{vnet + 1, mac})
	if !ok {
		return Underlay{}, false
	}
	return t.nodes.underlay(node)
}

func (t *mappingTable) vl3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool) {
	host, ok := t.ips.Get(ipKey{vnet + 1, ip.As16()})
	if !ok {
		return log.MAC{}, Underlay{}, false
	}
	at, ok := t.nodes.underlay(host.node)
	if !ok {
		return log.MAC{}, Underlay{}, false
	}
	return host.mac, at, true
}

// apply notes one event. The event may have been noted before, with later ones; noting
// those again corrects what this one changes.
func (m *mappingTable) apply(e *log.Event) error {
	switch o := e.Object.(type) {
	case *log.Network:
		if delete(m.nets, o.UUID); o.Fabric && e.Action != log.Delete {
			m.nets[o.UUID] = o.VNetID
		}
	case *log.NIC:
		if e.Action == log.Update {
			before, err := log.Revert(o, e.Changed)
			if err != nil {
				return err
			}
			m.take(locationOf(before.(*log.NIC)))
		}
		if e.Action == log.Delete {
			m.take(locationOf(o))
		} else {
			m.put(locationOf(o))
		}
	}
	return nil
}

func (m *mappingTable) put(p nicMapping) {
	node := m.nodes.number(p.node)
	if p.underlay && p.ip.IsValid() {
		m.nodes.put(node, p.mac, Underlay{Addr: p.ip, Port: p.port})
	}
	vnet, ok := m.nets[p.network]
	if !ok {
		return
	}
	m.macs.Put(macKey{vnet + 1, p.mac}, node)
	if p.ip.IsValid() {
		m.ips.Put(ipKey{vnet + 1, p.ip.As16()}, hostRow{p.mac, node})
	}
}

func (m *mappingTable) take(p nicMapping) {
	if p.underlay {
		m.nodes.remove(m.nodes.number(p.node), p.mac)
	}
	vnet, ok := m.nets[p.network]
	if !ok {
		return
	}
	m.macs.Remove(macKey{vnet + 1, p.mac})
	if key := (ipKey{vnet + 1, p.ip.As16()}); p.ip.IsValid() {
		if host, ok := m.ips.Get(key); ok && host.mac == p.mac {
			m.ips.Remove(key)
		}
	}
}

// nodeTable numbers the compute nodes and has the address where each receives VXLAN
// packets. A node keeps its number until the next rebuild, because there are few.
type nodeTable struct {
	numbers map[log.UUID]uint32
	at      []Underlay        // in use, of the lowest MAC; zero if there is none
	nics    [][]underlayOfMAC // by rising MAC
}

type underlayOfMAC struct {
	mac log.MAC
	at  Underlay
}

func newNodeTable() *nodeTable { return &nodeTable{numbers: make(map[log.UUID]uint32)} }

func (t *nodeTable) number(node log.UUID) uint32 {
	n, ok := t.numbers[node]
	if !ok {
		n = uint32(len(t.at))
		t.numbers[node] = n
		t.at, t.nics = append(t.at, Underlay{}), append(t.nics, nil)
	}
	return n
}

func (t *nodeTable) underlay(n uint32) (Underlay, bool) { return t.at[n], t.at[n].Addr.IsValid() }

func (t *nodeTable) find(n uint32, mac log.MAC) (int, bool) {
	return slices.BinarySearchFunc(t.nics[n], mac, func(u underlayOfMAC, mac log.MAC) int { return u.mac.Compare(mac) })
}

func (t *nodeTable) put(n uint32, mac log.MAC, at Underlay) {
	t.remove(n, mac)
	i, _ := t.find(n, mac)
	t.nics[n] = slices.Insert(t.nics[n], i, underlayOfMAC{mac, at})
	t.settle(n)
}

func (t *nodeTable) remove(n uint32, mac log.MAC) {
	if i, found := t.find(n, mac); found {
		t.nics[n] = slices.Delete(t.nics[n], i, i+1)
		t.settle(n)
	}
}

func (t *nodeTable) settle(n uint32) {
	t.at[n] = Underlay{}
	if nics := t.nics[n]; len(nics) > 0 {
		t.at[n] = nics[0].at
	}
}

// macKey and ipKey are the keys of Mappings. vnet is one more than the vnet's
// number, so that no key is zero.
type (
	macKey struct {
		vnet uint32
		mac  log.MAC
	}
	ipKey struct {
		vnet uint32
		ip   [16]byte
	}
)

// mixer hashes keys with a random seed, because tenants choose addresses and must not
// be able to choose colliding ones.
type mixer struct{ a, b uint64 }

func newMixer() mixer { return mixer{rand.Uint64() | 1, rand.Uint64() | 1} }

func (m mixer) mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x^m.a, y^m.b)
	return hi ^ lo
}

func (m mixer) mac(k macKey) uint64 {
	return m.mix(uint64(k.vnet)<<16|uint64(binary.BigEndian.Uint16(k.mac[:])), uint64(binary.BigEndian.Uint32(k.mac[2:])))
}

func (m mixer) ip(k ipKey) uint64 {
	return m.mix(m.mix(binary.BigEndian.Uint64(k.ip[:]), uint64(k.vnet)), binary.BigEndian.Uint64(k.ip[8:]))
}
