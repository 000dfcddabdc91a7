package plan

import (
	"context"
	"slices"
)

// Part says what a dump of a part of the kernel shows.
type Part struct {
	// Namespaces are VM namespaces, each of which is read whole. They are sorted.
	Namespaces []string
	// Links are links of our own namespace, by name. Those below a link that is shown
	// are shown too.
	Links []string
	// Entries are the VXLAN devices whose forwarding entries are shown. Other VXLAN
	// devices are shown without any.
	Entries []string
	// All shows all links of ours in our own namespace, and the Guests of each; without
	// it Guests is empty.
	All bool
}

// Shows reports whether a dump of p shows a link if it is there, by the name under which it
// was made.
func (p *Part) Shows(at LinkKey) bool {
	if at.Namespace == "" {
		return p.All || slices.Contains(p.Links, at.Name)
	}
	_, is := slices.BinarySearch(p.Namespaces, at.Namespace)
	return is
}

// PartKernel is a Kernel that can read a part, at a cost of that part.
type PartKernel interface {
	Kernel
	// DumpPart is Dump of a part.
	DumpPart(ctx context.Context, part Part) (Snapshot, error)
}

var _ PartKernel = (*Fake)(nil)

// DumpPart implements PartKernel.
func (f *Fake) DumpPart(ctx context.Context, part Part) (Snapshot, error) {
	have, err := f.Dump(ctx, part.Namespaces)
	if err != nil {
		return have, err
	}
	shown := map[string]bool{}
	for _, name := range part.Links {
		shown[name] = true
	}
	byKey := have.ByKey()
	below := func(name string) {
		for l := byKey[LinkKey{"", name}]; l != nil; l = byKey[LinkKey{"", l.Parent}] {
			shown[l.Name] = true
		}
	}
	for i := range have.Links {
		if l := &have.Links[i]; l.Namespace != "" || shown[l.Name] {
			below(l.Parent)
		}
	}
	have.Links = slices.DeleteFunc(have.Links, func(l Link) bool { return l.Namespace == "" && !part.All && !shown[l.Name] })
	for i := range have.Links {
		l := &have.Links[i]
		if l.Kind == KindVXLAN && !slices.Contains(part.Entries, l.Name) {
			l.FDB = nil
		}
		if !part.All {
			l.Guests = nil
		}
	}
	return have, nil
}
