package link

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Apply brings single entries to what delta says, which must be of the links
// that the last pass wanted, and puts right those that somebody else was heard
// to have changed. Its cost is that of the entries, where a pass costs all of
// them.
//
// Result.Matched says that the kernel matches still: a dump showed so after the
// last pass, every step since then was acknowledged, and nothing was heard that
// did not agree (SAFETY B1). Result.Look says that only a pass can tell.
func (m *Manager) Apply(ctx context.Context, delta projections.LinksDelta) Result {
	now := m.cfg.Now()
	var result Result
	m.demand.mu.Lock() // no answer of before the delta may come after it
	defer m.demand.mu.Unlock()
	steps := m.demand.resident(m.entrySteps(delta))
	if len(steps) > 0 {
		result.Steps = m.do(ctx, steps, now)
		for i := range result.Steps {
			m.noteEntry(&result.Steps[i])
		}
		m.doubt = m.doubt || len(result.Steps) < len(steps)
	}
	if err := m.heal(ctx, now, &result); err != nil {
		m.doubt = true
	}
	result.Look = m.doubt
	result.Matched = m.lastMatched && !m.doubt
	return result
}

// entrySteps are the steps of a delta, those that add before those that delete.
// Entries of links that are not there are left to a pass.
func (m *Manager) entrySteps(d projections.LinksDelta) []Step {
	steps := make([]Step, 0, d.Len())
	forwards := func(list []projections.FDB, op Op) {
		var name string // of the entry before, whose device is most often the same
		for j, e := range list {
			i, ok := findVXLAN(m.last.VXLANs, e.VNet)
			if !ok {
				continue
			}
			if name == "" || list[j-1].VNet != e.VNet {
				name = VXLANName(e.VNet)
			}
			steps = append(steps, Step{
				Op: op, Object: Object{Kind: ObjectFDB, VNet: e.VNet, MAC: e.MAC}, Link: name,
				MAC: e.MAC, Addr: e.Dst, Port: otherPort(e.Port, m.last.VXLANs[i].Port),
			})
		}
	}
	neighs := func(list []projections.Neigh, op Op) {
		from := len(steps)
		var at place
		var ok bool
		for j, e := range list {
			if j == 0 || list[j-1].Link != e.Link {
				at, ok = m.placeOf(e.Link)
			}
			if ok {
				steps = append(steps, Step{
					Op: op, Object: Object{Kind: ObjectNeigh, MAC: e.Link, IP: e.IP}, Namespace: at.namespace, Link: at.name,
					MAC: e.MAC, Addr: e.IP,
				})
			}
		}
		byNamespace := func(a, b Step) int { return cmp.Compare(a.Namespace, b.Namespace) }
		if !slices.IsSortedFunc(steps[from:], byNamespace) {
			slices.SortStableFunc(steps[from:], byNamespace)
		}
	}
	forwards(d.FDB, OpSetFDB)
	neighs(d.Neighs, OpSetNeigh)
	neighs(d.NoNeighs, OpDelNeigh)
	forwards(d.NoFDB, OpDelFDB)
	if m.lastMatched && !m.doubt {
		steps = slices.DeleteFunc(steps, m.isDone) // most changes of a NIC are none to its entries
	}
	return steps
}

// isDone reports whether the entry of a step was wanted so before.
func (m *Manager) isDone(s Step) bool {
	if _, on := m.demand.vnetOf(s.Object); on {
		return false // a pass may have written what was so before
	}
	want := placed{}
	switch s.Op {
	case OpSetNeigh:
		want.mac = s.MAC
	case OpSetFDB:
		want.dst, want.port = s.Addr, s.Port
	}
	return m.held(s.Object) == want
}

func findVXLAN(list []projections.VXLAN, vnet uint32) (int, bool) {
	return slices.BinarySearchFunc(list, vnet, func(v projections.VXLAN, vnet uint32) int { return cmp.Compare(v.VNet, vnet) })
}

func findFabric(list []projections.Fabric, mac log.MAC) (int, bool) {
	return slices.BinarySearchFunc(list, mac, func(f projections.Fabric, mac log.MAC) int { return compareMAC(f.MAC, mac) })
}

// placeOf returns where the fabric link of a NIC is, as of the last pass.
func (m *Manager) placeOf(mac log.MAC) (place, bool) {
	i, ok := findFabric(m.last.Fabrics, mac)
	n, has := m.numbers.Lookup(mac)
	if !ok || !has {
		return place{}, false
	}
	return place{m.last.Fabrics[i].Namespace, FabricName(n)}, true
}

// heal looks at the entries that were heard of, and puts right those that are
// not as wanted.
func (m *Manager) heal(ctx context.Context, now time.Time, result *Result) error {
	listener, ok := m.cfg.Kernel.(Listener)
	if !ok {
		return nil
	}
	entries, other := listener.Heard()
	if other {
		m.doubt = true
	}
	if len(entries) == 0 {
		return nil
	}
	have, err := listener.Read(ctx, entries)
	if errors.Is(err, ErrNotMade) || errors.Is(err, ErrNoNamespace) {
		m.doubt = true // the link went with its entries
		return nil
	}
	if err != nil {
		return err
	}
	var steps []Step
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
	if m.lastMatched {
		result.Drift = append(result.Drift, done...)
	}
	return nil
}

// healStep returns the step that makes an entry as it is wanted, if it is not.
func (m *Manager) healStep(have *Step) (Step, bool) {
	step := *have
	want := placed{}
	if step.Op == OpSetNeigh || step.Op == OpDelNeigh {
		n, _ := fabricNumber(have.Link)
		link, ok := m.numbers.Owner(n)
		if at, known := m.placeOf(link); !ok || !known || at != (place{have.Namespace, have.Link}) {
			return step, false // no link of ours, or one that a pass will move
		}
		step.Object = Object{Kind: ObjectNeigh, MAC: link, IP: have.Addr}
		want = m.held(step.Object)
		is := placed{mac: have.MAC}
		if have.Op == OpDelNeigh {
			is = placed{}
		}
		if step.Op, step.MAC = OpSetNeigh, want.mac; want == (placed{}) {
			step.Op = OpDelNeigh
		}
		return step, is != want
	}
	i := slices.IndexFunc(m.last.VXLANs, func(v projections.VXLAN) bool { return VXLANName(v.VNet) == have.Link })
	if i < 0 {
		return step, false
	}
	step.Object = Object{Kind: ObjectFDB, VNet: m.last.VXLANs[i].VNet, MAC: have.MAC}
	want = m.held(step.Object)
	is := placed{dst: have.Addr, port: otherPort(have.Port, m.last.VXLANs[i].Port)}
	if have.Op == OpDelFDB {
		is = placed{}
	}
	if step.Op, step.Addr, step.Port = OpSetFDB, want.dst, want.port; want == (placed{}) {
		step.Op = OpDelFDB
	}
	return step, is != want
}

// noteEntry remembers what an entry is wanted to be since the last pass.
func (m *Manager) noteEntry(s *Step) {
	if m.demand.note(s) {
		return
	}
	switch s.Op {
	case OpSetNeigh:
		m.since.setNeigh(number(s.Object.MAC), s.Object.IP, s.MAC)
	case OpDelNeigh:
		m.since.setNeigh(number(s.Object.MAC), s.Object.IP, log.MAC{})
	case OpSetFDB:
		m.since.setForward(s.Object.VNet, s.MAC, s.Addr, s.Port)
	case OpDelFDB:
		m.since.setForward(s.Object.VNet, s.MAC, netip.Addr{}, 0)
	}
}

// held is wanted, within the lock of demand.
func (m *Manager) held(o Object) placed {
	if p, on := m.demand.holds(o); on {
		return p
	}
	return m.wantedAhead(o)
}

// wanted returns what an entry is wanted to be; of a vnet on demand, what the
// kernel was told.
func (m *Manager) wanted(o Object) placed {
	if p, on := m.demand.wanted(o); on {
		return p
	}
	return m.wantedAhead(o)
}

func (m *Manager) wantedAhead(o Object) placed {
	var p placed
	var ok bool
	switch o.Kind {
	case ObjectNeigh:
		p, ok = m.since.neigh(number(o.MAC), o.IP)
	case ObjectFDB:
		p, ok = m.since.forward(o.VNet, o.MAC)
	}
	if ok {
		return p
	}
	return wantedIn(&m.last, o)
}

// wantedIn returns what a desired state wants an entry to be.
func wantedIn(w *projections.Desired, o Object) placed {
	if o.Kind == ObjectNeigh {
		i, ok := slices.BinarySearchFunc(w.Neighs, o, func(n projections.Neigh, o Object) int {
			return cmp.Or(compareMAC(n.Link, o.MAC), n.IP.Compare(o.IP))
		})
		if !ok {
			return placed{}
		}
		return placed{mac: w.Neighs[i].MAC}
	}
	i, ok := slices.BinarySearchFunc(w.FDB, o, func(f projections.FDB, o Object) int {
		return cmp.Or(cmp.Compare(f.VNet, o.VNet), compareMAC(f.MAC, o.MAC))
	})
	at, known := findVXLAN(w.VXLANs, o.VNet)
	if !ok || !known {
		return placed{}
	}
	return placed{dst: w.FDB[i].Dst, port: otherPort(w.FDB[i].Port, w.VXLANs[at].Port)}
}

// drift returns those of the steps of a pass that put right what somebody else
// changed: what they make was wanted before, and was so.
func (m *Manager) drift(done []Step, want *projections.Desired) []Step {
	var drift []Step
	made := map[place]bool{} // by this pass, for a reason of its own: all on them is new
	for i := range done {
		s := &done[i]
		at := place{s.Namespace, s.Link}
		switch {
		case made[at] || s.Op == OpAddLink && made[place{"", s.Spec.Parent}]:
		case m.wasWanted(s.Object, want):
			drift = append(drift, *s)
			continue
		}
		if s.Op == OpAddLink {
			made[at] = true
		}
	}
	return drift
}

// wasWanted reports whether an object is wanted as it was before.
func (m *Manager) wasWanted(o Object, want *projections.Desired) bool {
	same := func(i int, had bool, j int, has bool, equal func(i, j int) bool) bool {
		return had == has && (!had || equal(i, j))
	}
	switch o.Kind {
	case ObjectNeigh, ObjectFDB:
		return m.wanted(o) == wantedIn(want, o)
	case ObjectVXLAN, ObjectVLAN:
		vnet, vlan := o.VNet, o.VLAN
		if o.Name != "" {
			return !hasDevice(&m.last, o.Name)
		}
		if vlan != 0 {
			is := func(v projections.VLAN) bool { return v.VNet == vnet && v.ID == vlan }
			i, j := slices.IndexFunc(m.last.VLANs, is), slices.IndexFunc(want.VLANs, is)
			return i >= 0 && j >= 0 && m.last.VLANs[i] == want.VLANs[j]
		}
		i, had := findVXLAN(m.last.VXLANs, vnet)
		j, has := findVXLAN(want.VXLANs, vnet)
		return same(i, had, j, has, func(i, j int) bool { return m.last.VXLANs[i] == want.VXLANs[j] })
	case ObjectFabric:
		i, had := findFabric(m.last.Fabrics, o.MAC)
		j, has := findFabric(want.Fabrics, o.MAC)
		return same(i, had, j, has, func(i, j int) bool { return sameFabric(m.last.Fabrics[i], want.Fabrics[j]) })
	}
	resolvers := func(w *projections.Desired) []netip.Addr {
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
func hasDevice(w *projections.Desired, name string) bool {
	return slices.ContainsFunc(w.VXLANs, func(v projections.VXLAN) bool { return VXLANName(v.VNet) == name }) ||
		slices.ContainsFunc(w.VLANs, func(v projections.VLAN) bool { return VLANName(v.VNet, v.ID) == name })
}
