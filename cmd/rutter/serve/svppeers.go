package serve

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Bounds of the cache of SVP's peers.
const (
	// svpPeerAge bounds the age of a cached address. A node that comes onto a vnet is
	// answered within that time.
	svpPeerAge = time.Second
	// maxSVPPeers bounds the cached addresses, because any client adds one.
	maxSVPPeers = 16384
)

// svpPeers identifies SVP's peers by their addresses: a peer is the compute node that
// has a NIC with this address on the underlay or the admin network.
type svpPeers struct {
	view func(fn func(*projections.State))
	now  func() time.Time

	mu    sync.RWMutex // protects known
	known map[netip.Addr]svpPeer
}

// svpPeer is what is known of an address.
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
	p.view(func(state *projections.State) { found.refresh(state, address) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxSVPPeers {
		clear(p.known) // entries are found again
	}
	p.known[address] = found
	return found
}

// refresh finds the nodes that have an address, and their vnets.
func (p *svpPeer) refresh(state *projections.State, address netip.Addr) {
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
