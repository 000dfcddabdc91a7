package desired

import (
	"net/netip"
	"slices"

	"rutter/log"
)

// A node of a vnet that is not on demand is known by the forwarding entries of its NICs. Of
// one that is on demand there are none ahead, so that the nodes are listed themselves.

// peers returns the peers of a vnet, sorted, at a cost of the CNs that have NICs on it.
func (p *planner) peers(vnet uint32) []Peer {
	cns := p.s.CNs(log.VNetScope(vnet))
	all := make([]Peer, 0, len(cns))
	for _, cn := range cns {
		if cn == p.cn {
			continue
		}
		if to := p.reach(cn); to.Addr.IsValid() {
			all = append(all, Peer{vnet, to.Addr})
		}
	}
	slices.SortFunc(all, ComparePeer)
	return slices.Compact(all)
}

// join is that a CN has, or had, a NIC on a network.
type join struct{ network, cn log.UUID }

// noteJoin notes that a NIC of another CN came, changed or went.
func (t *Touches) noteJoin(nic *log.NIC) {
	if len(t.limit.OnDemand) > 0 && !nic.CNUUID.IsZero() {
		t.joins[join{nic.NetworkUUID, nic.CNUUID}] = struct{}{}
	}
}

// What may have become of a CN as a peer of a vnet; one may be several.
const (
	peerJoined  = 1 << iota // it came to the vnet, or left it
	peerMoved               // its underlay address is another one
	peerUnknown             // one of these, on a network that is gone
)

// moved returns what may have become of CNs, by vnet on demand.
func (t *Touches) moved(p *planner) map[uint32]map[log.UUID]uint8 {
	moved := map[uint32]map[log.UUID]uint8{}
	for vnet := range p.demand {
		moved[vnet] = map[log.UUID]uint8{}
		for cn := range t.cns {
			moved[vnet][cn] = peerMoved
		}
	}
	for j := range t.joins {
		net := p.s.Network(j.network)
		if net != nil {
			if cns := moved[net.VNetID]; net.Fabric && cns != nil {
				cns[j.cn] |= peerJoined
			}
			continue
		}
		for _, cns := range moved {
			cns[j.cn] |= peerUnknown
		}
	}
	return moved
}

// followPeers adds what became of the peers of vnets on demand, and notes it as given. A CN
// that comes costs a lookup. Only when one goes, or is reached elsewhere, are the others of
// the vnet asked: two CNs may be reached at one address.
func (g *given) followPeers(p *planner, moved map[uint32]map[log.UUID]uint8, out *LinksDelta) {
	for vnet, cns := range moved {
		anew := false
		for cn, what := range cns {
			on := p.s.Interested(cn, []log.Scope{log.VNetScope(vnet)})
			switch {
			case what&peerUnknown != 0, on && what&peerMoved != 0, !on && what&peerJoined != 0:
				anew = true
			case on && cn != p.cn:
				if to := p.reach(cn); to.Addr.IsValid() {
					g.addPeer(Peer{vnet, to.Addr}, out)
				}
			}
		}
		if anew {
			g.peersAnew(p, vnet, out)
		}
	}
	slices.SortFunc(out.Peers, ComparePeer)
	slices.SortFunc(out.NoPeers, ComparePeer)
}

func (g *given) peersAnew(p *planner, vnet uint32, out *LinksDelta) {
	now := p.peers(vnet)
	for addr := range g.peers[vnet] {
		r := Peer{vnet, addr}
		if _, is := slices.BinarySearchFunc(now, r, ComparePeer); !is {
			out.NoPeers = append(out.NoPeers, r)
			delete(g.peers[vnet], addr)
		}
	}
	for _, r := range now {
		g.addPeer(r, out)
	}
}

func (g *given) addPeer(r Peer, out *LinksDelta) {
	if !g.peers[r.VNet][r.Addr] {
		g.keepPeer(r)
		out.Peers = append(out.Peers, r)
	}
}

// keepPeer notes a peer as given.
func (g *given) keepPeer(r Peer) {
	if g.peers[r.VNet] == nil {
		g.peers[r.VNet] = map[netip.Addr]bool{}
	}
	g.peers[r.VNet][r.Addr] = true
}
