package link

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// Apply brings own NICs and single entries to what delta says, which must be of the
// links that the last pass wanted, with the deltas since, and corrects entries that
// another program changed. Its cost grows with these NICs and entries; the cost of a
// pass grows with all. A delta with a Part must be of a complete view.
//
// Result.Matched means that the kernel still matches: a dump after the last pass, or
// one of the part since, showed it, every later step was acknowledged, and all
// notifications agreed (SAFETY B1).
// Result.Look means that only a pass can tell.
func (m *Manager) Apply(ctx context.Context, delta desired.LinksDelta) Result {
	now := m.cfg.Now()
	delta.Attach(m.attachOf)
	var result Result
	if delta.Part != nil {
		// What goes to a NIC that leaves this node is forwarded before its link is deleted. What
		// goes to one that comes is forwarded until it has its link.
		m.applyEntries(ctx, desired.LinksDelta{FDB: delta.FDB}, now, &result)
		m.applyPart(ctx, delta.Part, now, &result)
	}
	m.demand.mu.Lock() // no answer from before the delta may follow it
	defer m.demand.mu.Unlock()
	m.applyLocked(ctx, delta, now, &result)
	if err := m.heal(ctx, now, &result); err != nil {
		m.doubt = true
	}
	m.healRules(ctx, slices.ContainsFunc(result.Steps, func(s plan.Step) bool { return s.Rule != nil }))
	result.Look = m.doubt
	result.Stirred = slices.SortedFunc(maps.Keys(m.stirred), log.MAC.Compare)
	result.Matched = m.lastMatched && !m.doubt && len(m.stirred) == 0
	result.Pending, result.Settled = m.left.pending, m.left.settled && !m.doubt && len(m.stirred) == 0
	return result
}

// applyEntries makes the entries of a delta.
func (m *Manager) applyEntries(ctx context.Context, delta desired.LinksDelta, now time.Time, result *Result) {
	m.demand.mu.Lock()
	defer m.demand.mu.Unlock()
	m.applyLocked(ctx, delta, now, result)
}

// applyLocked is applyEntries for callers that hold the lock of demand.
func (m *Manager) applyLocked(ctx context.Context, delta desired.LinksDelta, now time.Time, result *Result) {
	first, last := m.peerSteps(&delta)
	steps := slices.Concat(first, m.demand.resident(m.entrySteps(delta)), last)
	if len(steps) == 0 {
		return
	}
	done := m.do(ctx, steps, now)
	for i := range done {
		m.noteEntry(&done[i])
	}
	m.doubt = m.doubt || len(done) < len(steps)
	result.Steps = append(result.Steps, done...)
}

// entrySteps are the steps of a delta, additions before deletions. Entries of missing
// links, and of those that the last pass could not make, are left to the pass that makes
// the link.
func (m *Manager) entrySteps(d desired.LinksDelta) []plan.Step {
	steps := make([]plan.Step, 0, d.Len())
	forwards := func(list []desired.FDB, op plan.Op) {
		var name string // of the previous entry, which usually has the same device
		for j, e := range list {
			i, ok := findVXLAN(m.last.VXLANs, e.VNet)
			if !ok || m.left.unmade[plan.Object{Kind: plan.ObjectVXLAN, VNet: e.VNet}] {
				continue
			}
			if name == "" || list[j-1].VNet != e.VNet {
				name = plan.VXLANName(e.VNet)
			}
			steps = append(steps, plan.Step{
				Op: op, Object: plan.Object{Kind: plan.ObjectFDB, VNet: e.VNet, MAC: e.MAC}, Link: name,
				MAC: e.MAC, Addr: e.Dst, Port: plan.OtherPort(e.Port, m.last.VXLANs[i].Port),
			})
		}
	}
	neighs := func(list []desired.Neigh, op plan.Op) {
		from := len(steps)
		var at plan.LinkKey
		var ok bool
		for j, e := range list {
			if j == 0 || list[j-1].Link != e.Link {
				at, ok = m.keyOf(e.Link)
			}
			if ok {
				steps = append(steps, plan.Step{
					Op: op, Object: plan.Object{Kind: plan.ObjectNeigh, MAC: e.Link, IP: e.IP}, Namespace: at.Namespace, Link: at.Name,
					MAC: e.MAC, Addr: e.IP,
				})
			}
		}
		byNamespace := func(a, b plan.Step) int { return cmp.Compare(a.Namespace, b.Namespace) }
		if !slices.IsSortedFunc(steps[from:], byNamespace) {
			slices.SortStableFunc(steps[from:], byNamespace)
		}
	}
	forwards(d.FDB, plan.OpSetFDB)
	neighs(d.Neighs, plan.OpSetNeigh)
	neighs(d.NoNeighs, plan.OpDelNeigh)
	forwards(d.NoFDB, plan.OpDelFDB)
	if !m.doubt {
		steps = slices.DeleteFunc(steps, m.isDone) // most changes of a NIC do not change its entries
	}
	return steps
}

// isDone reports whether the entry of a step was wanted already, and is there.
func (m *Manager) isDone(s plan.Step) bool {
	if m.left.has(s.Object) {
		return false
	}
	if _, on := m.demand.vnetOf(s.Object); on {
		return false // a pass may have written an older value
	}
	want := plan.Target{}
	switch s.Op {
	case plan.OpSetNeigh:
		want.MAC = s.MAC
	case plan.OpSetFDB:
		want.Dst, want.Port = s.Addr, s.Port
	}
	return m.held(s.Object) == want
}

func findVXLAN(list []desired.VXLAN, vnet uint32) (int, bool) {
	return slices.BinarySearchFunc(list, vnet, func(v desired.VXLAN, vnet uint32) int { return cmp.Compare(v.VNet, vnet) })
}

func findFabric(list []desired.Fabric, mac log.MAC) (int, bool) {
	return slices.BinarySearchFunc(list, mac, func(f desired.Fabric, mac log.MAC) int { return f.MAC.Compare(mac) })
}

// keyOf returns the key of a NIC's fabric link, as of the last pass, if that pass did not
// leave it unmade.
func (m *Manager) keyOf(mac log.MAC) (plan.LinkKey, bool) {
	i, ok := findFabric(m.last.Fabrics, mac)
	n, has := m.numbers.Lookup(mac)
	if !ok || !has || m.left.unmade[plan.Object{Kind: plan.ObjectFabric, MAC: mac}] {
		return plan.LinkKey{}, false
	}
	return plan.LinkKey{Namespace: m.last.Fabrics[i].Namespace, Name: plan.FabricName(n)}, true
}

// heal checks the observed entries, and corrects those that are not as wanted.
func (m *Manager) heal(ctx context.Context, now time.Time, result *Result) error {
	listener, ok := m.cfg.Kernel.(Listener)
	if !ok {
		return nil
	}
	entries, other := listener.Observed()
	m.stir(listener.Stirred())
	if other {
		m.doubt = true
	}
	entries = slices.DeleteFunc(entries, func(e plan.Entry) bool { // the part reads the link with its entries
		mac, ok := carrierOf(m, e)
		return ok && m.stirred[mac]
	})
	if len(entries) == 0 {
		return nil
	}
	have, err := listener.Read(ctx, entries)
	if errors.Is(err, plan.ErrNotMade) || errors.Is(err, plan.ErrNoNamespace) || errors.Is(err, unix.ENODEV) {
		stirCarriers(m, entries) // a link was removed with its entries
		return nil
	}
	if err != nil {
		return err
	}
	var steps []plan.Step
	for i := range have {
		if s, ok := m.healStep(&have[i]); ok {
			steps = append(steps, s)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	done := m.do(ctx, steps, now)
	m.doubt = m.doubt || len(done) < len(steps)
	result.Steps = append(result.Steps, done...)
	for _, s := range done {
		if !m.left.has(s.Object) {
			result.Drift = append(result.Drift, s)
		}
	}
	return nil
}

// carrierOf returns the NIC on whose link an entry is, if that link is where it is wanted.
func carrierOf(m *Manager, e plan.Entry) (log.MAC, bool) {
	n, ok := plan.FabricNumber(e.Link)
	if !ok {
		return log.MAC{}, false
	}
	mac, owned := m.numbers.Owner(n)
	at, known := m.keyOf(mac)
	return mac, owned && known && at == (plan.LinkKey{Namespace: e.Namespace, Name: e.Link})
}

// stirCarriers leaves entries to parts that read the links that carry them, so that a guest
// that removes its link causes no pass over everything.
func stirCarriers(m *Manager, entries []plan.Entry) {
	for _, e := range entries {
		if mac, ok := carrierOf(m, e); ok {
			m.stirred[mac] = true
		} else {
			m.doubt = true
		}
	}
}

// healStep returns the step that makes an entry as wanted, if the entry differs.
func (m *Manager) healStep(have *plan.Step) (plan.Step, bool) {
	step := *have
	want := plan.Target{}
	if step.Op == plan.OpSetNeigh || step.Op == plan.OpDelNeigh {
		n, _ := plan.FabricNumber(have.Link)
		link, ok := m.numbers.Owner(n)
		if at, known := m.keyOf(link); !ok || !known || at != (plan.LinkKey{Namespace: have.Namespace, Name: have.Link}) {
			return step, false // not a link of ours, or one that a pass will move
		}
		step.Object = plan.Object{Kind: plan.ObjectNeigh, MAC: link, IP: have.Addr}
		want = m.held(step.Object)
		is := plan.Target{MAC: have.MAC}
		if have.Op == plan.OpDelNeigh {
			is = plan.Target{}
		}
		if step.Op, step.MAC = plan.OpSetNeigh, want.MAC; want == (plan.Target{}) {
			step.Op = plan.OpDelNeigh
		}
		return step, is != want
	}
	i := slices.IndexFunc(m.last.VXLANs, func(v desired.VXLAN) bool { return plan.VXLANName(v.VNet) == have.Link })
	if i < 0 {
		return step, false
	}
	step.Object = plan.Object{Kind: plan.ObjectFDB, VNet: m.last.VXLANs[i].VNet, MAC: have.MAC}
	want = m.held(step.Object)
	is := plan.Target{Dst: have.Addr, Port: plan.OtherPort(have.Port, m.last.VXLANs[i].Port)}
	if have.Op == plan.OpDelFDB {
		is = plan.Target{}
	}
	if step.Op, step.Addr, step.Port = plan.OpSetFDB, want.Dst, want.Port; want == (plan.Target{}) {
		step.Op = plan.OpDelFDB
	}
	return step, is != want
}

// noteEntry records what an entry is wanted to be since the last pass.
func (m *Manager) noteEntry(s *plan.Step) {
	if m.demand.note(s) {
		return
	}
	switch s.Op {
	case plan.OpSetNeigh:
		m.since.setNeigh(number(s.Object.MAC), s.Object.IP, s.MAC)
	case plan.OpDelNeigh:
		m.since.setNeigh(number(s.Object.MAC), s.Object.IP, log.MAC{})
	case plan.OpSetFDB:
		m.since.setForward(s.Object.VNet, s.MAC, s.Addr, s.Port)
	case plan.OpDelFDB:
		m.since.setForward(s.Object.VNet, s.MAC, netip.Addr{}, 0)
	}
}

// held is wanted for callers that hold the lock of demand.
func (m *Manager) held(o plan.Object) plan.Target {
	if p, on := m.demand.holds(o); on {
		return p
	}
	return m.wantedAhead(o)
}

// wanted returns what an entry is wanted to be; for a vnet on demand, what was
// programmed.
func (m *Manager) wanted(o plan.Object) plan.Target {
	if p, on := m.demand.wanted(o); on {
		return p
	}
	return m.wantedAhead(o)
}

func (m *Manager) wantedAhead(o plan.Object) plan.Target {
	var p plan.Target
	var ok bool
	switch o.Kind {
	case plan.ObjectNeigh:
		p, ok = m.since.neigh(number(o.MAC), o.IP)
	case plan.ObjectFDB:
		p, ok = m.since.forward(o.VNet, o.MAC)
	}
	if ok {
		return p
	}
	return wantedIn(&m.last, o)
}

// wantedIn returns what a desired state wants an entry to be.
func wantedIn(w *desired.Links, o plan.Object) plan.Target {
	if o.Kind == plan.ObjectNeigh {
		i, ok := slices.BinarySearchFunc(w.Neighs, o, func(n desired.Neigh, o plan.Object) int {
			return cmp.Or(n.Link.Compare(o.MAC), n.IP.Compare(o.IP))
		})
		if !ok {
			return plan.Target{}
		}
		return plan.Target{MAC: w.Neighs[i].MAC}
	}
	i, ok := slices.BinarySearchFunc(w.FDB, o, func(f desired.FDB, o plan.Object) int {
		return cmp.Or(cmp.Compare(f.VNet, o.VNet), f.MAC.Compare(o.MAC))
	})
	at, known := findVXLAN(w.VXLANs, o.VNet)
	if !ok || !known {
		return plan.Target{}
	}
	return plan.Target{Dst: w.FDB[i].Dst, Port: plan.OtherPort(w.FDB[i].Port, w.VXLANs[at].Port)}
}

// drift returns those steps of a pass that correct changes by other programs: their
// result was wanted before, and was there.
func (m *Manager) drift(done []plan.Step, want *desired.Links) []plan.Step {
	var drift []plan.Step
	made := map[plan.LinkKey]bool{} // made by this pass for another reason, so everything on them is new
	for i := range done {
		s := &done[i]
		at := plan.LinkKey{Namespace: s.Namespace, Name: s.Link}
		switch {
		case s.Op == plan.OpRemoveResolvers && !m.marks.searched && !m.numbers.Node().IsZero(): // of an earlier process
		case m.left.has(s.Object) || made[at] || s.Op == plan.OpAddLink && made[plan.LinkKey{Namespace: "", Name: s.Spec.Needs()}]:
		case m.wasWanted(s.Object, want):
			drift = append(drift, *s)
			continue
		}
		if s.Op == plan.OpAddLink {
			made[at] = true
		}
	}
	return drift
}

// wasWanted reports whether an object is wanted as it was before.
func (m *Manager) wasWanted(o plan.Object, want *desired.Links) bool {
	same := func(i int, had bool, j int, has bool, equal func(i, j int) bool) bool {
		return had == has && (!had || equal(i, j))
	}
	if is, ok := m.wasGuarded(o, want); ok {
		return is
	}
	switch o.Kind {
	case plan.ObjectNeigh, plan.ObjectFDB:
		return m.wanted(o) == wantedIn(want, o)
	case plan.ObjectVXLAN, plan.ObjectVLAN:
		vnet, vlan := o.VNet, o.VLAN
		if o.Name != "" {
			return !hasDevice(&m.last, o.Name)
		}
		if vlan != 0 {
			is := func(v desired.VLAN) bool { return v.VNet == vnet && v.ID == vlan }
			i, j := slices.IndexFunc(m.last.VLANs, is), slices.IndexFunc(want.VLANs, is)
			return i >= 0 && j >= 0 && m.last.VLANs[i] == want.VLANs[j]
		}
		i, had := findVXLAN(m.last.VXLANs, vnet)
		j, has := findVXLAN(want.VXLANs, vnet)
		return same(i, had, j, has, func(i, j int) bool { return m.last.VXLANs[i] == want.VXLANs[j] })
	case plan.ObjectFabric:
		i, had := findFabric(m.last.Fabrics, o.MAC)
		j, has := findFabric(want.Fabrics, o.MAC)
		return same(i, had, j, has, func(i, j int) bool { return sameFabric(m.last.Fabrics[i], want.Fabrics[j]) })
	}
	resolvers := func(w *desired.Links) []netip.Addr {
		for i := range w.Fabrics {
			if w.Fabrics[i].Namespace == o.Name && len(w.Fabrics[i].Resolvers) > 0 {
				return w.Fabrics[i].Resolvers
			}
		}
		return nil
	}
	return slices.Equal(resolvers(&m.last), resolvers(want))
}

// hasDevice reports whether a desired state has a VXLAN or VLAN device of that name.
func hasDevice(w *desired.Links, name string) bool {
	return slices.ContainsFunc(w.VXLANs, func(v desired.VXLAN) bool { return plan.VXLANName(v.VNet) == name }) ||
		slices.ContainsFunc(w.VLANs, func(v desired.VLAN) bool { return plan.VLANName(v.VNet, v.ID) == name })
}
