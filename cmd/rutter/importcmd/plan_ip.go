package importcmd

import (
	"net/netip"
	"slices"

	"rutter/log"
)

// allOfIP are the fields of an address that can be set.
var allOfIP = []string{"belongs_to_type", "belongs_to_uuid", "owner_uuid", "reserved"}

// opOfIP returns the operation that makes an address equal to the source's. What
// follows from NICs, networks and routers needs none.
func (p *plan) opOfIP(r record) (log.Op, bool) {
	o := r.object.(*log.IP)
	id := o.ID()
	op := log.Op{Action: log.Update, Kind: log.KindIP, ID: id, Object: o, Set: allOfIP, Options: optionsOf(log.KindIP)}
	have, there := p.state.Get(log.KindIP, id)
	n := p.state.Network(o.NetworkUUID)
	switch {
	case n == nil:
		return op, true // the refusal will say why
	case p.routers[id]:
		return op, false
	}
	if _, held := p.state.NICAt(o.NetworkUUID, o.IP); held {
		// The NIC determines the owner. The address itself has only the reservation.
		op.Set = []string{"reserved"}
		was := there && have.Object.(*log.IP).Reserved
		return op, was != o.Reserved && !p.clearsKept(n, o)
	}
	free := !o.Reserved && o.BelongsToType == "" && o.BelongsToUUID.IsZero() && o.OwnerUUID.IsZero()
	switch {
	case there:
		return op, !log.Equal(have.Object, o) && !p.clearsKept(n, o)
	case free:
		return op, false
	case o.Reserved && kept(n, o.IP) && (o.BelongsToUUID.IsZero() || o.BelongsToType == "other" && o.BelongsToUUID == o.OwnerUUID):
		return op, false // reserved for the administrator, as such addresses always are
	}
	return op, true
}

// clearsKept: an address that the network keeps for itself stays reserved.
func (p *plan) clearsKept(n *log.Network, o *log.IP) bool { return !o.Reserved && kept(n, o.IP) }

// kept reports whether a network keeps an address for itself, without an object
// of it: its gateway, its resolvers and its first and last.
func kept(n *log.Network, ip netip.Addr) bool {
	return ip == n.Gateway || slices.Contains(n.Resolvers, ip) || ip == n.Subnet.Addr() || ip.Is4() && !n.Subnet.Contains(ip.Next())
}
