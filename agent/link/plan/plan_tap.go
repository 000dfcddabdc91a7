package plan

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections/desired"
)

// CheckAttach says why no NIC can be attached so: desired.Attach.Check, and the names that we
// give to links ourselves.
func CheckAttach(a desired.Attach) error {
	if err := a.Check(); err != nil {
		return err
	}
	if KindOfName(a.Name) != "" {
		return fmt.Errorf("%q cannot be the name of a device: links of Rutter have such names; choose another one", a.Name)
	}
	return nil
}

// checkAttach checks that a NIC can be attached as it is wanted. It reports false, with the
// reason, if not; what the NIC has then stays.
func (p *planner) checkAttach(o Object, w *desired.Fabric) bool {
	blocked := len(p.blocked)
	p.tryAttach(o, w)
	if len(p.blocked) == blocked {
		return true
	}
	for _, l := range p.byMAC[w.MAC] {
		p.kept[l.Key()] = true
		p.kept[p.whole(l).Key()] = true
	}
	return false
}

func (p *planner) tryAttach(o Object, w *desired.Fabric) {
	if err := CheckAttach(w.Attach); err != nil {
		p.block(o, "%w: %w", ErrAttach, err)
		return
	}
	if w.Attach.Tap && !p.secure.On {
		p.block(o, "%w: tap %s is to be a port of a bridge, and without port security there are none: start the agent with --port-security on, or attach the NIC in a namespace", ErrAttach, w.Attach.Name)
		p.closeTap(o, w)
		return
	}
	if other := p.nameTakenBy(w); !other.IsZero() {
		p.block(o, "%w: NIC %s has the name %s already: give one of the two another name", ErrAttach, other, w.Attach.Name)
	}
}

// closeTap puts the tap of a NIC down before it loses its bridge and its rules: what a guest
// sends by a tap that is up and no port goes to the node's own stack, from where it reaches the
// node's addresses, and the node's VXLAN devices (SAFETY E4). The hypervisor keeps it open.
func (p *planner) closeTap(o Object, w *desired.Fabric) {
	if l := p.linkOf(w); l != nil && l.Up {
		p.rebuild = slices.Insert(p.rebuild, 0, Step{Op: OpSetLink, Object: o, Link: l.Name, Change: ChangeDown})
	}
}

// nameTakenBy returns the other NIC that has the name of a link that w is to have, the zero
// MAC if there is none. Of two NICs the one whose link has the name keeps it; while there is
// no such link, the one with the lower MAC gets it. (A link that a plan of a part does not
// show has its name all the same: then the kernel refuses the second.)
func (p *planner) nameTakenBy(w *desired.Fabric) (other log.MAC) {
	if w.Attach.Name == "" || p.linkOf(w) != nil {
		return other // it is renamed, if the kernel lets it
	}
	if w.Attach.Tap {
		return p.numbers.tapOf(w.Attach.Name, w.MAC)
	}
	for i := range p.want.Fabrics {
		f := &p.want.Fabrics[i]
		if f.MAC != w.MAC && !f.Attach.Tap && f.Namespace == w.Namespace && f.Attach.Name == w.Attach.Name && (p.hasName(f) || f.MAC.Compare(w.MAC) < 0) {
			return f.MAC
		}
	}
	return other
}

// hasName reports whether the link of a NIC exists and has the wanted name.
func (p *planner) hasName(w *desired.Fabric) bool {
	l := p.linkOf(w)
	return l != nil && l.NameNow() == w.Attach.Name
}

// linkOf returns the link of a NIC that is of the wanted kind, nil if there is none.
func (p *planner) linkOf(w *desired.Fabric) *Link {
	n, ok := p.numbers.Lookup(w.MAC)
	at := LinkKey{w.Namespace, FabricName(n)}
	if w.Attach.Tap {
		at = LinkKey{"", PortName(n)}
	}
	if l := p.existing[at]; ok && l != nil && l.Ours && (l.Kind == KindTap) == w.Attach.Tap {
		return l
	}
	return nil
}

// tap plans the tap of a NIC: a port of the bridge, as the node's end of a pair is, whose
// other end is the hypervisor's file. It has the MTU of the network, which the hypervisor
// reads there.
func (p *planner) tap(o Object, w *desired.Fabric) {
	n, _ := p.numbers.Lookup(w.MAC)
	spec := &Link{
		Name: PortName(n), As: w.Attach.Name, Kind: KindTap, Host: true, Master: BridgeName(w.VNet, w.VLAN), MTU: w.MTU, MAC: TapMAC(n),
		User: w.Attach.User, QuietIPv6: true, Flags: PortFlags{Flood: w.Security.Promiscuous},
	}
	spec.Flags.Multicast, spec.Flags.Broadcast = p.broadcasts(w), p.broadcasts(w)
	if have := p.existing[spec.Key()]; have != nil && have.Ours && !p.gone[spec.Key()] && have.Kind != KindTap && !p.remove(o, have) {
		return
	}
	state := p.link(o, spec, w.Hold)
	if state == nil {
		return
	}
	var static []log.MAC
	if have := state.have; have != nil && have.Master == spec.Master {
		static = have.Static
	}
	p.static(o, spec.Name, w.MAC, static)
	p.guarded.ports = append(p.guarded.ports, guardedPort{guardedLink{object: o, name: spec.Name, as: spec.As, state: state}, w})
}
