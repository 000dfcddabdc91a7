package projections

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"rutter/log"
)

// macPrefix is the OUI of drawn MACs: Joyent's, as NAPI draws them.
var macPrefix = [3]byte{0x90, 0xb8, 0xd0}

// draw gives bytes that look random and are the same on every server: a hash of
// what is drawn, the seed that the leader stamped, the change's id, the place
// of the operation, and the number of the try.
func (d *draft) draw(what string, seed uint64, try uint64) [sha256.Size]byte {
	b := make([]byte, 0, 64)
	b = append(b, "rutter "...)
	b = append(b, what...)
	b = binary.BigEndian.AppendUint64(b, seed)
	b = append(b, d.change.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(d.at))
	b = binary.BigEndian.AppendUint64(b, try)
	return sha256.Sum256(b)
}

// fillID gives a new object its id where the client chose none: a UUID derived
// from the change's id and the operation's place, so that a client can know it
// beforehand; or a drawn MAC. A tag is named by its client.
func (d *draft) fillID(o log.Object) {
	switch o := o.(type) {
	case *log.NIC:
		if o.MAC.IsZero() {
			o.MAC = d.drawMAC()
		}
	case *log.NICTag:
		d.fillUUID(&o.UUID)
	case *log.Network:
		d.fillUUID(&o.UUID)
	case *log.Server:
		d.fillUUID(&o.UUID)
	case *log.VM:
		d.fillUUID(&o.UUID)
	case *log.VMM:
		d.fillUUID(&o.UUID)
	case *log.Migration:
		d.fillUUID(&o.UUID)
	case *log.NetworkPool:
		d.fillUUID(&o.UUID)
	case *log.Router:
		d.fillUUID(&o.UUID)
	case *log.Task:
		d.fillUUID(&o.UUID)
	case *log.Ticket:
		d.fillUUID(&o.UUID)
	}
}

// fillUUID derives a UUID of version 8 (RFC 9562, section 5.8).
func (d *draft) fillUUID(u *log.UUID) {
	if !u.IsZero() {
		return
	}
	sum := d.draw("uuid", 0, 0)
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
}

func (d *draft) drawMAC() log.MAC {
	for try := range uint64(maxDraws) {
		sum := d.draw("mac", d.change.Seed, try)
		mac := log.MAC{macPrefix[0], macPrefix[1], macPrefix[2], sum[0], sum[1], sum[2]}
		if _, taken := d.find(log.KindNIC, string(mac[:])); !taken {
			return mac
		}
	}
	d.bad("mac", fmt.Sprintf("no free MAC was found in %d tries", maxDraws), "choose one")
	return log.MAC{}
}

// vnetFor returns the vnet of a new fabric network that names none: that of its
// owner's other fabrics, or else a free one, drawn.
func (d *draft) vnetFor(owner log.UUID) uint32 {
	if vnet, ok := d.vnetOf(owner); ok {
		return vnet
	}
	for try := range uint64(maxDraws) {
		sum := d.draw("vnet", d.change.Seed, try)
		vnet := uint32(sum[0])<<16 | uint32(sum[1])<<8 | uint32(sum[2])
		if d.vnetIsFree(vnet) {
			return vnet
		}
	}
	d.bad("vnet_id", fmt.Sprintf("no free vnet was found in %d tries", maxDraws), "choose one")
	return 0
}

// fabricOn returns a network on a vnet, or nil.
func (d *draft) fabricOn(vnet uint32) *log.Network {
	for o := range d.rows(func(s *store) *sorted[*row] { return s.subnets[vnet] }) {
		return o.(*log.Network)
	}
	return nil
}

// allocate returns the lowest free address of the network's provision range:
// one that no NIC has, and that is neither gateway nor resolver. It is not
// valid when there is none. The cost is O(log n) in the network's NICs, and
// O(m) in the addresses of it that the same change has touched.
func (d *draft) allocate(n *log.Network) netip.Addr {
	ip := d.lowest(n, n.ProvisionStart, func(ip netip.Addr) netip.Addr {
		return d.top.used[n.UUID].free(d.base.used[n.UUID].free(ip))
	})
	// An address that the change itself gave back may be lower still.
	for back := range d.freed[n.UUID].from(n.ProvisionStart) {
		if ip.IsValid() && !back.Less(ip) || n.ProvisionEnd.Less(back) {
			break
		}
		if d.holder(n.UUID, back) == nil && !reserved(n, back) && d.ipObject(n.UUID, back) == nil {
			return back
		}
	}
	return ip
}

// lowest steps from one address that may be free to the next, until nothing
// moves it on.
func (d *draft) lowest(n *log.Network, ip netip.Addr, next func(netip.Addr) netip.Addr) netip.Addr {
	for ip.IsValid() && !n.ProvisionEnd.Less(ip) {
		free := next(ip)
		if free == ip && !reserved(n, ip) {
			return ip
		}
		if free == ip {
			free = ip.Next()
		}
		ip = free
	}
	return netip.Addr{}
}

// reserved reports whether an address is kept from allocation. A NIC that asks
// for it by name gets it: a router's, or a resolver's own.
func reserved(n *log.Network, ip netip.Addr) bool {
	return ip == n.Gateway || slices.Contains(n.Resolvers, ip)
}
