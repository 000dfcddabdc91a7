package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections/desired"
)

// Identify decides which links of a dump are ours, and gives each of these the name under
// which it was made as its Name, whatever it is called now. It may be called again for the
// same snapshot. (SAFETY L3)
//
// In our own namespace a link is ours if it bears the mark of a cluster that this node
// follows or followed, for what it is (its vnet and VLAN, which cannot be changed), or if
// it was ours in the last dump. The group is enough for a link with one of our names: one
// that was made and not given its alias yet.
//
// In a VM's namespace the guest can change the name, mark, MAC and everything else of its
// link, and copy a mark. What it cannot change is what the link is on. There a link is
// ours if it is a macvlan on one of our devices, was made by us (it was known, has an
// ifindex that we choose, or a mark), and says in any way (known, MAC, mark, name) that
// it is of a NIC that belongs into that namespace. So nothing that a guest writes concerns
// another VM, or our own namespace. Of a veth pair the node's end decides, in our own
// namespace: the other end is ours, for the same NIC.
//
// Links of versions without marks are ours until Numbers.Marked, if all of their
// properties are those that such a version gave them: see identifier.adopts.
//
// undo: links that were renamed get their names back, if these are free.
func Identify(have *Snapshot, want *desired.Links, numbers Numbers, undo bool) {
	d := identifier{have: have, want: want, numbers: numbers, nics: make(map[log.MAC]*desired.Fabric, len(want.Fabrics)), own: map[int32]*Link{}, names: map[LinkKey]*Link{}}
	for i := range want.Fabrics {
		d.nics[want.Fabrics[i].MAC] = &want.Fabrics[i]
	}
	renamed := false
	for i := range have.Links {
		l := &have.Links[i]
		renamed = renamed || l.Now != ""
		l.Name, l.Now, l.As, l.Ours, l.RenameBack, l.Host = l.NameNow(), "", "", false, false, false
		if l.Namespace == "" {
			d.own[l.Index] = l
		}
	}
	d.each(func(l *Link) bool { return l.Kind == KindVXLAN }, d.link)
	d.each(func(l *Link) bool { return l.Kind == KindVLAN }, d.link)
	d.each(func(l *Link) bool { return l.Kind == KindBridge && l.Namespace == "" }, d.bridge)
	d.each(func(l *Link) bool { return (l.Kind == KindVeth || l.Kind == KindTap) && l.Namespace == "" }, d.host)
	d.each(func(l *Link) bool { return l.Kind == KindMacvlan || l.Kind == KindVeth && !l.Host }, d.link)
	for i := range have.Links {
		renamed = d.finish(&have.Links[i], undo) || renamed
	}
	if renamed {
		slices.SortFunc(have.Links, func(a, b Link) int { return CompareKey(a.Key(), b.Key()) })
	}
	have.identified = true
}

// identifier is one running Identify.
type identifier struct {
	have    *Snapshot
	want    *desired.Links
	numbers Numbers
	nics    map[log.MAC]*desired.Fabric
	own     map[int32]*Link // links in our own namespace, by ifindex
	claims  []claim
	names   map[LinkKey]*Link // links of ours, by the names under which they were made
}

// each decides about those links of which is reports true.
func (d *identifier) each(is func(l *Link) bool, decide func(l *Link)) {
	for i := range d.have.Links {
		if l := &d.have.Links[i]; is(l) {
			decide(l)
		}
	}
	d.place()
}

// claim is a link of ours, and the name under which it was made. Of several with the same
// name, the one of the lowest rank has it.
type claim struct {
	link *Link
	name string // "" if it is not known
	rank int
}

// Ranks of claims: how a link was recognized.
const (
	rankKnown = iota
	rankMAC
	rankMark
	rankName
	rankElsewhere // on another device than the NIC is wanted on
	rankNone
)

// link decides about one link. Links below it were decided before.
func (d *identifier) link(l *Link) {
	below := d.own[l.Below]
	if below != nil && below.Ours {
		l.Parent = below.Name
	}
	switch {
	case l.Kind == KindMacvlan && below != nil && below.Ours && (below.Kind == KindVXLAN || below.Kind == KindVLAN):
		d.fabric(l)
	case l.Kind == KindVeth && below != nil && below.Ours && below.Host:
		d.end(l, below)
	case l.Namespace != "":
	case l.Kind == KindVXLAN:
		d.device(l, VXLANName(l.VNI), 0)
	case l.Kind == KindVLAN && below != nil && below.Ours && below.Kind == KindVXLAN:
		d.device(l, VLANName(below.VNI, l.VLAN), below.VNI)
	}
}

// device decides about a VXLAN or VLAN device; name is the one that we give to such a
// device.
func (d *identifier) device(l *Link, name string, vnet uint32) {
	mark, has := ParseMark(l.Alias)
	switch {
	case l.Known == name:
		d.claims = append(d.claims, claim{l, name, rankKnown})
	case has && d.numbers.isMine(mark.Cluster) && mark.Object == objectOf(l, vnet, log.MAC{}):
		d.claims = append(d.claims, claim{l, name, rankMark})
	case has:
	case d.numbers.isMyGroup(l.Group) && l.Name == name, d.adopts(l, name):
		d.claims = append(d.claims, claim{l, name, rankName})
	}
}

// adopts reports whether a link without a mark was made by a version without marks, or by
// this one in the moment before the mark. Such a device has all the properties that we
// give it, and either is wanted exactly so, or has an ifindex of ours on a node for which
// such a version remembered numbers. Everything else with our names is foreign.
func (d *identifier) adopts(l *Link, name string) bool {
	if d.numbers.Marked() || l.Name != name {
		return false
	}
	before := l.Index >= FirstIndex && len(d.numbers.byMAC) > 0
	if l.Kind == KindVLAN {
		return before || slices.ContainsFunc(d.want.VLANs, func(w desired.VLAN) bool { return VLANName(w.VNet, w.ID) == name })
	}
	if !l.Proxy || !l.L2Miss || !l.L3Miss || l.Learning {
		return false
	}
	return before || slices.ContainsFunc(d.want.VXLANs, func(w desired.VXLAN) bool {
		return w.VNet == l.VNI && SameBuild(vxlanSpec(w), l) && l.MTU == w.MTU
	})
}

// bridge decides about a bridge. What it is of stands in its mark, which only root of the
// node writes.
func (d *identifier) bridge(l *Link) {
	mark, has := ParseMark(l.Alias)
	switch name := mark.bridge(); {
	case KindOfName(l.Known) == KindBridge:
		d.claims = append(d.claims, claim{l, l.Known, rankKnown})
	case has && d.numbers.isMine(mark.Cluster) && name != "":
		d.claims = append(d.claims, claim{l, name, rankMark})
	case has:
	case d.numbers.isMyGroup(l.Group) && KindOfName(l.Name) == KindBridge:
		d.claims = append(d.claims, claim{l, l.Name, rankName})
	}
}

// host decides about a veth link of our own namespace, which may be the node's end of the
// pair of a fabric link, or about a tap there. A tap is never without its mark: it becomes
// persistent after it has that.
func (d *identifier) host(l *Link) {
	mark, has := ParseMark(l.Alias)
	name := ""
	if n, ok := d.numbers.Lookup(mark.port()); ok {
		name = PortName(n)
	}
	switch {
	case KindOfName(l.Known) == KindVeth:
		d.claims = append(d.claims, claim{l, l.Known, rankKnown})
	case has && d.numbers.isMine(mark.Cluster) && name != "":
		d.claims = append(d.claims, claim{l, name, rankMark})
	case has && d.numbers.isMine(mark.Cluster) && !mark.port().IsZero():
		d.claims = append(d.claims, claim{link: l, rank: rankNone}) // of a NIC of which nothing is remembered
	case has:
		return
	case l.Kind == KindVeth && d.numbers.isMyGroup(l.Group) && KindOfName(l.Name) == KindVeth:
		d.claims = append(d.claims, claim{l, l.Name, rankName})
	default:
		return
	}
	l.Host, l.Parent = true, "" // its peer is on it, and not below it
	c := &d.claims[len(d.claims)-1]
	n, _ := PortNumber(c.name)
	mac, owned := d.numbers.Owner(n)
	if w := d.nics[mac]; owned && w != nil && w.Attach.Tap != (l.Kind == KindTap) {
		c.rank = rankElsewhere // a pair and a tap of one NIC: the wanted one has the name
	}
}

// end decides about the other end of a pair of ours. A guest cannot make one.
func (d *identifier) end(l, host *Link) {
	n, ok := PortNumber(host.Name)
	mac, owned := d.numbers.Owner(n)
	if ok && owned && d.belongs(mac, l.Namespace) {
		d.claims = append(d.claims, claim{l, FabricName(n), rankKnown})
	} else if l.Namespace == "" {
		d.claims = append(d.claims, claim{link: l, rank: rankNone})
	}
}

// fabric decides about a macvlan on one of our devices.
func (d *identifier) fabric(l *Link) {
	mark, has := ParseMark(l.Alias)
	mine := has && d.numbers.isMine(mark.Cluster)
	named := d.owner(l.Name)
	made := l.Known != "" || mine || !has && d.adoptsFabric(l, named)
	if l.Namespace == "" {
		made = made || !has && d.numbers.isMyGroup(l.Group) && KindOfName(l.Name) == KindMacvlan
	} else {
		made = made || l.Index >= FirstIndex || d.numbers.isMyGroup(l.Group) // whatever the mark says: the device below is ours
	}
	if !made {
		return
	}
	var marked log.MAC
	if mine {
		marked = mark.nic()
	}
	for rank, mac := range []log.MAC{rankKnown: d.owner(l.Known), rankMAC: l.MAC, rankMark: marked, rankName: named} {
		if n, ok := d.numbers.Lookup(mac); ok && d.belongs(mac, l.Namespace) {
			if w := d.nics[mac]; rank != rankKnown && w != nil && ParentName(w.VNet, w.VLAN) != l.Parent {
				rank = rankElsewhere
			}
			d.claims = append(d.claims, claim{l, FabricName(n), rank})
			return
		}
	}
	// What remains of a NIC of which nothing is remembered. A guest could make any number
	// of links that look so; they count only until the numbers are complete again.
	if l.Namespace == "" || mine && !d.numbers.Marked() {
		d.claims = append(d.claims, claim{link: l, rank: rankNone})
	}
}

// owner returns the MAC whose link has a name; the zero MAC if there is none.
func (d *identifier) owner(name string) (mac log.MAC) {
	if n, ok := FabricNumber(name); ok {
		mac, _ = d.numbers.Owner(n)
	}
	return mac
}

// adoptsFabric is adopts for a fabric link; named is the MAC that has its name.
func (d *identifier) adoptsFabric(l *Link, named log.MAC) bool {
	return !d.numbers.Marked() && KindOfName(l.Name) == KindMacvlan && l.Bridge && (named == l.MAC || d.wantedAs(l))
}

// belongs reports whether the link of a NIC is wanted in a namespace, or was put there.
func (d *identifier) belongs(mac log.MAC, namespace string) bool {
	if w := d.nics[mac]; w != nil && w.Namespace == namespace {
		return true
	}
	return namespace == "" || slices.Contains(d.numbers.Places(mac), namespace)
}

// wantedAs reports whether a NIC is wanted where a link with its MAC is, with at least the
// addresses that the link has.
func (d *identifier) wantedAs(l *Link) bool {
	w := d.nics[l.MAC]
	return w != nil && w.Namespace == l.Namespace && ParentName(w.VNet, w.VLAN) == l.Parent &&
		!slices.ContainsFunc(w.Addresses, func(a netip.Prefix) bool { return !slices.Contains(l.Addresses, a) })
}

// place gives the claimed names, by rank. In a VM's namespace, a further link that claims
// the same NIC is not ours; in our own namespace it is one too many.
func (d *identifier) place() {
	slices.SortStableFunc(d.claims, func(a, b claim) int { return cmp.Compare(a.rank, b.rank) })
	for _, c := range d.claims {
		at := LinkKey{c.link.Namespace, c.name}
		switch {
		case c.name != "" && d.names[at] == nil:
			c.link.Ours = true
			c.link.rename(c.name)
			d.names[at] = c.link
		case c.name == "" || c.link.Namespace == "":
			c.link.Ours = true
			if now := c.link.Key(); c.name != "" || d.names[now] != nil {
				c.link.rename(c.link.unique())
			} else {
				d.names[now] = c.link
			}
		}
	}
	d.claims = d.claims[:0]
}

// rename gives a link a Name, and keeps the one that it has in the kernel.
func (l *Link) rename(name string) {
	if now := l.NameNow(); now != name {
		l.Name, l.Now = name, now
	}
}

// unique is a Name that no other link has or can have.
func (l *Link) unique() string { return fmt.Sprintf("%s#%d", l.NameNow(), l.Index) }

// renamesBack reports whether a link of ours is to get the name that it is to have. It does
// not need that of another program if undo is false, except if it has the name that we gave
// it before the source of its VM told another one.
func (d *identifier) renamesBack(l *Link, undo bool) bool {
	if KindOfName(l.Name) == "" {
		return false
	}
	before := false
	if number, ok := FabricNumber(l.Name); ok || l.Kind == KindTap {
		if !ok {
			number, _ = PortNumber(l.Name)
		}
		mac, _ := d.numbers.Owner(number)
		if w := d.nics[mac]; w != nil && w.Attach.Tap == (l.Kind == KindTap) {
			l.As = w.Attach.Name
			before = l.NameNow() == d.numbers.was(mac) || l.As != "" && l.NameNow() == l.Name
		}
	}
	to := l.NameToBe()
	if before || !undo || l.NameNow() == to {
		return before && l.NameNow() != to // if another link has the name, the kernel says so
	}
	return !slices.ContainsFunc(d.have.Links, func(other Link) bool {
		return other.Namespace == l.Namespace && other.NameNow() == to
	})
}

// finish completes what depends on all links, and reports whether the link has another
// Name than in the kernel.
func (d *identifier) finish(l *Link, undo bool) bool {
	l.Master = ""
	if l.MasterIndex != 0 {
		l.Master = fmt.Sprintf("#%d", l.MasterIndex) // another program's
		if master := d.own[l.MasterIndex]; master != nil && l.Namespace == "" && master.Ours {
			l.Master = master.Name
		}
	}
	if l.Ours {
		l.RenameBack = d.renamesBack(l, undo)
		return l.Now != ""
	}
	// What is on a foreign link is not looked at, so that nothing of it is taken for an
	// entry of ours.
	l.Addresses, l.Routes, l.Neighs, l.FDB, l.Static, l.Host = nil, nil, nil, nil, nil, false
	if below := d.own[l.Below]; l.Namespace == "" && below != nil && below.Ours && !slices.Contains(below.Guests, l.Name) {
		below.Guests = append(slices.Clone(below.Guests), l.Name)
		slices.Sort(below.Guests)
	}
	if d.names[l.Key()] != nil {
		l.rename(l.unique()) // the link of ours that had this name was renamed
	}
	return l.Now != ""
}
