package projections

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	"rutter/log"
)

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
