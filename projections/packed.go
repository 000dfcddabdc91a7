package projections

import (
	"net/netip"
	"strings"

	"rutter/log"
)

// A log.NIC takes 250 bytes, most of which say the same in thousands of NICs, or
// nothing. An agent holds as many NICs as there are on its vnets, so there they
// are packed: what is a NIC's own in 80 bytes, what it has in common with others
// once (nicShape). It is unpacked for each caller that needs the object.

// packedNIC is a NIC without what its shape has.
type packedNIC struct {
	mac       log.MAC
	flags     uint16
	belongsTo log.UUID
	ip        [16]byte
	created   log.Time
	modified  log.Time
	cn        log.UUID
	shape     *nicShape
}

// Bits of packedNIC.flags.
const (
	nicPrimary = 1 << iota
	nicDHCPSpoofing
	nicIPSpoofing
	nicMACSpoofing
	nicRestrictedTraffic
	nicUnfilteredPromisc
	nicHasIP
	nicIPv4
)

// nicShape is what many NICs have in common.
type nicShape struct {
	nicCommon
	users int
}

type nicCommon struct {
	owner, network                      log.UUID
	belongsToType, state, model, nicTag string
	vlan                                uint32
}

// shapes are those in use. A nil map packs nothing.
type shapes map[nicCommon]*nicShape

func (s shapes) of(c nicCommon) *nicShape {
	shape := s[c]
	if shape == nil {
		for _, text := range []*string{&c.belongsToType, &c.state, &c.model, &c.nicTag} {
			*text = strings.Clone(*text) // not the frame that it came in
		}
		shape = &nicShape{nicCommon: c}
		s[c] = shape
	}
	shape.users++
	return shape
}

func (s shapes) drop(shape *nicShape) {
	if shape.users--; shape.users == 0 {
		delete(s, shape.nicCommon)
	}
}

// pack returns the packed form of an object, or nil if it stays as it is: what
// is no NIC, underlay NICs, which each lookup reads, and NICs with something that
// has no place in the packed form.
func (s *store) pack(o log.Object) *packedNIC {
	n, ok := o.(*log.NIC)
	if s.shapes == nil || !ok || n.Underlay || n.VXLANPort != 0 || n.UnderlayMTU != 0 || len(n.NICTagsProvided) > 0 || len(n.AllowedIPs) > 0 || len(n.Labels) > 0 || n.IP.Zone() != "" || log.HasUnknownFields(n) {
		return nil
	}
	p := &packedNIC{
		mac: n.MAC, belongsTo: n.BelongsToUUID, created: n.Created, modified: n.Modified, cn: n.CNUUID,
		shape: s.shapes.of(nicCommon{n.OwnerUUID, n.NetworkUUID, n.BelongsToType, n.State, n.Model, n.NICTag, n.VLANID}),
	}
	if n.IP.IsValid() {
		p.ip = n.IP.As16()
	}
	for i, set := range [...]bool{
		n.Primary, n.AllowDHCPSpoofing, n.AllowIPSpoofing, n.AllowMACSpoofing, n.AllowRestrictedTraffic,
		n.AllowUnfilteredPromisc, n.IP.IsValid(), n.IP.Is4(),
	} {
		if set {
			p.flags |= 1 << i
		}
	}
	return p
}

func (p *packedNIC) addr() netip.Addr {
	switch {
	case p.flags&nicHasIP == 0:
		return netip.Addr{}
	case p.flags&nicIPv4 != 0:
		return netip.AddrFrom4([4]byte(p.ip[12:]))
	}
	return netip.AddrFrom16(p.ip)
}

func (p *packedNIC) unpack() *log.NIC {
	return &log.NIC{
		MAC: p.mac, BelongsToType: p.shape.belongsToType, BelongsToUUID: p.belongsTo, OwnerUUID: p.shape.owner,
		Primary: p.flags&nicPrimary != 0, State: p.shape.state, Created: p.created, Modified: p.modified,
		NetworkUUID: p.shape.network, IP: p.addr(), CNUUID: p.cn, Model: p.shape.model, NICTag: p.shape.nicTag, VLANID: p.shape.vlan,
		AllowDHCPSpoofing: p.flags&nicDHCPSpoofing != 0, AllowIPSpoofing: p.flags&nicIPSpoofing != 0,
		AllowMACSpoofing: p.flags&nicMACSpoofing != 0, AllowRestrictedTraffic: p.flags&nicRestrictedTraffic != 0,
		AllowUnfilteredPromisc: p.flags&nicUnfilteredPromisc != 0,
	}
}
