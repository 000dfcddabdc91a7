package plan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"rutter/agent/filter"
)

// Fake is a kernel in memory, for tests. It behaves like the real one (links on a
// deleted link are deleted, a changed MAC empties the neighbour table, a lowered MTU
// lowers those above) and prints itself like ip(8). The zero value has our own
// namespace only, and no links.
type Fake struct {
	Links      []*Link
	namespaces map[string]bool
	resolvers  map[string]string
	lastIndex  int32
	identify   func(have *Snapshot)
	index      map[LinkKey]int32 // of the links of ours, by their Names

	// Filter is the table of the rules; nil: there is none.
	Filter filter.Table
	// Interfaces are links beside Links.
	Interfaces []Interface

	No8021Q bool                  // VLAN links cannot be made
	Fail    func(step Step) error // if set, may make a step fail
	Done    []Step                // every step that succeeded
}

var _ Kernel = (*Fake)(nil)

// AddNamespace makes a VM namespace.
func (f *Fake) AddNamespace(name string) {
	if f.namespaces == nil {
		f.namespaces = map[string]bool{}
	}
	f.namespaces[name] = true
}

// Identify makes Dump call f, which says which links are ours, as Netlink.Identify.
func (f *Fake) Identify(identify func(have *Snapshot)) { f.identify = identify }

// Rename renames a link as another program would.
func (f *Fake) Rename(namespace, name, to string) bool {
	return f.Edit(namespace, name, func(l *Link) {
		l.Name = to
		for _, child := range f.Links {
			if namespace == "" && child.Parent == name {
				child.Parent = to
			}
			if namespace == "" && child.Master == name {
				child.Master = to
			}
		}
	})
}

// DeleteNamespace removes a VM namespace and the links in it.
func (f *Fake) DeleteNamespace(name string) {
	delete(f.namespaces, name)
	for _, l := range slices.Clone(f.Links) {
		if l.Namespace == name {
			f.DeleteLink(name, l.Name)
		}
	}
}

// AddLink adds a link as another program would. It fails if the name is taken. The fake
// chooses the ifindex unless that is given.
func (f *Fake) AddLink(l Link) error {
	if f.Find(l.Key()) != nil {
		return syscall.EEXIST
	}
	f.lastIndex++
	if l.Index == 0 {
		l.Index = f.lastIndex
	}
	f.Links = append(f.Links, &l)
	return nil
}

// DeleteLink deletes a link and the links on it, as ip(8) would.
func (f *Fake) DeleteLink(namespace, name string) {
	l := f.Find(LinkKey{namespace, name})
	if l == nil {
		return
	}
	f.Links = slices.DeleteFunc(f.Links, func(other *Link) bool { return other == l })
	if l.Kind == KindVeth && l.Parent != "" {
		f.DeleteLink("", l.Parent) // the ends of a pair go together
	}
	if namespace != "" {
		return
	}
	for _, child := range slices.Clone(f.Links) {
		if child.Parent == name {
			f.DeleteLink(child.Namespace, child.Name)
		}
		if child.Master == name {
			f.setMaster(child, "")
		}
	}
}

// Edit lets a test change a link as another program would. It reports whether the link
// exists.
func (f *Fake) Edit(namespace, name string, change func(l *Link)) bool {
	l := f.Find(LinkKey{namespace, name})
	if l != nil {
		change(l)
	}
	return l != nil
}

// ResolverFiles returns each resolv.conf by its namespace, as Netlink.ResolverFiles.
func (f *Fake) ResolverFiles() (map[string]string, error) { return maps.Clone(f.resolvers), nil }

// Dump implements Kernel.
func (f *Fake) Dump(ctx context.Context, namespaces []string) (Snapshot, error) {
	have := Snapshot{Resolvers: map[string]string{}, Interfaces: f.Interfaces}
	if f.Filter != nil {
		have.Rules, have.RulesErr = f.Filter.Read(ctx)
	}
	for _, name := range namespaces {
		if !f.namespaces[name] {
			have.Missing = append(have.Missing, name)
		}
		if text, ok := f.resolvers[name]; ok {
			have.Resolvers[name] = text
		}
	}
	type place struct {
		namespace string
		index     int32
	}
	own, known := map[string]int32{}, map[place]string{}
	for _, l := range f.Links {
		if l.Namespace == "" {
			own[l.Name] = l.Index
		}
	}
	for at, index := range f.index {
		known[place{at.Namespace, index}] = at.Name
	}
	for _, l := range f.Links {
		if !MayBeOurs(l) || l.Namespace != "" && !slices.Contains(namespaces, l.Namespace) {
			continue
		}
		seen := *l
		seen.Below, seen.Known = own[l.Parent], known[place{l.Namespace, l.Index}]
		seen.MasterIndex, seen.Static = own[l.Master], slices.Clone(l.Static)
		seen.Addresses, seen.Routes = slices.Clone(l.Addresses), slices.Clone(l.Routes)
		seen.Neighs, seen.FDB = slices.Clone(l.Neighs), slices.Clone(l.FDB)
		seen.Guests = nil
		for _, guest := range f.Links {
			if guest.Parent == l.Name && l.Namespace == "" && !MayBeOurs(guest) {
				seen.Guests = append(seen.Guests, guest.Name)
			}
		}
		have.Links = append(have.Links, seen)
	}
	have.Sort()
	if f.identify != nil {
		f.identify(&have)
		f.index = map[LinkKey]int32{}
		for i := range have.Links {
			if have.Links[i].Ours {
				f.index[have.Links[i].Key()] = have.Links[i].Index
			}
		}
	}
	return have, nil
}

// at returns the link that a step is about.
func (f *Fake) at(key LinkKey) *Link {
	index, ok := f.index[key]
	if !ok {
		return f.Find(key)
	}
	for _, l := range f.Links {
		if l.Index == index && l.Namespace == key.Namespace {
			return l
		}
	}
	return nil
}

// Do implements Kernel.
func (f *Fake) Do(ctx context.Context, steps []Step) []error {
	var errs []error
	failed := map[LinkKey]bool{}
	for i, step := range steps {
		at := LinkKey{step.Namespace, step.Link}
		var err error
		switch {
		case failed[at] && step.Op == OpSetLink:
			err = ErrNotMade
		case step.Rule != nil:
			err = f.rule(ctx, &step)
			failed[at] = err != nil && step.Link != ""
		default:
			err = f.do(step)
		}
		if err == nil {
			f.Done = append(f.Done, step)
			continue
		}
		if errs == nil {
			errs = make([]error, len(steps))
		}
		errs[i] = fmt.Errorf("%s: %w", step, err)
	}
	return errs
}

// Find returns the link itself, or nil: changes to it change the kernel.
func (f *Fake) Find(at LinkKey) *Link {
	for _, l := range f.Links {
		if l.Key() == at {
			return l
		}
	}
	return nil
}

func (f *Fake) do(s Step) error {
	if f.Fail != nil {
		if err := f.Fail(s); err != nil {
			return err
		}
	}
	switch s.Op {
	case OpAddLink:
		return f.addLink(s.Spec)
	case OpDelLink:
		if l := f.at(LinkKey{s.Namespace, s.Link}); l != nil {
			f.DeleteLink(s.Namespace, l.Name)
		}
		return nil
	case OpWriteResolvers:
		if f.resolvers == nil {
			f.resolvers = map[string]string{}
		}
		f.resolvers[s.Namespace] = s.Content
		return nil
	case OpRemoveResolvers:
		delete(f.resolvers, s.Namespace)
		return nil
	}
	l := f.at(LinkKey{s.Namespace, s.Link})
	if l == nil {
		return ErrNotMade
	}
	if s.Op == OpSetLink {
		return f.setLink(l, &s)
	}
	return applyStep(l, s)
}

func (f *Fake) addLink(spec *Link) error {
	if spec.Kind == KindVLAN && f.No8021Q {
		return ErrNo8021Q
	}
	if spec.Namespace != "" && !f.namespaces[spec.Namespace] {
		return ErrNoNamespace
	}
	made := *spec
	made.Ours = false
	if spec.Peer != nil {
		return f.addPair(made)
	}
	if spec.Kind == KindTap {
		return f.addTap(made)
	}
	if spec.Parent != "" {
		parent := f.at(LinkKey{"", spec.Parent})
		if parent == nil {
			return ErrNotMade
		}
		if spec.MTU > parent.MTU {
			return syscall.ERANGE
		}
		if spec.Kind == KindMacvlan && parent.Master != "" {
			return syscall.EBUSY
		}
		made.Parent = parent.Name
	}
	for _, l := range f.Links {
		if spec.Kind == KindMacvlan && l.Kind == KindMacvlan && l.Parent == made.Parent && l.MAC == spec.MAC {
			return syscall.EBUSY
		}
	}
	made.Index = FirstIndex + f.lastIndex
	delete(f.index, spec.Key())
	if spec.Kind == KindMacvlan {
		made.Alias = "" // the kernel takes none at creation
		made.ARP, made.ND = Probes{Known: true, Mcast: 3}, Probes{Known: true, Mcast: 3}
	}
	return f.addAs(made)
}

func (f *Fake) setLink(l *Link, s *Step) error {
	if s.Change&ChangeMTU != 0 {
		if parent := f.Find(LinkKey{"", l.Parent}); parent != nil && l.Kind != KindVeth && s.Spec.MTU > parent.MTU {
			return syscall.ERANGE
		}
		f.lowerMTU(l, s.Spec.MTU)
	}
	if s.Change&ChangeMAC != 0 {
		l.Neighs = nil
	}
	if s.Change&ChangeName != 0 {
		if !f.Rename(l.Namespace, l.Name, s.Spec.NameToBe()) {
			return ErrNotMade
		}
		f.know(LinkKey{s.Namespace, s.Link}, l)
	}
	if s.Change&ChangeMaster != 0 {
		if err := f.join(l, s.Spec.Master); err != nil {
			return err
		}
	}
	master := l.Master
	l.Apply(s)
	l.As, l.Now = "", ""
	l.Master = master // by the name that the bridge has now
	return nil
}

// lowerMTU lowers the MTU of a link and of those above it; it never raises one.
func (f *Fake) lowerMTU(l *Link, mtu uint32) {
	l.MTU = min(l.MTU, mtu)
	for _, child := range f.Links {
		if l.Namespace == "" && child.Parent == l.Name && child.Kind != KindVeth {
			f.lowerMTU(child, mtu)
		}
	}
}

// applyStep changes one link as a step about something on it says.
func applyStep(l *Link, s Step) error {
	switch s.Op {
	case OpSetProbes:
		if s.Addr.Is6() {
			l.ND = s.Probes()
		} else {
			l.ARP = s.Probes()
		}
	case OpAddAddress, OpDelAddress, OpSetRoute, OpDelRoute, OpSetStatic, OpDelStatic, OpAddFlood, OpDelFlood:
		l.Apply(&s)
	case OpSetNeigh:
		l.Neighs = put(l.Neighs, Neighbour{IP: s.Addr, MAC: s.MAC}, compareNeighbour)
	case OpDelNeigh:
		l.Neighs = drop(l.Neighs, Neighbour{IP: s.Addr}, compareNeighbour)
	case OpSetFDB:
		l.FDB = put(l.FDB, Forward{MAC: s.MAC, Dst: s.Addr, Port: s.Port, Permanent: true}, compareForwardMAC)
	case OpDelFDB:
		l.FDB = drop(l.FDB, Forward{MAC: s.MAC}, compareForwardMAC)
	default:
		return fmt.Errorf("link: the fake kernel cannot do %s", s)
	}
	return nil
}

func compareForwardMAC(a, b Forward) int { return a.MAC.Compare(b.MAC) }

// String prints all links, in order.
func (f *Fake) String() string {
	links := slices.Clone(f.Links)
	slices.SortFunc(links, func(a, b *Link) int { return CompareKey(a.Key(), b.Key()) })
	var b strings.Builder
	for _, l := range links {
		b.WriteString(l.String())
	}
	return b.String()
}
