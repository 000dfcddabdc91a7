package projections

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	"rutter/log"
)

// byNet are the indexes of the kinds that stand around networks: IPs, pools,
// fabric VLANs, aggregations and routers.
type byNet struct {
	ipsOn         sets[log.UUID] // IP objects by network, sorted by address
	poolsWith     sets[log.UUID] // pools by each of their networks
	vlansOf       sets[log.UUID] // fabric VLANs by owner
	vlansOnVNet   sets[uint32]   // and by vnet
	aggrsOn       sets[log.UUID] // aggregations by server
	aggrsOnTag    sets[string]   // and by each NIC tag that they provide
	routersWith   sets[log.UUID] // routers by each of their networks
	routersOnVNet sets[uint32]   // and by each vnet
	routersOnCN   sets[log.UUID] // and by the CN of their VM
	routersOfVM   sets[log.UUID] // and by their VM
}

func newByNet() byNet {
	return byNet{
		ipsOn: sets[log.UUID]{}, poolsWith: sets[log.UUID]{}, vlansOf: sets[log.UUID]{}, vlansOnVNet: sets[uint32]{},
		aggrsOn: sets[log.UUID]{}, aggrsOnTag: sets[string]{}, routersWith: sets[log.UUID]{}, routersOnVNet: sets[uint32]{},
		routersOnCN: sets[log.UUID]{}, routersOfVM: sets[log.UUID]{},
	}
}

// keyOfIP is the key of an IP object: 32 bytes, which order as the addresses do.
func keyOfIP(network log.UUID, ip netip.Addr) string {
	b := ip.As16()
	return string(network[:]) + string(b[:])
}

// uuidText is the length of a UUID's text.
const uuidText = 36

// ParseIPID reads what log.IPID makes.
func ParseIPID(id string) (network log.UUID, ip netip.Addr, err error) {
	if len(id) > uuidText && id[uuidText] == ':' {
		if network, err = log.ParseUUID(id[:uuidText]); err == nil {
			if ip, err = netip.ParseAddr(id[uuidText+1:]); err == nil && ip.Zone() == "" {
				return network, ip.Unmap(), nil
			}
		}
	}
	return log.UUID{}, netip.IPv6Unspecified(), &log.FormError{What: "ip", Text: id, Want: "NETWORK-UUID:ADDRESS"}
}

func keyOfVLAN(owner log.UUID, vlan uint32) string {
	return string(binary.BigEndian.AppendUint32(owner[:len(owner):len(owner)], vlan))
}

// parseVLANID reads what log.FabricVLANID makes.
func parseVLANID(id string) (owner log.UUID, vlan uint32, err error) {
	if len(id) > uuidText && id[uuidText] == ':' {
		if owner, err = log.ParseUUID(id[:uuidText]); err == nil {
			text := id[uuidText+1:]
			if n, err := strconv.ParseUint(text, 10, 32); err == nil && strconv.FormatUint(n, 10) == text {
				return owner, uint32(n), nil
			}
		}
	}
	return log.UUID{}, 0, &log.FormError{What: "fabric_vlan", Text: id, Want: "OWNER-UUID:VLAN"}
}

// scopesOfNet returns the scopes of an aggregation or a router; others of these
// kinds concern operators only.
func scopesOfNet(o any) (scopes []log.Scope) {
	switch o := o.(type) {
	case *log.Aggregation:
		if !o.BelongsToUUID.IsZero() {
			scopes = append(scopes, log.CNScope(o.BelongsToUUID))
		}
	case *log.Router:
		if !o.CNUUID.IsZero() {
			scopes = append(scopes, log.CNScope(o.CNUUID))
		}
		for i, vnet := range o.VNets {
			if vnet != publicSubnets && !slices.Contains(o.VNets[:i], vnet) {
				scopes = append(scopes, log.VNetScope(vnet))
			}
		}
	}
	return scopes
}

func (s *store) indexNet(r *row, o log.Object) {
	switch o := o.(type) {
	case *log.IP:
		addSet(s.byNet.ipsOn, o.NetworkUUID, r)
		s.use(o.NetworkUUID, o.IP)
	case *log.FabricVLAN:
		addSet(s.byNet.vlansOf, o.OwnerUUID, r)
		s.byNet.vlansOnVNet.add(o.VNetID, r, compareRows)
	default:
		s.eachNet(o, func(set sets[log.UUID], uuid log.UUID) { addSet(set, uuid, r) },
			func(vnet uint32) { s.byNet.routersOnVNet.add(vnet, r, compareRows) },
			func(tag string) { s.byNet.aggrsOnTag.add(tag, r, compareRows) })
	}
}

func (s *store) unindexNet(r *row, o log.Object) {
	switch o := o.(type) {
	case *log.IP:
		if s.byNet.ipsOn[o.NetworkUUID].remove(r) {
			if s.byNet.ipsOn[o.NetworkUUID].len() == 0 {
				delete(s.byNet.ipsOn, o.NetworkUUID)
			}
			s.release(o.NetworkUUID, o.IP)
		}
	case *log.FabricVLAN:
		s.byNet.vlansOf.remove(o.OwnerUUID, r)
		s.byNet.vlansOnVNet.remove(o.VNetID, r)
	default:
		s.eachNet(o, func(set sets[log.UUID], uuid log.UUID) { set.remove(uuid, r) },
			func(vnet uint32) { s.byNet.routersOnVNet.remove(vnet, r) },
			func(tag string) { s.byNet.aggrsOnTag.remove(tag, r) })
	}
}

// eachNet shows where a pool, an aggregation or a router stands in the indexes.
func (s *store) eachNet(o log.Object, uuid func(sets[log.UUID], log.UUID), vnet func(uint32), tag func(string)) {
	switch o := o.(type) {
	case *log.NetworkPool:
		for _, network := range o.Networks {
			uuid(s.byNet.poolsWith, network)
		}
	case *log.Aggregation:
		uuid(s.byNet.aggrsOn, o.BelongsToUUID)
		for _, name := range o.NICTagsProvided {
			tag(name)
		}
	case *log.Router:
		for _, network := range o.Networks {
			uuid(s.byNet.routersWith, network)
		}
		for _, v := range o.VNets {
			vnet(v)
		}
		uuid(s.byNet.routersOnCN, o.CNUUID)
		uuid(s.byNet.routersOfVM, o.VMUUID)
	}
}

// ipRow returns the row of the IP object of a network's address, or nil.
func (s *store) ipRow(network log.UUID, ip netip.Addr) *row {
	if s.table(log.KindIP) == nil {
		return nil // as on agents
	}
	return s.row(log.KindIP, keyOfIP(network, ip))
}

// PoolTags returns the NIC tags of a pool's networks, sorted, each once (NAPI's
// nic_tags_present).
func (s *State) PoolTags(p *log.NetworkPool) []string {
	var tags []string
	for _, uuid := range p.Networks {
		if n := s.network(uuid); n != nil {
			tags = append(tags, n.NICTag)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}
