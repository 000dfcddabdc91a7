package projections

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"rutter/log"
)

// This file has what objects say of themselves, without a state.

// Record is one object as the log left it. The object is shared, and
// must not be changed.
type Record struct {
	Object   log.Object
	Revision log.Revision
	Seq      log.Seq // of its last event
}

// ETag returns the object's entity tag.
func (r Record) ETag() string { return log.ETag(r.Revision, r.Seq) }

// keyOf turns an id into the key of its kind's table: the bytes of a MAC or a
// UUID, in whichever form it is written, or else the text itself.
func keyOf(kind log.Kind, id string) (string, error) {
	switch {
	case kind == log.KindNIC:
		mac, err := log.ParseMAC(id)
		return string(mac[:]), err
	case byUUID[kind]:
		uuid, err := log.ParseUUID(id)
		return string(uuid[:]), err
	case kind == log.KindIP:
		network, ip, err := ParseIPID(id)
		return keyOfIP(network, ip), err
	case kind == log.KindFabricVLAN:
		owner, vlan, err := parseVLANID(id)
		return keyOfVLAN(owner, vlan), err
	default:
		return id, nil
	}
}

// keyOfObject is keyOf of an object's id, without the way through text.
func keyOfObject(o log.Object) string {
	if uuid, ok := uuidOf(o); ok {
		return string(uuid[:])
	}
	switch o := o.(type) {
	case *log.NIC:
		return string(o.MAC[:])
	case *log.IP:
		return keyOfIP(o.NetworkUUID, o.IP)
	case *log.FabricVLAN:
		return keyOfVLAN(o.OwnerUUID, o.VLANID)
	default:
		return o.ID()
	}
}

// named reports whether id is the object's, in the form of log.Object.ID,
// without making that where it is long.
func named(o log.Object, id string) bool {
	if uuid, ok := uuidOf(o); ok {
		return uuid.Is(id)
	}
	return o.ID() == id
}

// Is reports whether an id, in any form that a client may write it, is o's.
func Is(o log.Object, id string) bool {
	key, err := keyOf(o.Kind(), id)
	return err == nil && key == keyOfObject(o)
}

// Check says whether the object is of the Go type of its kind, so that the
// indexes can rely on it: an unknown object of a known kind never fits.
func Check(o log.Object) error {
	if o == nil {
		return fmt.Errorf("there is no object: %w", log.ErrCorrupt)
	}
	if _, unknown := o.(*log.Unknown); unknown && o.Kind().Known() {
		return fmt.Errorf("%s %s: it was not decoded: %w", o.Kind(), o.ID(), log.ErrCorrupt)
	}
	return nil
}

// byUUID says which kinds have UUIDs as ids.
var byUUID = func() (is [256]bool) {
	for kind := range log.Kind(255) {
		if kind.Known() {
			_, is[kind] = uuidOf(log.NewObject(kind))
		}
	}
	return is
}()

// UUIDOf returns where an object has its id, if ids of its kind are UUIDs; else nil. It is
// log.UUIDField of the field that has the id, and takes no memory.
func UUIDOf(o log.Object) *log.UUID {
	uuid, _ := uuidOf(o)
	return uuid
}

// uuidOf returns the id of an object of a kind whose id is a UUID, without the way
// through text; else ok is false. Each lookup calls it, so that the kinds of which there
// are many have a case; others are found by what their kind declares.
func uuidOf(o any) (uuid *log.UUID, ok bool) {
	switch o := o.(type) {
	case *log.Network:
		return &o.UUID, true
	case *log.Server:
		return &o.UUID, true
	case *log.VM:
		return &o.UUID, true
	case *log.VMM:
		return &o.UUID, true
	case *log.NetworkPool:
		return &o.UUID, true
	case *log.Router:
		return &o.UUID, true
	case *log.Migration:
		return &o.UUID, true
	case *log.Task:
		return &o.UUID, true
	case *log.Token:
		return &o.UUID, true
	case *log.Ticket:
		return &o.UUID, true
	case *log.NIC, *log.NICTag, *log.IP, *log.FabricVLAN:
		return nil, false
	case log.Object:
		if d := o.Kind().Describe(); d.IDForm == log.IDUUID {
			uuid = log.UUIDField(o, d.IDField)
		}
	}
	return uuid, uuid != nil
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

// CNOf returns the CN that a NIC is on.
func CNOf(nic *log.NIC) log.UUID {
	if nic.CNUUID.IsZero() && nic.BelongsToType == "server" {
		return nic.BelongsToUUID
	}
	return nic.CNUUID
}

// IsUnderlay reports whether the NIC may carry its CN's VXLAN packets.
func IsUnderlay(nic *log.NIC) bool { return nic.Underlay && nic.BelongsToType == "server" }

// onCN is the scope of what is on a CN; of none if cn is not set.
func onCN(cn log.UUID) (scope log.Scope) {
	if !cn.IsZero() {
		scope = log.CNScope(cn)
	}
	return scope
}

// scopesOfRouter are its CN and its vnets.
func scopesOfRouter(o log.Object) (scopes []log.Scope) {
	r := o.(*log.Router)
	if !r.CNUUID.IsZero() {
		scopes = append(scopes, log.CNScope(r.CNUUID))
	}
	for i, vnet := range r.VNets {
		if vnet != publicSubnets && !slices.Contains(r.VNets[:i], vnet) {
			scopes = append(scopes, log.VNetScope(vnet))
		}
	}
	return scopes
}

// publicSubnets is the group of the networks whose subnets are public. No
// fabric has vnet 0, so the number is free.
const publicSubnets = 0

// subnetGroup returns the group of networks whose subnets may not overlap with
// n's: its vnet, or all public ones; ok is false for private subnets outside
// fabrics, which may (spec/napi.md section 3.4).
func subnetGroup(n *log.Network) (group uint32, ok bool) {
	if n.Fabric {
		return n.VNetID, true
	}
	return publicSubnets, !IsPrivate(n.Subnet)
}

// IsPrivate reports whether all of a subnet is of RFC 1918 or RFC 4193 (ULA).
func IsPrivate(subnet netip.Prefix) bool {
	return subnet.Addr().IsPrivate() && LastAddr(subnet).IsPrivate()
}

// LastAddr returns the highest address of a subnet.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// ParseRouteDst reads a route's destination: an address, or a subnet without host bits.
func ParseRouteDst(text string) (netip.Prefix, bool) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	return p, err == nil && p.Masked() == p && !p.Addr().Is4In6()
}

// line is what tickets wait for.
type line struct {
	cn        log.UUID
	scope, id string
}

func lineOf(t *log.Ticket) line { return line{t.ServerUUID, t.Scope, t.OfID} }

// sameButCN is sameIndex except for the index by CN.
func sameButCN(a, b *log.NIC) bool {
	return a.NetworkUUID == b.NetworkUUID && a.IP == b.IP && a.OwnerUUID == b.OwnerUUID &&
		a.BelongsToUUID == b.BelongsToUUID && a.BelongsToType == b.BelongsToType && a.Underlay == b.Underlay &&
		a.NICTag == b.NICTag && slices.Equal(a.NICTagsProvided, b.NICTagsProvided)
}

// tagsOf returns the NIC tags that a NIC names itself, not through its network.
func tagsOf(nic *log.NIC) []string {
	if nic.NICTag == "" {
		return nic.NICTagsProvided
	}
	return append([]string{nic.NICTag}, nic.NICTagsProvided...)
}
