package link

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"rutter/projections"
)

// Fake is a kernel in memory, for tests: it keeps links the way that the real
// one does (what is stacked on a deleted link goes with it, a changed MAC
// empties the neighbour table, a lowered MTU lowers those above) and prints
// itself like ip(8). The zero value has our own namespace only, and no links.
type Fake struct {
	links      []*Link
	namespaces map[string]bool
	resolvers  map[string]string
	lastIndex  int32

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

// DeleteNamespace takes a VM namespace away, and the links in it.
func (f *Fake) DeleteNamespace(name string) {
	delete(f.namespaces, name)
	f.links = slices.DeleteFunc(f.links, func(l *Link) bool { return l.Namespace == name })
}

// AddLink puts a link there as somebody else would. It fails if the place is
// taken.
func (f *Fake) AddLink(l Link) error {
	if f.find(l.place()) != nil {
		return syscall.EEXIST
	}
	f.lastIndex++
	l.Index = f.lastIndex
	f.links = append(f.links, &l)
	return nil
}

// DeleteLink deletes a link and what is stacked on it, as ip(8) would.
func (f *Fake) DeleteLink(namespace, name string) {
	l := f.find(place{namespace, name})
	if l == nil {
		return
	}
	f.links = slices.DeleteFunc(f.links, func(other *Link) bool { return other == l })
	if namespace != "" {
		return
	}
	for _, child := range slices.Clone(f.links) {
		if child.Parent == name {
			f.DeleteLink(child.Namespace, child.Name)
		}
	}
}

// Edit lets a test change a link as somebody else would. It reports whether the
// link is there.
func (f *Fake) Edit(namespace, name string, change func(l *Link)) bool {
	l := f.find(place{namespace, name})
	if l != nil {
		change(l)
	}
	return l != nil
}

// Dump implements Kernel.
func (f *Fake) Dump(_ context.Context, namespaces []string) (Snapshot, error) {
	have := Snapshot{Resolvers: map[string]string{}}
	for _, name := range namespaces {
		if !f.namespaces[name] {
			have.Missing = append(have.Missing, name)
		}
		if text, ok := f.resolvers[name]; ok {
			have.Resolvers[name] = text
		}
	}
	for _, l := range f.links {
		if kindOfName(l.Name) == "" || l.Namespace != "" && !slices.Contains(namespaces, l.Namespace) {
			continue
		}
		seen := *l
		seen.Addresses, seen.Routes = slices.Clone(l.Addresses), slices.Clone(l.Routes)
		seen.Neighs, seen.FDB = slices.Clone(l.Neighs), slices.Clone(l.FDB)
		seen.Guests = nil
		for _, guest := range f.links {
			if guest.Parent == l.Name && l.Namespace == "" && kindOfName(guest.Name) != guest.Kind {
				seen.Guests = append(seen.Guests, guest.Name)
			}
		}
		have.Links = append(have.Links, seen)
	}
	have.sort()
	return have, nil
}

// Do implements Kernel.
func (f *Fake) Do(_ context.Context, steps []Step) []error {
	var errs []error
	for i, step := range steps {
		err := f.do(step)
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

func (f *Fake) find(at place) *Link {
	for _, l := range f.links {
		if l.place() == at {
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
		f.DeleteLink(s.Namespace, s.Link)
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
	l := f.find(place{s.Namespace, s.Link})
	if l == nil {
		return ErrNotMade
	}
	if s.Op == OpSetLink {
		return f.setLink(l, s)
	}
	return l.change(s)
}

func (f *Fake) addLink(spec *Link) error {
	if spec.Kind == kindVLAN && f.No8021Q {
		return ErrNo8021Q
	}
	if spec.Namespace != "" && !f.namespaces[spec.Namespace] {
		return ErrNoNamespace
	}
	if spec.Parent != "" {
		parent := f.find(place{"", spec.Parent})
		if parent == nil {
			return ErrNotMade
		}
		if spec.MTU > parent.MTU {
			return syscall.ERANGE
		}
	}
	for _, l := range f.links {
		if spec.Kind == kindMacvlan && l.Kind == kindMacvlan && l.Parent == spec.Parent && l.MAC == spec.MAC {
			return syscall.EBUSY
		}
	}
	made := *spec
	if spec.Kind == kindMacvlan {
		made.ARP, made.ND = Probes{Known: true, Mcast: 3}, Probes{Known: true, Mcast: 3}
	}
	return f.AddLink(made)
}

func (f *Fake) setLink(l *Link, s Step) error {
	if s.Change&ChangeMAC != 0 {
		l.MAC, l.Neighs = s.Spec.MAC, nil
	}
	if s.Change&ChangeUp != 0 {
		l.Up = true
	}
	if s.Change&ChangeQuietIPv6 != 0 {
		l.QuietIPv6 = true
	}
	if s.Change&ChangeMTU != 0 {
		if parent := f.find(place{"", l.Parent}); parent != nil && s.Spec.MTU > parent.MTU {
			return syscall.ERANGE
		}
		f.lowerMTU(l, s.Spec.MTU)
		l.MTU = s.Spec.MTU
	}
	return nil
}

// lowerMTU lowers the MTU of a link and of those above it, never raising any.
func (f *Fake) lowerMTU(l *Link, mtu uint32) {
	l.MTU = min(l.MTU, mtu)
	for _, child := range f.links {
		if l.Namespace == "" && child.Parent == l.Name {
			f.lowerMTU(child, mtu)
		}
	}
}

// change does to one link what a step says about the things that hang on it.
func (l *Link) change(s Step) error {
	switch s.Op {
	case OpSetProbes:
		if s.Addr.Is6() {
			l.ND = wantProbes
		} else {
			l.ARP = wantProbes
		}
	case OpAddAddress:
		l.Addresses = put(l.Addresses, s.Prefix, comparePrefix)
	case OpDelAddress:
		l.Addresses = drop(l.Addresses, s.Prefix, comparePrefix)
	case OpSetRoute:
		l.Routes = put(l.Routes, projections.Route{Dst: s.Prefix, Gateway: s.Addr}, compareRoute)
	case OpDelRoute:
		l.Routes = drop(l.Routes, projections.Route{Dst: s.Prefix}, compareRoute)
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

func compareForwardMAC(a, b Forward) int { return compareMAC(a.MAC, b.MAC) }

func drop[E any](list []E, e E, compare func(E, E) int) []E {
	return slices.DeleteFunc(list, func(other E) bool { return compare(other, e) == 0 })
}

func put[E any](list []E, e E, compare func(E, E) int) []E {
	list = append(drop(list, e, compare), e)
	slices.SortFunc(list, compare)
	return list
}

// String prints all links, in order.
func (f *Fake) String() string {
	links := slices.Clone(f.links)
	slices.SortFunc(links, func(a, b *Link) int { return comparePlace(a.place(), b.place()) })
	var b strings.Builder
	for _, l := range links {
		b.WriteString(l.String())
	}
	return b.String()
}

// String prints a link and what hangs on it, after the manner of ip -d link,
// and without its ifindex.
func (l *Link) String() string {
	var b strings.Builder
	name := l.Name
	if l.Parent != "" {
		name += "@" + l.Parent
	}
	state := "DOWN"
	if l.Up {
		state = "UP"
	}
	if l.Namespace != "" {
		fmt.Fprintf(&b, "[%s] ", l.Namespace)
	}
	fmt.Fprintf(&b, "%s: mtu %d state %s\n    %s", name, l.MTU, state, l.Kind)
	switch l.Kind {
	case kindVXLAN:
		fmt.Fprintf(&b, " id %d local %s dstport %d%s%s%s%s", l.VNI, l.Local, l.Port,
			flagText(" learning", l.Learning), flagText(" proxy", l.Proxy), flagText(" l2miss", l.L2Miss), flagText(" l3miss", l.L3Miss))
	case kindVLAN:
		fmt.Fprintf(&b, " protocol 802.1Q id %d", l.VLAN)
	case kindMacvlan:
		fmt.Fprintf(&b, "%s address %s app_probes %d/%d", flagText(" mode bridge", l.Bridge), l.MAC, l.ARP.App, l.ND.App)
	}
	b.WriteString(flagText(" addrgenmode none", l.QuietIPv6) + "\n")
	for _, a := range l.Addresses {
		fmt.Fprintf(&b, "    inet %s\n", a)
	}
	for _, r := range l.Routes {
		fmt.Fprintf(&b, "    route %s via %s\n", r.Dst, r.Gateway)
	}
	for _, n := range l.Neighs {
		fmt.Fprintf(&b, "    neigh %s lladdr %s PERMANENT\n", n.IP, n.MAC)
	}
	for _, e := range l.FDB {
		fmt.Fprintf(&b, "    fdb %s dst %s port %d self%s\n", e.MAC, e.Dst, e.Port, flagText(" permanent", e.Permanent))
	}
	return b.String()
}

func flagText(text string, set bool) string {
	if set {
		return text
	}
	return ""
}
