package link

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// identifyingKernel is a Kernel that remembers which links are ours; *Netlink and
// *plan.Fake are.
type identifyingKernel interface {
	Identify(identify func(have *plan.Snapshot))
}

// filesKernel is a Kernel that knows each resolv.conf of the machine; *Netlink and
// *plan.Fake are.
type filesKernel interface {
	ResolverFiles() (map[string]string, error)
}

var (
	_ identifyingKernel = (*Netlink)(nil)
	_ identifyingKernel = (*plan.Fake)(nil)
	_ filesKernel       = (*Netlink)(nil)
	_ filesKernel       = (*plan.Fake)(nil)
)

// marks is whose links are ours (SAFETY L3).
type marks struct {
	want     *desired.Links // for the dump that runs
	part     *plan.Part     // what that dump shows; nil: everything
	identify bool           // the kernel calls Manager.identify itself
	unsaved  bool           // the numbers changed since they were saved
	renamed  map[plan.LinkKey]string
	// attach is what the sources of VMs say now, and refused what of that cannot be: see Attach.
	attach  map[log.MAC]desired.Attach
	refused map[log.MAC]error
	// others are clusters whose marks the last comparison without a known view saw.
	others []log.UUID
	// searched: a complete pass of this process looked at each resolv.conf of the machine.
	searched bool
}

// Attach takes where links of NICs end, as the sources of VMs say now (see
// agent.Agent.SetAttachments), and returns the NICs that it changes, in order: each needs a
// part, or a pass. What cannot be is not taken, and a Failure of its NIC. m keeps told. It is
// called by the goroutine that calls Pass.
func (m *Manager) Attach(told map[log.MAC]desired.Attach) (changed []log.MAC) {
	refused, unsaved := map[log.MAC]error{}, false
	for mac, a := range told {
		if err := plan.CheckAttach(a); err != nil {
			refused[mac] = fmt.Errorf("%w: %w", plan.ErrAttach, err)
			continue
		}
		if a.None {
			continue // what was told of it before ends with its link
		}
		before := m.numbers.Attach(mac)
		if m.numbers.Tell(mac, a) {
			changed = append(append(changed, mac), m.numbers.SameName(before, mac)...)
			unsaved = true
		}
	}
	for _, list := range []map[log.MAC]error{refused, m.marks.refused} {
		for mac := range list {
			if (refused[mac] == nil) != (m.marks.refused[mac] == nil) {
				changed = append(changed, mac)
			}
		}
	}
	was := m.marks.attach
	m.marks.attach, m.marks.refused = told, refused
	if unsaved && m.saveNumbers() != nil {
		m.marks.unsaved = true // the next pass saves them, or fails
	}
	changed = slices.DeleteFunc(changed, func(mac log.MAC) bool { _, numbered := m.numbers.Lookup(mac); return !numbered })
	for _, list := range []map[log.MAC]desired.Attach{was, told} { // one that was let go has no number
		for mac := range list {
			if was[mac].None != told[mac].None {
				changed = append(changed, mac)
			}
		}
	}
	slices.SortFunc(changed, log.MAC.Compare)
	return slices.Compact(changed)
}

// attachOf returns where the link of a NIC is to end.
func (m *Manager) attachOf(mac log.MAC) desired.Attach {
	if a, is := m.marks.attach[mac]; is && m.marks.refused[mac] == nil {
		return a
	}
	return m.numbers.Attach(mac)
}

// refusals are the NICs of this node whose source says what cannot be.
func refusals(m *Manager) (list []Failure) {
	for mac, err := range m.marks.refused {
		if _, numbered := m.numbers.Lookup(mac); numbered {
			list = append(list, Failure{Object: plan.Object{Kind: plan.ObjectFabric, MAC: mac}, Err: err})
		}
	}
	slices.SortFunc(list, func(a, b Failure) int { return a.Object.MAC.Compare(b.Object.MAC) })
	return list
}

// SetOwner sets the cluster whose log is followed, and this compute node: links and files are
// marked for them from the next pass on. Those that were marked for the clusters before stay
// ours, and get the new mark. It is called by the goroutine that calls Pass.
func (m *Manager) SetOwner(cluster, node log.UUID) {
	m.numbers.SetNode(node)
	if m.numbers.Follow(cluster) {
		m.marks.unsaved = true
		m.left, m.doubt = leftUndone{}, true // other marks are no drift
		m.marks.searched = false
	}
}

// Renamed lists the links of ours that were given other names, as they were seen last,
// as text. Their names are no trouble: steps use the ifindex.
func (m *Manager) Renamed() []string { return slices.Sorted(maps.Values(m.marks.renamed)) }

// dump is the kernel's, for a pass that wants these links.
func (m *Manager) dump(ctx context.Context, namespaces []string, want *desired.Links) (plan.Snapshot, error) {
	m.marks.want, m.marks.part = want, nil
	have, err := m.cfg.Kernel.Dump(ctx, namespaces)
	if err == nil && !m.marks.identify {
		m.identify(&have)
	}
	return have, err
}

// dumpPass is dump for a pass. Until a complete pass has looked at each resolv.conf of the
// machine, it has these too: the numbers may be those of an older cache, or of none, and then
// do not say where an earlier process wrote one.
func (m *Manager) dumpPass(ctx context.Context, namespaces []string, want *desired.Links, complete bool) (plan.Snapshot, error) {
	have, err := m.dump(ctx, namespaces, want)
	kernel, ok := m.cfg.Kernel.(filesKernel)
	if err != nil || !ok || !complete || m.marks.searched || m.numbers.Node().IsZero() {
		return have, err
	}
	files, err := kernel.ResolverFiles()
	if err != nil {
		if have.UnreadResolvers == nil {
			have.UnreadResolvers = map[string]error{}
		}
		have.UnreadResolvers[allResolvers] = err
	}
	maps.DeleteFunc(files, func(name, _ string) bool { _, read := have.Resolvers[name]; return read })
	have.Elsewhere = files
	return have, nil
}

// allResolvers stands for the namespaces of the machine in the Object of their resolv.conf.
// It is no namespace's name.
const allResolvers = "/"

// settleFiles records that a complete pass has looked at each resolv.conf of the machine, if
// it has, and has removed those of ours that are not wanted.
func (k *marks) settleFiles(node log.UUID, have *plan.Snapshot, left []plan.Step) {
	k.searched = k.searched || !node.IsZero() && have.UnreadResolvers[allResolvers] == nil &&
		!slices.ContainsFunc(left, func(s plan.Step) bool { return s.Op == plan.OpRemoveResolvers })
}

// dumpPart is the kernel's DumpPart, for a part that wants these links. A part shows too
// little to adopt links of versions without marks.
func (m *Manager) dumpPart(ctx context.Context, kernel plan.PartKernel, part plan.Part, want *desired.Links) (plan.Snapshot, error) {
	m.marks.want, m.marks.part = want, &part
	have, err := kernel.DumpPart(ctx, part)
	if err == nil && !m.marks.identify {
		m.identify(&have)
	}
	return have, err
}

// identify says which links of a dump are ours.
func (m *Manager) identify(have *plan.Snapshot) {
	m.claim(m.marks.want, have)
	plan.Identify(have, m.marks.want, m.numbers, m.cfg.UndoRenames)
	if part := m.marks.part; part != nil {
		maps.DeleteFunc(m.marks.renamed, func(at plan.LinkKey, _ string) bool { return part.Shows(at) })
	} else {
		m.marks.renamed = map[plan.LinkKey]string{}
	}
	for i := range have.Links {
		l := &have.Links[i]
		if delete(m.marks.renamed, l.Key()); l.Ours && l.NameNow() != l.NameToBe() {
			m.marks.renamed[l.Key()] = l.Place() + " was made as " + l.NameToBe()
		}
	}
}

// claim gives wanted MACs without a number the number of the link that seems to be theirs
// (has the MAC, or a mark for it, where it is wanted), whatever that link is called.
func (m *Manager) claim(want *desired.Links, have *plan.Snapshot) {
	numberless := map[plan.LinkKey]log.MAC{} // by namespace and MAC
	ports := map[log.MAC]bool{}              // the same NICs
	for i := range want.Fabrics {
		w := &want.Fabrics[i]
		if _, ok := m.numbers.Lookup(w.MAC); !ok {
			numberless[plan.LinkKey{Namespace: w.Namespace, Name: w.MAC.String()}] = w.MAC
			ports[w.MAC] = true
		}
	}
	if len(numberless) == 0 {
		return
	}
	taken := takenNames(have)
	for i := range have.Links {
		l := &have.Links[i]
		if mac := l.MarkedPort(); l.Kind == plan.KindTap && l.Namespace == "" && ports[mac] {
			claimTap(m, want, l, mac, taken)
		} else if l.Kind == plan.KindVeth && l.Namespace == "" && ports[mac] {
			if n, is := plan.PortNumber(l.NameNow()); is && m.numbers.Adopt(mac, n) {
				m.marks.unsaved = true
			}
		}
		if l.Kind != plan.KindMacvlan {
			continue
		}
		mac, ok := numberless[plan.LinkKey{Namespace: l.Namespace, Name: l.MAC.String()}]
		if !ok {
			mac, ok = numberless[plan.LinkKey{Namespace: l.Namespace, Name: l.MarkedNIC().String()}]
		}
		if !ok {
			continue
		}
		if n, is := plan.FabricNumber(l.NameNow()); !is || !m.numbers.Adopt(mac, n) {
			_, changed := m.numbers.Assign(mac, taken.in(l.Namespace))
			m.marks.unsaved = m.marks.unsaved || changed
			continue
		}
		m.marks.unsaved = true
	}
}

// claimTap gives a MAC without a number the tap that bears our mark for it, as it is: it may
// be a running VM's, and what was told of it is lost with the number.
func claimTap(m *Manager, want *desired.Links, l *plan.Link, mac log.MAC, taken names) {
	mark, _ := plan.ParseMark(l.Alias)
	a := desired.Attach{Tap: true, Name: l.NameNow(), User: l.User}
	if mark.Cluster != m.numbers.Cluster() || a.User == desired.NoUser || plan.CheckAttach(a) != nil {
		return
	}
	m.numbers.Assign(mac, taken.in(""))
	m.marks.unsaved = true
	if _, told := m.marks.attach[mac]; !told {
		m.numbers.Tell(mac, a)
	}
	want.Attach(m.attachOf)
}

// names are the fabric numbers of links in the kernel.
type names map[numberAt]struct{}

type numberAt struct {
	namespace string
	number    uint32
}

func takenNames(have *plan.Snapshot) names {
	taken := names{}
	for i := range have.Links {
		l := &have.Links[i]
		if n, ok := plan.FabricNumber(l.NameNow()); ok {
			taken[numberAt{l.Namespace, n}] = struct{}{}
		}
	}
	return taken
}

// in reports whether a number is taken for a link in a namespace. Links in the namespaces
// of other VMs take none, because their guests may make any.
func (t names) in(namespace string) func(uint32) bool {
	return func(n uint32) bool {
		_, own := t[numberAt{"", n}]
		_, there := t[numberAt{namespace, n}]
		return own || there
	}
}

// countOthers makes the links of clusters that this node does not know count as ours in a
// comparison, because they may be those of its own view before, which it lost. They stay
// foreign until an operator accepts what is held (acceptOthers).
func (m *Manager) countOthers(want *desired.Links, have *plan.Snapshot) {
	m.marks.others = nil
	for i := range have.Links {
		if mark, ok := plan.ParseMark(have.Links[i].Alias); ok && have.Links[i].Namespace == "" {
			m.marks.others = append(m.marks.others, mark.Cluster)
		}
	}
	if with, other := m.numbers.With(m.marks.others); other {
		plan.Identify(have, want, with, false)
	}
}

// acceptOthers takes over the links that countOthers counted: the hold for them has ended.
func (m *Manager) acceptOthers() {
	with, changed := m.numbers.With(m.marks.others)
	m.numbers, m.marks.others = with, nil
	m.marks.unsaved = m.marks.unsaved || changed
}

// settleMarks records that links without marks are foreign from now on, if a pass of a
// complete view has marked all that were adopted.
func (m *Manager) settleMarks(have *plan.Snapshot) {
	for i := range have.Links {
		l := &have.Links[i]
		if _, marked := plan.ParseMark(l.Alias); l.Ours && l.Namespace == "" && !marked {
			return
		}
	}
	m.marks.unsaved = m.numbers.SetMarked() || m.marks.unsaved
}
