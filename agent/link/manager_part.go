package link

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// errWhole: a part cannot show what is to be done; a pass does.
var errWhole = errors.New("link: only a pass shows this")

// applyPart makes what changes of the node's own NICs need, at a cost of these NICs: it
// reads their namespaces and the devices below them, plans with Plan what a pass would
// plan of them, executes that, and reads again. The view must be complete.
//
// It sets doubt if only a pass can do that: the kernel cannot be read in part, a
// namespace is shared with NICs that are not in the part, a device that exists since
// earlier is missing for no known reason, the clusters whose links are ours are still to be
// saved, or the kernel changed meanwhile.
func (m *Manager) applyPart(ctx context.Context, part *desired.Part, now time.Time, result *Result) {
	kernel, ok := m.cfg.Kernel.(plan.PartKernel)
	if !ok || m.left.objects == nil || m.marks.unsaved {
		m.doubt = true
		return
	}
	p := partRun{Manager: m, kernel: kernel, part: part, now: now, result: result}
	p.find()
	if p.shared() || p.floods() {
		m.doubt = true
		return
	}
	have, work, err := p.run(ctx)
	if errors.Is(err, errWhole) {
		m.doubt = true
		return
	}
	m.follow(part)
	if err != nil {
		m.doubt = true
		for _, o := range p.objects() {
			m.left.objects[o] = true // the pass's steps correct no other program's changes
		}
		return
	}
	p.take(work)
	attached := maps.Clone(m.attached)
	for _, mac := range part.NICs {
		delete(m.stirred, mac)
		delete(attached, mac)
	}
	m.noteAttached(attached, part.Links.Fabrics, &have)
	if m.kept == nil && m.settle(part.NICs, part.Links.Fabrics, &have) != nil {
		m.doubt = true
	}
}

// partRun is one running applyPart.
type partRun struct {
	*Manager
	kernel plan.PartKernel
	part   *desired.Part
	now    time.Time
	result *Result

	touched map[log.MAC]bool
	own     map[string]bool // links of our own namespace that the part is about
	// segments are those of the NICs, before and after, with port security, and beside the
	// devices below them that are not in own.
	segments map[desired.Segment]bool
	beside   map[string]bool
	taken    names // fabric numbers in the namespaces that were read
	read     plan.Part
	missing  []string // namespaces, as of the last read
}

// find lists what must be read.
func (p *partRun) find() {
	p.touched, p.own = map[log.MAC]bool{}, map[string]bool{}
	links, namespaces := &p.part.Links, map[string]bool{}
	for _, v := range links.VXLANs {
		p.own[plan.VXLANName(v.VNet)] = true
	}
	for _, v := range links.VLANs {
		p.own[plan.VLANName(v.VNet, v.ID)] = true
	}
	for _, vnet := range p.part.NoVXLANs {
		p.own[plan.VXLANName(vnet)] = true
	}
	for _, v := range p.part.NoVLANs {
		p.own[plan.VLANName(v.VNet, v.ID)] = true
	}
	for _, vnet := range p.part.New {
		p.read.Entries = append(p.read.Entries, plan.VXLANName(vnet))
	}
	// A device is deleted with what is on it.
	p.read.All = len(p.part.NoVXLANs)+len(p.part.NoVLANs) > 0
	for _, mac := range p.part.NICs {
		p.touched[mac] = true
		n, numbered := p.numbers.Lookup(mac)
		if numbered { // also if it is wanted elsewhere by now: it may not have been deleted yet
			p.own[plan.FabricName(n)] = true
		}
		for _, list := range [][]desired.Fabric{links.Fabrics, p.last.Fabrics} {
			i, ok := findFabric(list, mac)
			if !ok {
				continue
			}
			namespaces[list[i].Namespace] = true
			p.read.All = p.read.All || list[i].Namespace == "" && !numbered && !list[i].Attach.Tap // its name must be free
		}
		for _, name := range p.numbers.Places(mac) {
			namespaces[name] = true
		}
	}
	delete(namespaces, "")
	p.secured()
	p.read.Namespaces = slices.Sorted(maps.Keys(namespaces))
	p.read.Links = slices.Sorted(maps.Keys(p.own))
	for device := range p.beside {
		p.read.Links = append(p.read.Links, device)
	}
}

// shared reports whether the link of a NIC that is not in the part is, or was, in one of
// the namespaces: a namespace's resolvers are those of all NICs in it.
func (p *partRun) shared() bool {
	in := func(name string) bool { _, is := slices.BinarySearch(p.read.Namespaces, name); return is }
	if slices.ContainsFunc(p.last.Fabrics, func(f desired.Fabric) bool { return !p.touched[f.MAC] && in(f.Namespace) }) {
		return true
	}
	for _, name := range p.read.Namespaces {
		if slices.ContainsFunc(p.numbers.In(name), func(mac log.MAC) bool { return !p.touched[mac] }) {
			return true
		}
	}
	return false
}

// dump reads the part, and leaves out what is not of it.
func (p *partRun) dump(ctx context.Context) (plan.Snapshot, error) {
	have, err := p.dumpPart(ctx, p.kernel, p.read, &p.part.Links)
	if err != nil {
		return have, err
	}
	p.missing = have.Missing
	byKey := have.ByKey()
	p.taken = takenNames(&have)
	p.cut(&have.Rules)
	below := maps.Clone(p.beside) // also a link in the way may be on another device
	if below == nil {
		below = map[string]bool{}
	}
	for i := range have.Links {
		l := &have.Links[i]
		if l.Namespace == "" && !p.own[l.Name] {
			continue
		}
		for at := byKey[plan.LinkKey{Namespace: "", Name: l.Parent}]; at != nil; at = byKey[plan.LinkKey{Namespace: "", Name: at.Parent}] {
			below[at.Name] = true
		}
	}
	have.Links = slices.DeleteFunc(have.Links, func(l plan.Link) bool {
		return l.Namespace == "" && !p.own[l.Name] && !below[l.Name]
	})
	return have, nil
}

// want is what the part wants, with the devices of other NICs on which a link in the way
// is. It is not ok if such a device is not wanted.
func (p *partRun) want(have *plan.Snapshot) (want desired.Links, ok bool) {
	want = p.part.Links
	want.Segments = p.wantedSegments()
	want.Peers = slices.DeleteFunc(slices.Clone(want.Peers), func(peer desired.Peer) bool { return !slices.Contains(p.part.New, peer.VNet) })
	for i := range have.Links {
		l := &have.Links[i]
		if l.Namespace != "" || p.own[l.Name] {
			continue
		}
		at := slices.IndexFunc(p.last.VXLANs, func(v desired.VXLAN) bool { return plan.VXLANName(v.VNet) == l.Name })
		if at >= 0 {
			want.VXLANs = append(slices.Clip(want.VXLANs), p.last.VXLANs[at])
			continue
		}
		at = slices.IndexFunc(p.last.VLANs, func(v desired.VLAN) bool { return plan.VLANName(v.VNet, v.ID) == l.Name })
		if at < 0 {
			return want, false
		}
		want.VLANs = append(slices.Clip(want.VLANs), p.last.VLANs[at])
	}
	return want, true
}

// covers reports whether the steps make and delete only devices that come and go with the
// part. On others there are links and entries that were not read.
func (p *partRun) covers(steps []plan.Step) bool {
	return !slices.ContainsFunc(steps, func(s plan.Step) bool {
		o := s.Object
		switch {
		case s.Op != plan.OpAddLink && s.Op != plan.OpDelLink || s.Namespace != "":
			return false
		case plan.KindOfName(s.Link) == plan.KindMacvlan || plan.KindOfName(s.Link) == plan.KindVeth:
			return false
		case s.Op == plan.OpAddLink && o.Kind == plan.ObjectBridge: // on another one there are ports that were not read
			return p.others(desired.Segment{VNet: o.VNet, VLAN: o.VLAN})
		case s.Op == plan.OpDelLink && o.Name != "":
			return !p.own[o.Name]
		case o.VLAN != 0:
			return slices.ContainsFunc(p.last.VLANs, func(v desired.VLAN) bool { return v.VNet == o.VNet && v.ID == o.VLAN })
		}
		_, fresh := slices.BinarySearch(p.part.New, o.VNet)
		return !fresh
	})
}

// run makes the part as wanted, and returns the last dump and what is left to do.
func (p *partRun) run(ctx context.Context) (have plan.Snapshot, work plan.Work, err error) {
	if have, err = p.dump(ctx); err != nil {
		return have, work, err
	}
	if !p.stands(&have) {
		return have, work, errWhole
	}
	if err := p.number(); err != nil {
		return have, work, err
	}
	p.demand.followPart(p.part)
	for round := 0; ; round++ {
		want, ok := p.want(&have)
		full := p.demand.extend(want, &have)
		work = plan.PlanSecured(full, have, p.numbers, true, p.options())
		work.Steps = p.withheld(work.Steps)
		due := p.due(work.Steps, p.now)
		if !ok || !p.covers(due) {
			return have, work, errWhole
		}
		if len(due) == 0 || round == maxRounds {
			return have, work, nil
		}
		done := p.do(ctx, due, p.now)
		p.demand.lost(done)
		if round == 0 {
			p.result.Drift = append(p.result.Drift, p.drift(done, &full)...)
		}
		p.result.Steps = append(p.result.Steps, done...)
		if err := ctx.Err(); err != nil {
			return have, work, err
		}
		if have, err = p.dump(ctx); err != nil {
			return have, work, err
		}
	}
}

// stands reports whether the devices are there of which the part has no forwarding entries,
// or a pass knows why they are not.
func (p *partRun) stands(have *plan.Snapshot) bool {
	byKey := have.ByKey()
	for _, v := range p.part.Links.VXLANs {
		_, fresh := slices.BinarySearch(p.part.New, v.VNet)
		if fresh || p.left.unmade[plan.Object{Kind: plan.ObjectVXLAN, VNet: v.VNet}] {
			continue
		}
		if l := byKey[plan.LinkKey{Namespace: "", Name: plan.VXLANName(v.VNet)}]; l == nil || l.Kind != plan.KindVXLAN {
			return false
		}
	}
	return true
}

// number gives the part's new NICs numbers, as assign does, and saves them.
func (p *partRun) number() error {
	changed := p.marks.unsaved
	for i := range p.part.Links.Fabrics {
		w := &p.part.Links.Fabrics[i]
		n, fresh := p.numbers.Assign(w.MAC, p.taken.in(w.Namespace))
		if w.Namespace == "" {
			name := plan.FabricName(n)
			p.own[name], p.read.Links = true, append(p.read.Links, name)
		}
		if p.cfg.Secure.On && fresh {
			name := plan.PortName(n)
			p.own[name], p.read.Links = true, append(p.read.Links, name)
		}
		changed = p.numbers.Tell(w.MAC, w.Attach) || changed || fresh
		changed = p.numbers.Put(w.MAC, w.Namespace) || changed
	}
	if !changed {
		return nil
	}
	return p.saveNumbers()
}

// objects are those that the part is about, without entries.
func (p *partRun) objects() []plan.Object {
	var list []plan.Object
	for _, mac := range p.part.NICs {
		list = append(list, plan.Object{Kind: plan.ObjectFabric, MAC: mac})
	}
	for _, v := range p.part.Links.VXLANs {
		list = append(list, plan.Object{Kind: plan.ObjectVXLAN, VNet: v.VNet})
	}
	for _, v := range p.part.Links.VLANs {
		list = append(list, plan.Object{Kind: plan.ObjectVLAN, VNet: v.VNet, VLAN: v.ID})
	}
	for s := range p.segments {
		list = append(list, plan.Object{Kind: plan.ObjectBridge, VNet: s.VNet, VLAN: s.VLAN})
	}
	for _, name := range p.read.Namespaces {
		list = append(list, plan.Object{Kind: plan.ObjectResolvers, Name: name})
	}
	return list
}

// has reports whether an object is one that the part is about.
func (p *partRun) has(o plan.Object) bool {
	switch o.Kind {
	case plan.ObjectFabric:
		if o.Name != "" { // a link of no wanted NIC
			mac, ok := p.ownerOf(o.Name)
			return p.touched[o.MAC] || p.own[o.Name] || ok && p.touched[mac]
		}
		return p.touched[o.MAC]
	case plan.ObjectNeigh:
		return p.touched[o.MAC]
	case plan.ObjectResolvers:
		_, is := slices.BinarySearch(p.read.Namespaces, o.Name)
		return is
	case plan.ObjectBridge:
		return p.own[cmp.Or(o.Name, plan.BridgeName(o.VNet, o.VLAN))]
	case plan.ObjectUnderlay:
		return true
	case plan.ObjectRules:
		return false
	case plan.ObjectVXLAN, plan.ObjectVLAN:
		if o.Name != "" {
			return p.own[o.Name]
		}
		if o.VLAN != 0 {
			return p.own[plan.VLANName(o.VNet, o.VLAN)]
		}
		return p.own[plan.VXLANName(o.VNet)]
	}
	// Of forwarding entries and peers the part has those of devices that come and go.
	return slices.Contains(p.part.New, o.VNet) || slices.Contains(p.part.NoVXLANs, o.VNet)
}

// take replaces what was left to do of the part's objects, and of the devices of other NICs
// that were looked at.
func (p *partRun) take(work plan.Work) {
	open, seen := map[plan.Object]bool{}, map[plan.Object]bool{}
	for i := range work.Steps {
		open[work.Steps[i].Object] = true
	}
	for i := range work.Blocked {
		seen[work.Blocked[i].Object] = true
	}
	old := func(o plan.Object) bool { return p.has(o) || open[o] || seen[o] }
	maps.DeleteFunc(p.backoff, func(o plan.Object, _ waiting) bool { return p.has(o) && !open[o] })
	p.work.Steps = slices.DeleteFunc(p.work.Steps, func(s plan.Step) bool { return old(s.Object) })
	p.work.Blocked = slices.DeleteFunc(p.work.Blocked, func(b plan.Blocked) bool { return old(b.Object) })
	p.work.Steps = append(p.work.Steps, work.Steps...)
	p.work.Blocked = append(p.work.Blocked, work.Blocked...)
	p.missIn(p.read.Namespaces, p.missing, p.now)
	var all Result
	p.report(&all, p.work)
	p.left = p.leave(&all, &p.work, &p.last)
	p.lastMatched = all.Matched
	p.result.Links = len(p.last.VXLANs) + len(p.last.VLANs) + len(p.last.Fabrics)
	p.result.Part, p.result.Failures, p.result.Conflicts, p.result.RetryAt = true, all.Failures, all.Conflicts, all.RetryAt
}

// stir finds the NICs that are concerned by changed links and namespaces. What belongs to
// no NIC that is wanted is left to a pass, except for a namespace in which nothing of
// ours is or was.
func (m *Manager) stir(links []plan.LinkKey, namespaces []string) {
	for _, at := range links {
		mac, ok := m.ownerOf(at.Name)
		_, isPort := plan.PortNumber(at.Name)
		if now, wanted := m.keyOf(mac); !ok || !wanted || now != at && !isPort {
			m.doubt = true
			continue
		}
		m.stirred[mac] = true
	}
	if len(namespaces) == 0 {
		return
	}
	slices.Sort(namespaces)
	for i := range m.last.Fabrics {
		f := &m.last.Fabrics[i]
		if _, in := slices.BinarySearch(namespaces, f.Namespace); in {
			m.stirred[f.MAC] = true
		}
	}
	for _, name := range namespaces {
		for _, mac := range m.numbers.In(name) {
			if _, wanted := findFabric(m.last.Fabrics, mac); !wanted {
				m.doubt = true
			}
		}
	}
}

// ownerOf returns the MAC whose fabric link, or whose node's end, has a name.
func (m *Manager) ownerOf(name string) (log.MAC, bool) {
	n, ok := plan.FabricNumber(name)
	if !ok {
		n, _ = plan.PortNumber(name)
	}
	return m.numbers.Owner(n)
}

// follow makes last what is wanted after the part, and forgets the entries that were
// recorded since for what the part says anew.
func (m *Manager) follow(part *desired.Part) {
	if !m.lastOwned {
		m.last = desired.Links{
			VXLANs: slices.Clone(m.last.VXLANs), VLANs: slices.Clone(m.last.VLANs), Fabrics: slices.Clone(m.last.Fabrics),
			Neighs: slices.Clone(m.last.Neighs), FDB: slices.Clone(m.last.FDB), Problems: m.last.Problems,
			Segments: slices.Clone(m.last.Segments), Peers: slices.Clone(m.last.Peers),
		}
		m.lastOwned = true
	}
	part.Merge(&m.last)
	m.peers.follow(part)
	links := make(map[uint64]bool, len(part.NICs))
	for _, mac := range part.NICs {
		links[number(mac)] = true
	}
	maps.DeleteFunc(m.since.neighs, func(at neighAt, _ log.MAC) bool { return links[at.link] })
	if len(part.New)+len(part.NoVXLANs) > 0 {
		maps.DeleteFunc(m.since.forwards, func(at forwardAt, _ forwardTo) bool {
			return slices.Contains(part.New, at.device) || slices.Contains(part.NoVXLANs, at.device)
		})
	}
}
