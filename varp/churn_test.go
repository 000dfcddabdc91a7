package varp

import (
	"net/netip"

	"rutter/log"
)

// dice draws a number from 0 to n-1.
type dice func(n int) int

// churn makes one random change of the cloud: NICs are created, moved to other nodes
// and networks, get and lose addresses, and are deleted; underlay NICs get other
// addresses, are deleted and return.
func (c *cloud) churn(roll dice, macs int) {
	if roll(12) == 0 {
		c.churnUnderlay(roll)
		return
	}
	mac := testMAC(roll(macs))
	was := c.nic(mac)
	if was == nil {
		net := c.nets[roll(len(c.nets))]
		c.put(&log.NIC{MAC: mac, BelongsToType: "zone", CNUUID: c.nodes[roll(len(c.nodes))], NetworkUUID: net.UUID, IP: c.freeIP(roll, net)})
		return
	}
	n := log.Clone(was).(*log.NIC)
	switch roll(8) {
	case 0, 1: // a move
		n.CNUUID = c.nodes[roll(len(c.nodes))]
	case 2: // another address
		n.IP = c.freeIP(roll, c.truth.nets[n.NetworkUUID])
	case 3:
		n.IP = netip.Addr{}
	case 4: // another network, and with it an address there
		net := c.nets[roll(len(c.nets))]
		n.NetworkUUID, n.IP = net.UUID, c.freeIP(roll, net)
	case 5: // nothing that a client could have cached
		n.State = []string{"running", "stopped"}[roll(2)]
	case 6, 7:
		c.delete(mac)
		return
	}
	c.put(n)
}

// freeIP draws an address of few, so that they are used again soon; none if the
// drawn one is taken.
func (c *cloud) freeIP(roll dice, net *log.Network) netip.Addr {
	b := net.Subnet.Addr().As4()
	b[3] = byte(1 + roll(12))
	ip := netip.AddrFrom4(b)
	if _, taken := c.truth.ips[vl3Key{net.VNetID, ip}]; taken {
		return netip.Addr{}
	}
	return ip
}

// churnUnderlay changes, deletes and makes again underlay NICs.
func (c *cloud) churnUnderlay(roll dice) {
	node := c.quiet + roll(len(c.nodes)-c.quiet)
	mac := testMAC(0xf000 + node)
	switch {
	case c.nic(mac) == nil:
		c.put(c.underlayNIC(node, node))
	case roll(3) == 0:
		c.delete(mac)
	default:
		nic := c.underlayNIC(node, node+len(c.nodes)*(1+roll(3)))
		nic.VXLANPort, nic.UnderlayMTU = []uint32{0, 4790}[roll(2)], []uint32{0, 1500}[roll(2)]
		c.put(nic)
	}
}
