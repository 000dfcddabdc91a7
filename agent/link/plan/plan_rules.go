package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"rutter/agent/filter"
	"rutter/projections/desired"
)

// guarded is what has rules in the filter.
type guarded struct {
	segments []guardedLink
	ports    []guardedPort
}

// guardedLink is a bridge, or the node's end of a pair. state.have is nil if a step makes it.
type guardedLink struct {
	object Object
	name   string
	as     string // the name in the kernel, if it is another one
	state  *linkState
}

type guardedPort struct {
	guardedLink
	fabric *desired.Fabric
}

// filter plans the rules, and what is put up when they are there.
func (p *planner) filter() {
	if !p.secure.On {
		p.unfilter()
		return
	}
	err := p.have.RulesErr
	switch {
	case err == nil:
		p.filterPeers()
		p.filterUnderlay()
	case !errors.Is(err, filter.ErrUnsupported):
		if p.secure.Required {
			p.block(Object{Kind: ObjectRules}, "link: what the filter holds is unknown, so no further link is put up: %w", err)
			return
		}
		p.block(Object{Kind: ObjectRules}, "link: what the filter holds is unknown, and links are put up without rules, which are not required (--require-port-security=false): %w", err)
	}
	rules := newHeld(&p.have.Rules)
	for i := range p.guarded.segments {
		p.segmentRules(&p.guarded.segments[i], rules)
	}
	for i := range p.guarded.ports {
		p.portRules(&p.guarded.ports[i], rules)
	}
	rules.stale(p)
}

// unfilter plans that there are no rules: port security was switched off.
func (p *planner) unfilter() {
	rules := &p.have.Rules
	if len(rules.Underlay.Ports)+len(rules.Underlay.Interfaces) > 0 {
		p.peers = append(p.peers, Step{Op: OpSetRules, Object: Object{Kind: ObjectUnderlay}, Rule: &filter.Change{SetUnderlay: &filter.Underlay{}}})
	}
	for _, peer := range rules.Peers {
		p.delPeers = append(p.delPeers, PeerStep(peer, false))
	}
	held := newHeld(rules)
	held.gone(p, func(uint32) bool { return false })
}

// guard plans the rules of one link, and that it is up with them and down without.
func (p *planner) guard(g *guardedLink, is bool, rule *filter.Change) {
	step := Step{Op: OpSetRules, Object: g.object, Link: g.name, Rule: rule}
	spec := &Link{Name: g.name, Up: true}
	up := Step{Op: OpSetLink, Object: g.object, Link: g.name, Spec: spec, Change: ChangeUp}
	have := g.state.have
	if err := p.have.RulesErr; err != nil && p.secure.Required {
		p.block(g.object, "link: not put up, because rules are required (--require-port-security): %w", err)
		if have != nil && have.Up {
			up.Change = ChangeDown
			p.ups = append(p.ups, up)
		}
		return
	} else if err == nil && !is {
		if p.secure.Required {
			step.Change = ChangeDown
		}
		p.rules = append(p.rules, step)
	}
	if have == nil || !have.Up {
		p.ups = append(p.ups, up)
	}
}

func (p *planner) segmentRules(g *guardedLink, rules *heldRules) {
	want := filter.Segment{Name: g.name}
	is := false
	if have := g.state.have; have != nil {
		want.Index, want.Name = uint32(have.Index), have.NameNow()
		is = rules.takeSegment(want)
	}
	p.guard(g, is, &filter.Change{SetSegment: &want})
}

func (p *planner) portRules(g *guardedPort, rules *heldRules) {
	want := PortRules(g.fabric, cmp.Or(g.as, g.name))
	is := false
	if have := g.state.have; have != nil {
		want.Index, want.Name = uint32(have.Index), have.NameNow()
		is = rules.takePort(want)
	}
	p.guard(&g.guardedLink, is, &filter.Change{SetPort: &want})
}

// PortRules are those of a NIC, at the node's end of its pair.
func PortRules(w *desired.Fabric, name string) filter.Port {
	port := filter.Port{
		Name: name, MAC: w.MAC, AnyMAC: w.Security.AnyMAC, AnyIP: w.Security.AnyIP,
		DHCPServer: w.Security.DHCPServer, AnyTraffic: w.Security.AnyTraffic,
	}
	for _, a := range w.Addresses {
		port.Addresses = append(port.Addresses, a.Addr())
	}
	port.Addresses = append(port.Addresses, w.Allowed...)
	slices.SortFunc(port.Addresses, netip.Addr.Compare)
	port.Addresses = slices.Compact(port.Addresses)
	return port
}

// samePort compares what rules say.
func samePort(a, b filter.Port) bool {
	return a.Index == b.Index && a.Name == b.Name && a.MAC == b.MAC && slices.Equal(a.Addresses, b.Addresses) &&
		a.AnyMAC == b.AnyMAC && a.AnyIP == b.AnyIP && a.DHCPServer == b.DHCPServer && a.AnyTraffic == b.AnyTraffic
}

// heldRules are those in the filter that no wanted link has taken yet.
type heldRules struct {
	ports    map[uint32]filter.Port
	segments map[uint32]filter.Segment
}

func newHeld(state *filter.State) *heldRules {
	h := &heldRules{ports: make(map[uint32]filter.Port, len(state.Ports)), segments: map[uint32]filter.Segment{}}
	for _, port := range state.Ports {
		h.ports[port.Index] = port
	}
	for _, s := range state.Segments {
		h.segments[s.Index] = s
	}
	return h
}

func (h *heldRules) takePort(want filter.Port) bool {
	have, ok := h.ports[want.Index]
	delete(h.ports, want.Index)
	return ok && samePort(have, want)
}

func (h *heldRules) takeSegment(want filter.Segment) bool {
	have, ok := h.segments[want.Index]
	delete(h.segments, want.Index)
	return ok && have == want
}

// stale plans the deletion of the rules of links that the kernel does not have, or that are
// deleted.
func (h *heldRules) stale(p *planner) {
	stays := map[uint32]bool{} // only a complete view removes these
	for _, l := range p.existing {
		if l.Namespace == "" && l.Ours && !p.gone[l.Key()] && (!p.prune || p.kept[l.Key()]) {
			stays[uint32(l.Index)] = true
		}
	}
	h.gone(p, func(index uint32) bool { return stays[index] })
}

// gone plans the deletion of what is left, except of what stays.
func (h *heldRules) gone(p *planner, stays func(index uint32) bool) {
	step := Step{Op: OpDelRules}
	for _, port := range p.have.Rules.Ports {
		if _, left := h.ports[port.Index]; left && !stays(port.Index) {
			step.Object, step.Link = Object{Kind: ObjectFabric, MAC: port.MAC, Name: port.Name}, port.Name
			step.Rule = &filter.Change{DelPort: port.Index}
			p.delRules = append(p.delRules, step)
		}
	}
	for _, s := range p.have.Rules.Segments {
		if _, left := h.segments[s.Index]; left && !stays(s.Index) {
			step.Object, step.Link = Object{Kind: ObjectBridge, Name: s.Name}, s.Name
			step.Rule = &filter.Change{DelSegment: s.Index}
			p.delRules = append(p.delRules, step)
		}
	}
}

// filterPeers plans whose packets are taken.
func (p *planner) filterPeers() {
	entries := sorted(p.want.FDB, func(a, b desired.FDB) int { return cmp.Compare(a.VNet, b.VNet) })
	var want []filter.Peer
	for _, w := range p.want.VXLANs {
		for _, to := range p.peersOf(w.VNet, group(&entries, func(e desired.FDB) int { return cmp.Compare(e.VNet, w.VNet) })) {
			want = append(want, filter.Peer{VTEP: to, VNI: w.VNet})
		}
	}
	diff(want, sorted(p.have.Rules.Peers, comparePeer), comparePeer, func(peer filter.Peer) {
		p.peers = append(p.peers, PeerStep(peer, true))
	}, func(_, _ filter.Peer) {}, func(peer filter.Peer) {
		if p.prune {
			p.delPeers = append(p.delPeers, PeerStep(peer, false))
		}
	})
}

func comparePeer(a, b filter.Peer) int {
	return cmp.Or(cmp.Compare(a.VNI, b.VNI), a.VTEP.Compare(b.VTEP))
}

// PeerStep is the step that makes the filter take the packets of a peer, or not any more.
func PeerStep(peer filter.Peer, add bool) Step {
	step := Step{Op: OpDelRules, Object: Object{Kind: ObjectPeer, VNet: peer.VNI, IP: peer.VTEP}, Rule: &filter.Change{DelPeer: &peer}}
	if add {
		step.Op, step.Rule = OpSetRules, &filter.Change{AddPeer: &peer}
	}
	return step
}

// filterUnderlay plans where packets of VXLAN devices are taken. It comes after the peers:
// from then on packets of others are dropped.
func (p *planner) filterUnderlay() {
	var want filter.Underlay
	locals := map[netip.Addr]bool{}
	for _, list := range [][]desired.VXLAN{p.want.VXLANs, p.secure.Others} {
		for _, w := range list {
			want.Ports = append(want.Ports, w.Port)
			locals[w.Local.Unmap()] = true
		}
	}
	have := &p.have.Rules.Underlay
	if !p.prune {
		want.Ports = append(want.Ports, have.Ports...)
	}
	slices.Sort(want.Ports)
	want.Ports = slices.Compact(want.Ports)
	if len(want.Ports) > 0 {
		want.Interfaces = p.interfaces(locals)
	}
	if !slices.Equal(want.Ports, have.Ports) || !slices.Equal(want.Interfaces, have.Interfaces) {
		p.peers = append(p.peers, Step{Op: OpSetRules, Object: Object{Kind: ObjectUnderlay}, Rule: &filter.Change{SetUnderlay: &want}})
	}
}

// interfaces returns the links that hold the underlay address, by name. If none does by
// which packets come, as where the address is on lo and routed to, it returns all that are
// not ours.
func (p *planner) interfaces(locals map[netip.Addr]bool) []string {
	if len(p.secure.Interfaces) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(p.secure.Interfaces)))
	}
	ours := map[int32]bool{}
	for _, l := range p.existing {
		if l.Namespace == "" && l.Ours {
			ours[l.Index] = true
		}
	}
	var holders, others []string
	for _, i := range p.have.Interfaces {
		if ours[i.Index] || i.Index >= FirstIndex {
			continue
		}
		if i.Virtual {
			continue
		}
		if slices.ContainsFunc(i.Addresses, func(a netip.Addr) bool { return locals[a] }) {
			holders = append(holders, i.Name)
		}
		others = append(others, i.Name)
	}
	if len(holders) == 0 {
		holders = others
	}
	slices.Sort(holders)
	return slices.Compact(holders)
}

// ApplyRules executes the steps of a list that are about rules, in one transaction, and
// returns an error, or nil, for each. index returns the ifindex of a link of our own
// namespace by its name.
func ApplyRules(ctx context.Context, table filter.Table, steps []Step, index func(name string) (int32, bool)) []error {
	errs := make([]error, len(steps))
	changes, of := make([]filter.Change, 0, len(steps)), make([]int, 0, len(steps))
	for i := range steps {
		change, err := resolved(&steps[i], index)
		if errs[i] = err; err == nil {
			changes, of = append(changes, change), append(of, i)
		}
	}
	if len(changes) == 0 {
		return errs
	}
	if table == nil {
		for _, i := range of {
			errs[i] = filter.ErrUnsupported
		}
		return errs
	}
	for j, err := range table.Apply(ctx, changes) {
		errs[of[j]] = err
	}
	return errs
}

// resolved returns the change of a step, with the ifindex of its link.
func resolved(s *Step, index func(name string) (int32, bool)) (filter.Change, error) {
	change := *s.Rule
	at, ok := int32(0), true
	if s.Op == OpSetRules && s.Link != "" {
		at, ok = index(s.Link)
	}
	if !ok {
		return change, fmt.Errorf("%w: %s", ErrNotMade, s.Link)
	}
	if change.SetPort != nil && change.SetPort.Index == 0 {
		port := *change.SetPort
		port.Index, change.SetPort = uint32(at), &port
	}
	if change.SetSegment != nil && change.SetSegment.Index == 0 {
		segment := *change.SetSegment
		segment.Index, change.SetSegment = uint32(at), &segment
	}
	return change, nil
}
