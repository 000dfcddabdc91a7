package serve

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Bounds of what is remembered of SVP's peers.
const (
	// svpPeerAge is how old what is known of an address may be: a node that comes
	// onto a vnet is answered within that time.
	svpPeerAge = time.Second
	// maxSVPPeers bounds the addresses that are remembered; strangers choose them.
	maxSVPPeers = 16384
)

// svpPeers takes SVP's peers for the compute nodes whose NICs have their
// addresses: those on the underlay, and those on the admin network.
type svpPeers struct {
	view func(fn func(*projections.State))
	now  func() time.Time

	mu    sync.RWMutex // protects known
	known map[netip.Addr]svpPeer
}

// svpPeer is what an address is taken for.
type svpPeer struct {
	at        time.Time
	node      bool
	vnets     map[uint32]struct{}
	underlays map[netip.Addr]struct{}
}

func newSVPPeers(view func(fn func(*projections.State))) *svpPeers {
	return &svpPeers{view: view, now: time.Now, known: make(map[netip.Addr]svpPeer)}
}

// Allow implements varp.Peers.
func (p *svpPeers) Allow(peer netip.Addr) bool { return p.of(peer).node }

// Sees implements varp.Peers.
func (p *svpPeers) Sees(peer netip.Addr, vnet uint32) bool {
	_, ok := p.of(peer).vnets[vnet]
	return ok
}

// Speaks implements varp.Peers.
func (p *svpPeers) Speaks(peer, underlay netip.Addr) bool {
	_, ok := p.of(peer).underlays[underlay.Unmap()]
	return ok
}

func (p *svpPeers) of(address netip.Addr) svpPeer {
	now := p.now()
	p.mu.RLock()
	found, ok := p.known[address]
	p.mu.RUnlock()
	if ok && now.Sub(found.at) < svpPeerAge {
		return found
	}
	found = svpPeer{at: now}
	p.view(func(state *projections.State) { found.look(state, address) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxSVPPeers {
		clear(p.known) // it is found again
	}
	p.known[address] = found
	return found
}

// look finds the nodes that have an address, and what they have a part in.
func (p *svpPeer) look(state *projections.State, address netip.Addr) {
	p.vnets, p.underlays = make(map[uint32]struct{}), make(map[netip.Addr]struct{})
	for rec := range state.List(log.KindNetwork) {
		network := rec.Object.(*log.Network)
		if network.Fabric || !network.Subnet.Contains(address) {
			continue
		}
		held, ok := state.NICAt(network.UUID, address)
		if !ok {
			continue
		}
		nic := held.Object.(*log.NIC)
		if nic.BelongsToType != "server" || !nic.Underlay && network.NICTag != "admin" {
			continue
		}
		p.node = true
		for _, scope := range state.Interest(nic.BelongsToUUID) {
			if scope.Type == log.ScopeVNet {
				p.vnets[scope.VNet] = struct{}{}
			}
		}
		for rec := range state.UnderlayNICs(nic.BelongsToUUID) {
			p.underlays[rec.Object.(*log.NIC).IP.Unmap()] = struct{}{}
		}
	}
}

// onLoopback reports whether only this machine reaches a listener.
func onLoopback(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
