package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"rutter/agent/filter"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// allPeers is how often a peer is counted that does not depend on single entries.
const allPeers = 1 << 30

// unsupported says why links run without rules.
type unsupported struct{ err error }

// Unsupported returns why links run without the rules of port security, as of the last pass:
// the kernel cannot hold them, and they are not required. nil: they do not. Any goroutine
// may call it.
func (m *Manager) Unsupported() error {
	if u := m.unsupported.Load(); u != nil {
		return u.err
	}
	return nil
}

// noteFilter notes whether the kernel can hold rules.
func (m *Manager) noteFilter(have *plan.Snapshot) {
	m.rules = nil
	if have.RulesErr == nil {
		m.rules = &have.Rules
	}
	if m.cfg.Secure.On && !m.cfg.Secure.Required && errors.Is(have.RulesErr, filter.ErrUnsupported) {
		m.unsupported.Store(&unsupported{have.RulesErr})
	} else {
		m.unsupported.Store(nil)
	}
}

// Attachment is where a NIC is attached on this node, with port security.
type Attachment struct {
	Port   uint32 // ifindex of the node's end of its pair
	Bridge uint32 // ifindex of the bridge that Port is a port of
	Name   string // the bridge's
	VNet   uint32
	VLAN   uint16 // 0: untagged
}

// noteAttached adds to others where fabrics are attached, as a dump shows it, and passes on
// all of them if they changed. others must have none of the fabrics.
func (m *Manager) noteAttached(others map[log.MAC]Attachment, fabrics []desired.Fabric, have *plan.Snapshot) {
	if !m.cfg.Secure.On || m.cfg.Attached == nil {
		return
	}
	byKey := have.ByKey()
	for i := range fabrics {
		f := &fabrics[i]
		n, numbered := m.numbers.Lookup(f.MAC)
		bridge := byKey[plan.LinkKey{Name: plan.BridgeName(f.VNet, f.VLAN)}]
		port := byKey[plan.LinkKey{Name: plan.PortName(n)}]
		if numbered && bridge != nil && port != nil && bridge.Ours && port.Ours && port.MasterIndex == bridge.Index {
			others[f.MAC] = Attachment{uint32(port.Index), uint32(bridge.Index), bridge.NameNow(), f.VNet, f.VLAN}
		}
	}
	if m.attached == nil || !maps.Equal(m.attached, others) {
		m.attached = others
		m.cfg.Attached(others)
	}
}

// rulesListener is a Kernel that is notified of changes of its filter; *Netlink is one.
type rulesListener interface {
	// RulesStirred reports, once, whether the filter may have changed.
	RulesStirred() bool
	ReadRules(ctx context.Context) (filter.State, error)
}

var _ rulesListener = (*Netlink)(nil)

// healRules finds what other programs change of the rules, which a pass corrects. ours: steps
// about rules were executed just now.
func (m *Manager) healRules(ctx context.Context, ours bool) {
	listener, ok := m.cfg.Kernel.(rulesListener)
	if !ok || !m.cfg.Secure.On || m.rules == nil {
		return
	}
	stirred := listener.RulesStirred()
	if !stirred && !ours {
		return
	}
	state, err := listener.ReadRules(ctx)
	switch {
	case ours && err == nil:
		m.rules = &state
	case err != nil || !reflect.DeepEqual(state, *m.rules):
		m.doubt = true
	}
}

// reportBridges reports the bridges that wait for the device below.
func (m *Manager) reportBridges(result *Result, steps []plan.Step, seen map[plan.Object]bool) {
	for i := range steps {
		s := &steps[i]
		device := plan.Object{Kind: plan.ObjectVXLAN, VNet: s.Object.VNet}
		if plan.KindOfName(s.Link) == plan.KindVLAN {
			device = plan.Object{Kind: plan.ObjectVLAN, VNet: s.Object.VNet, VLAN: s.Object.VLAN}
		}
		if _, waits := m.backoff[s.Object]; s.Object.Kind == plan.ObjectBridge && s.Change&plan.ChangeMaster != 0 && !waits && seen[device] {
			result.Failures = append(result.Failures, Failure{Object: s.Object, Err: fmt.Errorf("%w: %s", plan.ErrNotMade, s.Link)})
		}
	}
}

// peers counts the forwarding entries to each node of each vnet, or has allPeers for a node
// of a vnet on demand. It is nil without port security.
type peers map[filter.Peer]int

// countPeers returns the peers of what is wanted.
func countPeers(want *desired.Links) peers {
	p := peers{}
	p.add(want, func(uint32) bool { return true })
	return p
}

// add adds the peers of the vnets that counts names.
func (p peers) add(links *desired.Links, counts func(vnet uint32) bool) {
	for i := range links.FDB {
		if e := &links.FDB[i]; counts(e.VNet) {
			p[filter.Peer{VTEP: e.Dst, VNI: e.VNet}]++
		}
	}
	for _, r := range links.Peers {
		if counts(r.VNet) {
			p[filter.Peer{VTEP: r.Addr, VNI: r.VNet}] = allPeers
		}
	}
}

// follow counts anew the peers of the vnets that come and go with a part.
func (p peers) follow(part *desired.Part) {
	if p == nil || len(part.New)+len(part.NoVXLANs) == 0 {
		return
	}
	turns := func(vnet uint32) bool { return slices.Contains(part.New, vnet) || slices.Contains(part.NoVXLANs, vnet) }
	maps.DeleteFunc(p, func(r filter.Peer, _ int) bool { return turns(r.VNI) })
	p.add(&part.Links, turns)
}

// peerSteps are what must be done before and after the entries of a delta, so that a peer's
// packets are taken as long as there are entries to it. The caller holds the lock of demand.
func (m *Manager) peerSteps(d *desired.LinksDelta) (first, last []plan.Step) {
	if !m.cfg.Secure.On || m.peers == nil {
		return nil, nil
	}
	dsts := map[plan.Object]netip.Addr{} // of entries that come twice
	var before, after []filter.Peer
	turn := func(list []desired.FDB, set bool) {
		for i := range list {
			e := &list[i]
			if _, ok := findVXLAN(m.last.VXLANs, e.VNet); !ok || m.left.unmade[plan.Object{Kind: plan.ObjectVXLAN, VNet: e.VNet}] {
				continue
			}
			o := plan.Object{Kind: plan.ObjectFDB, VNet: e.VNet, MAC: e.MAC}
			to := filter.Peer{VTEP: e.Dst, VNI: e.VNet}
			if _, on := m.demand.vnetOf(o); on {
				continue // the delta lists its peers
			}
			was, seen := dsts[o]
			if !seen {
				was = m.held(o).Dst
			}
			if !set {
				to.VTEP = netip.Addr{}
			}
			if dsts[o] = to.VTEP; was == to.VTEP {
				continue
			}
			if set {
				if m.peers[to]++; m.peers[to] == 1 {
					before = append(before, to)
				}
			}
			if from := (filter.Peer{VTEP: was, VNI: e.VNet}); was.IsValid() {
				if m.peers[from]--; m.peers[from] <= 0 {
					after = append(after, from)
				}
			}
		}
	}
	turn(d.FDB, true)
	turn(d.NoFDB, false)
	for _, r := range d.Peers {
		if to := (filter.Peer{VTEP: r.Addr, VNI: r.VNet}); m.peers[to] == 0 {
			m.peers[to] = allPeers
			before = append(before, to)
		}
	}
	for _, r := range d.NoPeers {
		from := filter.Peer{VTEP: r.Addr, VNI: r.VNet}
		m.peers[from] = 0
		after = append(after, from)
	}
	for _, p := range before {
		first = append(first, plan.PeerStep(p, true))
		first = append(first, m.floodStep(p, plan.OpAddFlood)...)
	}
	for _, p := range after {
		if m.peers[p] > 0 { // another entry to it came
			continue
		}
		delete(m.peers, p)
		last = append(last, m.floodStep(p, plan.OpDelFlood)...)
		last = append(last, plan.PeerStep(p, false))
	}
	return first, last
}

// floodStep is about what a vnet sends to all its nodes, if one of its networks asks for
// that. A vnet that may have too many nodes is left to a pass.
func (m *Manager) floodStep(p filter.Peer, op plan.Op) []plan.Step {
	i, ok := findVXLAN(m.last.VXLANs, p.VNI)
	if !ok || !m.last.VXLANs[i].Flood {
		return nil
	}
	nodes := 0
	for other := range m.peers {
		if other.VNI == p.VNI {
			nodes++
		}
	}
	if nodes >= plan.MaxFlood {
		m.doubt = true
		return nil
	}
	return []plan.Step{{Op: op, Object: plan.Object{Kind: plan.ObjectFlood, VNet: p.VNI, IP: p.VTEP}, Link: plan.VXLANName(p.VNI), Addr: p.VTEP}}
}

// wasGuarded is wasWanted for what port security adds; ok is false for other objects.
func (m *Manager) wasGuarded(o plan.Object, want *desired.Links) (is, ok bool) {
	switch o.Kind {
	case plan.ObjectFabric: // its port has the MTU of the device below
		i, had := findFabric(m.last.Fabrics, o.MAC)
		j, has := findFabric(want.Fabrics, o.MAC)
		if !m.cfg.Secure.On || !had || !has {
			return false, false
		}
		is, _ = m.wasGuarded(plan.Object{Kind: plan.ObjectBridge, VNet: want.Fabrics[j].VNet, VLAN: want.Fabrics[j].VLAN}, want)
		return is && sameFabric(m.last.Fabrics[i], want.Fabrics[j]), true
	case plan.ObjectBridge:
		if o.Name != "" { // a bridge of no segment that is wanted now
			return !slices.ContainsFunc(plan.SegmentsOf(&m.last), func(s desired.Segment) bool { return plan.BridgeName(s.VNet, s.VLAN) == o.Name }), true
		}
		find := func(w *desired.Links) (desired.Segment, bool) {
			list := plan.SegmentsOf(w)
			i, found := slices.BinarySearchFunc(list, desired.Segment{VNet: o.VNet, VLAN: o.VLAN}, desired.CompareSegment)
			if !found {
				return desired.Segment{}, false
			}
			return list[i], true
		}
		was, had := find(&m.last)
		now, has := find(want)
		return had == has && was == now, true
	case plan.ObjectPeer:
		return m.peers[filter.Peer{VTEP: o.IP, VNI: o.VNet}] > 0 == hasPeer(want, o), true
	case plan.ObjectFlood:
		i, had := findVXLAN(m.last.VXLANs, o.VNet)
		j, has := findVXLAN(want.VXLANs, o.VNet)
		return had && has && m.last.VXLANs[i].Flood == want.VXLANs[j].Flood && m.peers[filter.Peer{VTEP: o.IP, VNI: o.VNet}] > 0 == hasPeer(want, o), true
	case plan.ObjectUnderlay:
		return len(m.last.VXLANs) > 0 && len(want.VXLANs) > 0 && m.last.VXLANs[0].Local == want.VXLANs[0].Local, true
	}
	return false, o.Kind == plan.ObjectRules
}

// hasPeer reports whether a desired state has a node on a vnet.
func hasPeer(w *desired.Links, o plan.Object) bool {
	return slices.ContainsFunc(w.FDB, func(e desired.FDB) bool { return e.VNet == o.VNet && e.Dst == o.IP }) ||
		slices.Contains(w.Peers, desired.Peer{VNet: o.VNet, Addr: o.IP})
}

// secured adds to what a part must read the node's ends of its NICs, and the bridges that
// these are on, with the devices below. It is called by find.
func (p *partRun) secured() {
	if !p.cfg.Secure.On {
		return
	}
	p.segments, p.beside = map[desired.Segment]bool{}, map[string]bool{}
	touch := func(vnet uint32, vlan uint16) {
		p.segments[desired.Segment{VNet: vnet, VLAN: vlan}] = true
		p.own[plan.BridgeName(vnet, vlan)] = true
	}
	for _, mac := range p.part.NICs {
		if n, ok := p.numbers.Lookup(mac); ok {
			p.own[plan.PortName(n)] = true
		}
		for _, list := range [][]desired.Fabric{p.part.Links.Fabrics, p.last.Fabrics} {
			if i, ok := findFabric(list, mac); ok {
				touch(list[i].VNet, list[i].VLAN)
			}
		}
	}
	for _, s := range p.part.Links.Segments {
		touch(s.VNet, s.VLAN)
	}
	for _, s := range p.part.NoSegments {
		touch(s.VNet, s.VLAN)
	}
	for _, vnet := range p.part.NoVXLANs {
		touch(vnet, 0)
	}
	for _, v := range p.part.NoVLANs {
		touch(v.VNet, v.ID)
	}
	for s := range p.segments {
		if p.wantsSegment(s) {
			if device := plan.ParentName(s.VNet, s.VLAN); !p.own[device] {
				p.beside[device] = true
			}
			if device := plan.VXLANName(s.VNet); !p.own[device] {
				p.beside[device] = true
			}
		} else {
			p.read.All = true // a bridge is deleted with what another program put on it
		}
	}
}

// floods reports whether the part changes whether a vnet sends to all its nodes. What it has
// of these entries was not read.
func (p *partRun) floods() bool {
	return slices.ContainsFunc(p.part.Links.VXLANs, func(v desired.VXLAN) bool {
		i, had := findVXLAN(p.last.VXLANs, v.VNet)
		return p.cfg.Secure.On && had && p.last.VXLANs[i].Flood != v.Flood
	})
}

// others reports whether a segment has a NIC that is not in the part.
func (p *partRun) others(s desired.Segment) bool {
	return slices.ContainsFunc(p.last.Fabrics, func(f desired.Fabric) bool {
		return f.VNet == s.VNet && f.VLAN == s.VLAN && !p.touched[f.MAC]
	})
}

// wantsSegment reports whether a segment has NICs after the part.
func (p *partRun) wantsSegment(s desired.Segment) bool {
	in := func(f desired.Fabric) bool { return f.VNet == s.VNet && f.VLAN == s.VLAN }
	return p.others(s) || slices.ContainsFunc(p.part.Links.Fabrics, in)
}

// wantedSegments are those of the part's, with what their networks ask for.
func (p *partRun) wantedSegments() []desired.Segment {
	var list []desired.Segment
	for s := range p.segments {
		if !p.wantsSegment(s) {
			continue
		}
		for _, known := range [][]desired.Segment{p.last.Segments, p.part.Links.Segments} {
			if i := slices.IndexFunc(known, func(k desired.Segment) bool { return k.VNet == s.VNet && k.VLAN == s.VLAN }); i >= 0 {
				s = known[i]
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, desired.CompareSegment)
	return list
}

// cut leaves of the rules those that the part is about.
func (p *partRun) cut(rules *filter.State) {
	turns := func(vnet uint32) bool {
		return slices.Contains(p.part.New, vnet) || slices.Contains(p.part.NoVXLANs, vnet)
	}
	rules.Ports = slices.DeleteFunc(slices.Clone(rules.Ports), func(port filter.Port) bool { return !p.own[port.Name] && !p.touched[port.MAC] })
	rules.Segments = slices.DeleteFunc(slices.Clone(rules.Segments), func(s filter.Segment) bool { return !p.own[s.Name] })
	rules.Peers = slices.DeleteFunc(slices.Clone(rules.Peers), func(peer filter.Peer) bool { return !turns(peer.VNI) })
}

// options are those of a plan of the part.
func (p *partRun) options() plan.Secure {
	secure := p.cfg.Secure
	secure.Others = slices.DeleteFunc(slices.Clone(p.last.VXLANs), func(v desired.VXLAN) bool { return slices.Contains(p.part.NoVXLANs, v.VNet) })
	return secure
}
