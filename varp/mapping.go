package varp

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"

	"rutter/log"
)

// mapping identifies what a client may have cached: a (vnet, MAC) or a (vnet, IP).
type mapping struct {
	vnet uint32
	typ  RecordType
	addr [16]byte // the MAC and zeros, or the IP, IPv4 as mapped
}

func mappingVL2(vnet uint32, mac log.MAC) mapping {
	m := mapping{vnet: vnet, typ: RecordVL2}
	copy(m.addr[:], mac[:])
	return m
}

func mappingVL3(vnet uint32, ip netip.Addr) mapping {
	return mapping{vnet: vnet, typ: RecordVL3, addr: ip.As16()}
}

func (m mapping) mac() log.MAC { return log.MAC(m.addr[:6]) }

func (m mapping) ip() netip.Addr { return netip.AddrFrom16(m.addr).Unmap() }

// known reports whether the mapping exists now.
func (m mapping) known(rows Rows) (ok bool) {
	if m.typ == RecordVL2 {
		_, ok = rows.VL2(m.vnet, m.mac())
	} else {
		_, _, ok = rows.VL3(m.vnet, m.ip())
	}
	return ok
}

// invalidation is a mapping that changed at seq. vlan is for VL3 records only.
type invalidation struct {
	mapping
	vlan uint16
	seq  log.Seq
}

// size is the length of the record of s in bytes.
func (s invalidation) size() int { return Record{Type: s.typ}.Size() }

// record is s as a record of the log.
func (s invalidation) record() Record {
	r := Record{Type: s.typ, ID: s.id(), VNet: s.vnet}
	if s.typ == RecordVL2 {
		r.MAC = s.mac()
	} else {
		r.IP, r.VLAN = s.ip(), s.vlan
	}
	return r
}

// recordMapping is the mapping of a record.
func recordMapping(r Record) mapping {
	if r.Type == RecordVL2 {
		return mappingVL2(r.VNet, r.MAC)
	}
	return mappingVL3(r.VNet, r.IP)
}

// id returns the UUID (version 8, RFC 9562 section 5.8) that LOG_RM names: the
// lower 48 bits of the seq, and FNV-1a over the mapping.
//
// It is a function of the record's content alone, so every server gives an invalidation
// the same id, and no server gives that id to another. So a LOG_RM at the wrong server
// cannot remove a record that was not delivered. A count within a seq does not work:
// which records follow when a node's underlay address changes depends on the moment at
// which a server looks.
func (s invalidation) id() log.UUID {
	sum := fnv.New64a()
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], s.vnet)
	binary.BigEndian.PutUint32(b[4:], uint32(s.typ))
	_, _ = sum.Write(b[:])
	_, _ = sum.Write(s.addr[:])
	h := sum.Sum64()

	var id log.UUID
	binary.BigEndian.PutUint64(id[:], uint64(s.seq)<<16)
	id[6] = 0x80 | byte(h>>62)
	binary.BigEndian.PutUint64(id[8:], h&(1<<62-1)|1<<63)
	return id
}

// invalidationsOf appends to dst the mappings that an event makes wrong in a client's
// cache: each (vnet, MAC) whose underlay address may change, and each (vnet, IP) whose
// MAC or location may change. rows may be of any moment from the event on: later
// changes have events of their own.
//
// NAPI's rows (spec/svp.md section 5) have gaps that this closes: a delete gives the IP
// as well, a create the MAC (illumos also remembers that it had no owner), an underlay
// NIC that changes gives every MAC of its node; and an update that moves nothing gives
// nothing.
func invalidationsOf(dst []invalidation, seq log.Seq, e *log.Event, rows Rows) ([]invalidation, error) {
	nic, ok := e.Object.(*log.NIC)
	if !ok {
		return dst, nil // a network's vnet never changes, and a deleted network has no NICs
	}
	var before, after *log.NIC
	switch e.Action {
	case log.Create:
		after = nic
	case log.Delete:
		before = nic
	default:
		o, err := log.Revert(nic, e.Changed)
		if err != nil {
			return dst, fmt.Errorf("seq %d: %w", seq, err)
		}
		before, after = o.(*log.NIC), nic
	}
	was, is := locationOf(before), locationOf(after)
	if was == is {
		return dst, nil
	}
	if was.underlay || is.underlay {
		return underlayInvalidations(dst, seq, was.node, is.node, rows), nil
	}
	return overlayInvalidations(dst, seq, e, was, is, rows), nil
}

// nicMapping is the part of a NIC that lookups depend on.
type nicMapping struct {
	mac      log.MAC
	network  log.UUID
	ip       netip.Addr
	node     log.UUID
	underlay bool
	port     uint16 // UDP, where an underlay NIC receives VXLAN packets; 0 of others
}

// locationOf returns the zero nicMapping for no NIC. As in package projections, a
// server's NIC is on that server, and only such a NIC can be an underlay NIC.
func locationOf(nic *log.NIC) nicMapping {
	if nic == nil {
		return nicMapping{}
	}
	p := nicMapping{mac: nic.MAC, network: nic.NetworkUUID, ip: nic.IP.Unmap(), node: nic.CNUUID}
	if ofServer := nic.BelongsToType == "server"; ofServer {
		if p.underlay = nic.Underlay; p.underlay {
			p.port = portOf(nic)
		}
		if p.node.IsZero() {
			p.node = nic.BelongsToUUID
		}
	}
	return p
}

// portOf returns the UDP port of an underlay NIC's node.
func portOf(nic *log.NIC) uint16 {
	if nic.VXLANPort == 0 {
		return vxlanPort
	}
	return uint16(nic.VXLANPort)
}

// underlayInvalidations: the earlier or current node of an underlay NIC has another
// address, and so have its NICs. The MAC of each IP is unchanged.
func underlayInvalidations(dst []invalidation, seq log.Seq, was, is log.UUID, rows Rows) []invalidation {
	for _, node := range []log.UUID{was, is} {
		for row := range rows.NICsOn(node) {
			dst = append(dst, invalidation{mappingVL2(row.VNet, row.MAC), 0, seq})
		}
		if was == is {
			break
		}
	}
	return dst
}

// changeInvalidations is invalidationsOf for a change of an agent.
func changeInvalidations(dst []invalidation, c Change, rows Rows) []invalidation {
	if c.Was.Underlay || c.Is.Underlay {
		return underlayInvalidations(dst, c.Seq, c.Was.Node, c.Is.Node, rows)
	}
	moved := c.Was.Node != c.Is.Node || c.Was.VNet != c.Is.VNet || c.Was.OnVNet != c.Is.OnVNet
	for _, p := range []Place{c.Was, c.Is} {
		switch {
		case !p.OnVNet:
			continue
		case moved:
			dst = append(dst, invalidation{mappingVL2(p.VNet, p.MAC), 0, c.Seq})
		}
		if p.IP.IsValid() {
			dst = append(dst, invalidation{mappingVL3(p.VNet, p.IP), p.VLAN, c.Seq})
		}
	}
	return dst
}

func overlayInvalidations(dst []invalidation, seq log.Seq, e *log.Event, was, is nicMapping, rows Rows) []invalidation {
	moved := was.network != is.network || was.node != is.node // also true for a create or a delete
	for _, p := range []nicMapping{was, is} {
		if p == (nicMapping{}) {
			continue
		}
		for _, on := range vnetsOf(e, p.network, rows) {
			if moved {
				dst = append(dst, invalidation{mappingVL2(on.vnet, p.mac), 0, seq})
			}
			if p.ip.IsValid() {
				dst = append(dst, invalidation{mappingVL3(on.vnet, p.ip), on.vlan, seq})
			}
		}
	}
	return dst
}

type vnetVLAN struct {
	vnet uint32
	vlan uint16
}

// vnetsOf returns the vnet of the event's NIC while it was on network. If the network
// is deleted by now, the event's scopes are used: the vnets before and after. One vnet
// too many does no harm.
func vnetsOf(e *log.Event, network log.UUID, rows Rows) []vnetVLAN {
	if network.IsZero() {
		return nil
	}
	if vnet, vlan, ok := rows.VNetOf(network); ok {
		return []vnetVLAN{{vnet, vlan}}
	}
	var all []vnetVLAN
	for _, scope := range e.Scopes {
		switch {
		case scope.Type == log.ScopeVNet:
			all = append(all, vnetVLAN{vnet: scope.VNet})
		case scope == log.NetworkScope(network):
			return nil // it is, or was, on no vnet
		}
	}
	return all
}
