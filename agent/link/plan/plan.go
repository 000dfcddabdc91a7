package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"rutter/log"
	"rutter/projections/desired"
)

// Work is the result of Plan: the steps, and the objects that cannot be made.
type Work struct {
	Steps   []Step
	Blocked []Blocked // in the order found: links from below to above
}

// Blocked says why an object cannot be changed. Err wraps one of this package's errors
// for the foreseen reasons.
type Blocked struct {
	Object Object
	Err    error
	// Namespace is the VM namespace that is missing or cannot be read, if that is the
	// reason. RetryAt is when it is read again; zero: with the next dump.
	Namespace string
	RetryAt   time.Time
}

// String reads "object: reason".
func (b Blocked) String() string { return b.Object.String() + ": " + b.Err.Error() }

// Plan compares what is wanted with what exists. It is pure, and equal arguments give
// equal work. The order is: rebuilding deletes, links from below to above, addresses,
// forwarding entries, neighbours (after the forwarding entries, because they release
// waiting packets), routes, resolvers, deletes. Without prune (the view of the log is
// not complete yet) only what is in the way of a wanted object is deleted. After all
// steps, if no other program changes the kernel, the next Plan is empty except for
// Blocked.
//
// A snapshot that Identify has not seen is identified first, without a renaming back.
func Plan(want desired.Links, have Snapshot, numbers Numbers, prune bool) Work {
	return PlanSecured(want, have, numbers, prune, Secure{})
}

// PlanSecured is Plan for a node whose links are attached as secure says. With port
// security the host end of a new link is put up when its rules are there, and a peer is
// taken before there are forwarding entries to it, and until after the last is deleted.
func PlanSecured(want desired.Links, have Snapshot, numbers Numbers, prune bool, secure Secure) Work {
	if !have.identified {
		have.Links = slices.Clone(have.Links)
		Identify(&have, &want, numbers, false)
	}
	p := &planner{
		want: want, numbers: numbers, prune: prune, secure: secure, have: &have, existing: have.ByKey(),
		gone: map[LinkKey]bool{}, kept: map[LinkKey]bool{}, state: map[LinkKey]*linkState{},
		named:    make(map[LinkKey]*Link, len(have.Links)),
		children: map[string][]*Link{}, byMAC: map[log.MAC][]*Link{}, foreign: map[holder]*Link{}, missing: map[string]bool{}, unread: have.Unread,
	}
	p.want.VXLANs = sorted(want.VXLANs, func(a, b desired.VXLAN) int { return cmp.Compare(a.VNet, b.VNet) })
	p.want.Fabrics = sorted(want.Fabrics, func(a, b desired.Fabric) int { return a.MAC.Compare(b.MAC) })
	for i := range have.Links {
		p.index(&have.Links[i])
	}
	for _, name := range have.Missing {
		p.missing[name] = true
	}
	p.markWanted()
	p.vxlans()
	p.vlans()
	p.bridges()
	p.fabrics()
	p.forwards()
	p.neighs()
	p.resolvers(&have)
	if prune {
		p.pruneLinks(have.Links)
	}
	p.filter()
	steps := slices.Concat(p.rebuild, p.peers, p.links, p.addresses, p.rules, p.ups, p.fdb, p.neigh, p.routes, p.files,
		p.delNeigh, p.delFDB, p.delRoutes, p.delAddresses, p.delLinks, p.delPeers, p.delRules)
	return Work{Steps: steps, Blocked: p.blocked}
}

// planner is one running Plan.
type planner struct {
	want    desired.Links
	numbers Numbers
	prune   bool
	secure  Secure
	have    *Snapshot

	existing map[LinkKey]*Link
	named    map[LinkKey]*Link      // all links by their names in the kernel
	children map[string][]*Link     // our links by the name of their parent
	byMAC    map[log.MAC][]*Link    // our fabric links
	foreign  map[holder]*Link       // foreign links on ours
	missing  map[string]bool        // namespaces
	unread   map[string]Unread      // namespaces
	kept     map[LinkKey]bool       // wanted links, blocked or not: never pruned
	gone     map[LinkKey]bool       // existing links that the steps delete
	state    map[LinkKey]*linkState // wanted links that are not blocked
	fabric   []fabricState          // beside want.Fabrics

	rebuild, links, addresses, fdb, neigh, routes, files []Step
	delNeigh, delFDB, delRoutes, delAddresses, delLinks  []Step
	peers, rules, ups, delPeers, delRules                []Step
	guarded                                              guarded // what has rules, with port security
	blocked                                              []Blocked
}

// linkState is a wanted link with its steps planned. have is nil if the link is made
// again, so that nothing is on it.
type linkState struct {
	have *Link
}

type fabricState struct {
	key LinkKey
	*linkState
}

// holder is a MAC on a link of ours: the kernel allows each once.
type holder struct {
	parent string
	mac    log.MAC
}

func (p *planner) index(l *Link) {
	p.named[LinkKey{l.Namespace, l.NameNow()}] = l
	if !l.Ours {
		if l.Parent != "" && l.Kind == KindMacvlan {
			p.foreign[holder{l.Parent, l.MAC}] = l
		}
		return
	}
	if l.Parent != "" {
		p.children[l.Parent] = append(p.children[l.Parent], l)
	}
	if l.IsFabric() {
		p.byMAC[l.MAC] = append(p.byMAC[l.MAC], l)
	}
}

// markWanted records every wanted link.
func (p *planner) markWanted() {
	for _, w := range p.want.VXLANs {
		p.kept[LinkKey{"", VXLANName(w.VNet)}] = true
	}
	for _, w := range p.want.VLANs {
		p.kept[LinkKey{"", VLANName(w.VNet, w.ID)}] = true
	}
	for _, w := range p.want.Fabrics {
		if n, ok := p.numbers.Lookup(w.MAC); ok {
			p.kept[LinkKey{w.Namespace, FabricName(n)}] = true
			p.kept[LinkKey{"", PortName(n)}] = p.secure.On || w.Attach.Tap // a tap stays with the VM that has it open
		}
	}
	if p.secure.On {
		for _, s := range SegmentsOf(&p.want) {
			p.kept[LinkKey{"", BridgeName(s.VNet, s.VLAN)}] = true
		}
	}
}

func (p *planner) block(o Object, format string, args ...any) {
	p.blocked = append(p.blocked, Blocked{Object: o, Err: fmt.Errorf(format, args...)})
}

// remove plans the deletion of a link of ours that is in the way, with the links on it.
// It refuses, with a reason, if that would delete a foreign link, or one that only a
// complete view may remove.
func (p *planner) remove(o Object, l *Link) bool {
	if p.gone[l.Key()] {
		return true
	}
	l = p.whole(l)
	if err := p.checkRemovable(l, p.prune); err != nil {
		p.block(o, "must be rebuilt: %w", err)
		return false
	}
	p.rebuild = append(p.rebuild, Step{Op: OpDelLink, Object: o, Namespace: l.Namespace, Link: l.Name})
	p.markGone(l)
	return true
}

// whole returns the link with which l is deleted: of a veth pair the node's end, which no
// guest reaches.
func (p *planner) whole(l *Link) *Link {
	if l.Kind == KindVeth && !l.Host {
		if host := p.existing[LinkKey{"", l.Parent}]; host != nil && host.Ours && host.Host {
			return host
		}
	}
	return l
}

// checkRemovable returns why l and the links on it must not be deleted. Links above
// must be wanted (they will be made again) unless anything is true.
func (p *planner) checkRemovable(l *Link, anything bool) error {
	if len(l.Guests) > 0 {
		return fmt.Errorf("%w: %s carries %s: remove that link first", ErrForeign, l.NameNow(), l.Guests[0])
	}
	if l.IsFabric() {
		return nil
	}
	for _, child := range p.children[l.Name] {
		if p.gone[child.Key()] {
			continue
		}
		if !anything && !p.kept[child.Key()] {
			return fmt.Errorf("%w: %s carries %s", ErrIncomplete, l.Name, child.Name)
		}
		if err := p.checkRemovable(child, anything); err != nil {
			return err
		}
	}
	return nil
}

// markGone records that l is deleted, with the links on it.
func (p *planner) markGone(l *Link) {
	p.gone[l.Key()] = true
	if l.IsFabric() {
		return
	}
	for _, child := range p.children[l.Name] {
		p.markGone(child)
	}
}

// link plans one link: made if absent, rebuilt if it differs in what cannot be changed,
// otherwise changed in place. It returns nil if the link is blocked.
func (p *planner) link(o Object, spec *Link, hold bool) *linkState {
	at := spec.Key()
	have := p.existing[at]
	if have != nil && p.gone[at] {
		have = nil
	}
	spec.Ours = true
	spec.Alias, spec.Group = p.numbers.Mark(spec, o.MAC)
	if have != nil && !have.Ours {
		p.block(o, "%w: %s", ErrForeign, have.Stranger())
		return nil
	}
	if have == nil || !SameBuild(spec, have) {
		if !p.clearName(o, spec, have) || have != nil && !p.remove(o, have) {
			return nil
		}
		have = nil
	}
	state := &linkState{have: have}
	p.state[at] = state
	if have == nil {
		p.links = append(p.links, Step{Op: OpAddLink, Object: o, Namespace: spec.Namespace, Link: spec.Name, Spec: spec})
		return state
	}
	if change := Changes(spec, have, hold); change != 0 {
		p.links = append(p.links, Step{Op: OpSetLink, Object: o, Namespace: spec.Namespace, Link: spec.Name, Spec: spec, Change: change})
	}
	return state
}

// clearName plans what makes the name (and the MAC) of a new link free: another link of
// ours that was given the name gets its own back. It reports false, with the reason, if a
// foreign link is in the way. have is the link that the new one replaces, or nil.
func (p *planner) clearName(o Object, spec, have *Link) bool {
	if l := p.foreign[holder{spec.Parent, spec.MAC}]; l != nil && spec.Kind == KindMacvlan {
		p.block(o, "%w: %s has MAC %s on %s: %s", ErrForeign, l.Place(), l.MAC, l.Parent, l.Stranger())
		return false
	}
	if spec.As != "" {
		if l := p.named[LinkKey{spec.Namespace, spec.As}]; l != nil && l != have && !l.Ours && !p.gone[l.Key()] {
			p.block(o, "%w: %s", ErrForeign, l.Stranger())
			return false
		}
	}
	l := p.named[spec.Key()]
	if l == nil || l == have || p.gone[l.Key()] {
		return true
	}
	if l.Ours && p.named[l.Key()] == nil {
		p.rebuild = append(p.rebuild, Step{Op: OpSetLink, Object: o, Namespace: l.Namespace, Link: l.Name, Spec: l, Change: ChangeName})
		p.named[l.Key()] = l
		delete(p.named, spec.Key())
		return true
	}
	if l.Ours {
		p.block(o, "%w: %s was made as %s, and the name that it was given is needed: rename it", ErrForeign, l.Place(), l.Name)
		return false
	}
	p.block(o, "%w: %s", ErrForeign, l.Stranger())
	return false
}

// SameBuild compares what can only be changed by building the link again.
func SameBuild(a, b *Link) bool {
	return a.Parent == b.Parent && a.VNI == b.VNI && a.Local == b.Local && a.Port == b.Port &&
		a.Learning == b.Learning && a.Proxy == b.Proxy && a.L2Miss == b.L2Miss && a.L3Miss == b.L3Miss &&
		a.VLAN == b.VLAN && a.Bridge == b.Bridge && a.Host == b.Host
}

// Changes returns what to change in place. The kernel chooses the MAC of a VXLAN or
// VLAN device.
func Changes(want, have *Link, hold bool) Change {
	var change Change
	if (want.IsFabric() || want.Kind == KindTap) && want.MAC != have.MAC {
		change |= ChangeMAC
	}
	if want.MTU != have.MTU && !hold {
		change |= ChangeMTU
	}
	if want.Up && !have.Up {
		change |= ChangeUp
	}
	if want.Master != "" && want.Master != have.Master {
		change |= ChangeMaster | ChangeFlags // a new port has all flags
	} else if want.Master != "" && want.Flags != have.Flags {
		change |= ChangeFlags
	}
	if want.Kind == KindBridge && (want.STP != have.STP || want.Snooping != have.Snooping) {
		change |= ChangeBridge
	}
	if want.QuietIPv6 && !have.QuietIPv6 {
		change |= ChangeQuietIPv6
	}
	if want.Alias != have.Alias || want.Group != have.Group {
		change |= ChangeMark
	}
	if have.RenameBack {
		change |= ChangeName
	}
	if want.Kind == KindTap && want.User != have.User {
		change |= ChangeUser
	}
	return change
}

func (p *planner) vxlans() {
	for _, w := range p.want.VXLANs {
		o := Object{Kind: ObjectVXLAN, VNet: w.VNet}
		if !w.Local.IsValid() || w.VNet > maxVNet {
			p.block(o, "link: vnet %d with underlay address %v cannot be a VXLAN device", w.VNet, w.Local)
			continue
		}
		p.leaveBridge(o, VXLANName(w.VNet))
		spec := vxlanSpec(w)
		// Such a device takes each ARP frame and each neighbour solicitation that it is given,
		// and answers only for neighbours of its own. Macvlans have their neighbours themselves.
		// In a bridge it would take what VMs on other nodes are to get: gratuitous ARP of a
		// network with broadcast, and what asks a neighbour that it knows whether it is there.
		spec.Proxy = !p.secure.On
		p.link(o, spec, false)
	}
}

func vxlanSpec(w desired.VXLAN) *Link {
	return &Link{
		Name: VXLANName(w.VNet), Kind: KindVXLAN, MTU: w.MTU, Up: true, VNI: w.VNet, Local: w.Local.Unmap(), Port: w.Port,
		Proxy: true, L2Miss: true, L3Miss: true, QuietIPv6: true,
	}
}

func (p *planner) vlans() {
	for _, w := range p.want.VLANs {
		o := Object{Kind: ObjectVLAN, VNet: w.VNet, VLAN: w.ID}
		parent := VXLANName(w.VNet)
		if p.state[LinkKey{"", parent}] == nil {
			p.block(o, "%w: %s", ErrNotMade, parent)
			continue
		}
		p.leaveBridge(o, VLANName(w.VNet, w.ID))
		p.link(o, &Link{
			Name: VLANName(w.VNet, w.ID), Kind: KindVLAN, Parent: parent, MTU: w.MTU, Up: true, VLAN: w.ID, QuietIPv6: true,
		}, false)
	}
}

// IsLinkLocal reports whether an address is one that the kernel adds by itself.
func IsLinkLocal(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }
