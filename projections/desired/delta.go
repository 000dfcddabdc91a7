package desired

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// touched names the entries that one NIC has, or had before an event, in the
// kernel of another CN: the forwarding entry of its MAC on the vnet of its
// network, and the neighbours of its address on that network.
type touched struct {
	mac     log.MAC
	network log.UUID
	ip      netip.Addr
}

func compareTouched(a, b touched) int {
	return cmp.Or(a.mac.Compare(b.mac), a.network.Compare(b.network), a.ip.Compare(b.ip))
}

// Touches gathers what events did to the desired links of one CN, so that the
// entries of other CNs' NICs, which are most of all events, and the links of single NICs
// of its own can be computed for themselves. It is not safe for concurrent use.
type Touches struct {
	cn    log.UUID
	nics  map[touched]struct{}
	cns   map[log.UUID]struct{} // whose underlay address or port may be another one
	joins map[join]struct{}     // while a vnet is on demand
	own   own
	whole bool
	limit Limits // with which Within was asked last
}

// maxTouches bounds what is gathered: beyond it the whole is as quick.
const maxTouches = 1 << 16

// NewTouches returns a Touches of cn that knows nothing, so that the whole has
// to be computed first.
func NewTouches(cn log.UUID) *Touches {
	t := &Touches{cn: cn}
	t.Reset()
	t.whole = true
	return t
}

// Reset forgets all that was noted. It is called when Of is.
func (t *Touches) Reset() { t.ResetWithin(Limits{}) }

// ResetWithin is Reset when Within is called. limits.OnDemand are
// the vnets that it made to be on demand.
func (t *Touches) ResetWithin(limits Limits) {
	t.limit = limits
	t.nics, t.cns, t.joins, t.own, t.whole = map[touched]struct{}{}, map[log.UUID]struct{}{}, map[join]struct{}{}, newOwn(), false
}

// Any reports whether Delta would have something to compute.
func (t *Touches) Any() bool { return t.len() > 0 }

func (t *Touches) len() int { return len(t.nics) + len(t.cns) + len(t.joins) + t.own.len() }

// Whole reports whether something was noted that Delta does not cover: only
// Of has it.
func (t *Touches) Whole() bool { return t.whole }

// NoteWhole notes a change that Note is not told of.
func (t *Touches) NoteWhole() { t.whole = true }

// Note notes that an object became another: before is nil if it was not held,
// after if it is not any more.
func (t *Touches) Note(before, after log.Object) {
	if was, is := asNIC(before), asNIC(after); was != nil && is != nil && was.UnderlayMTU != is.UnderlayMTU {
		t.whole = true // what fits there is a problem of the whole
	}
	for _, o := range []log.Object{before, after} {
		switch o := o.(type) {
		case *log.NIC:
			t.noteNIC(o)
		case *log.VM:
			t.noteVM(o.UUID)
		case *log.NICTag:
			t.whole = true
		}
	}
	was, had := before.(*log.Network)
	is, has := after.(*log.Network)
	if had || has {
		t.noteNetwork(was, is)
	}
	if t.len() > maxTouches {
		t.ResetWithin(t.limit)
		t.whole = true
	}
}

func asNIC(o log.Object) *log.NIC {
	nic, _ := o.(*log.NIC)
	return nic
}

func (t *Touches) noteNIC(nic *log.NIC) {
	if projections.CNOf(nic) == t.cn {
		t.noteOwn(nic)
	} else if projections.IsUnderlay(nic) {
		t.cns[projections.CNOf(nic)] = struct{}{}
	} else {
		t.noteJoin(nic)
	}
	t.nics[touched{nic.MAC, nic.NetworkUUID, nic.IP}] = struct{}{}
}

// Delta returns what Of says of the entries and own NICs that were noted, and
// forgets them, at a cost of these and a look at each of the CN's own NICs. It is right
// for the links that Of gave last, with the deltas since, also if Whole says that there
// will be others; and while no two NICs of the state have one address of a network.
// Of vnets on demand it has the entries that would be wanted if they were not.
// A vnet that is over its limit now, or is not any more, makes Whole true; so do more
// own NICs than MaxPart, and a new Problem.
func (t *Touches) Delta(s *projections.State) LinksDelta {
	for cn := range t.cns {
		for r := range projections.NICsOnCN(cn).NICs(s) {
			t.nics[touched{r.MAC(), r.Network(), r.IP()}] = struct{}{}
		}
	}
	t.spread(s)
	list := make([]touched, 0, len(t.nics))
	for x := range t.nics {
		list = append(list, x)
	}
	slices.SortFunc(list, compareTouched)
	clear(t.nics)
	p := newPlanner(s, t.cn)
	nics := p.localNICs()
	reachable := len(nics) > 0 && p.findUnderlay()
	if reachable {
		p.findNeeds(nics)
	}
	p.demand = onDemand(s, nics, t.limit)
	out := LinksDelta{Part: t.part(&p, nics)}
	if reachable {
		p.entriesOf(nics, list, &out)
		t.whole = t.whole || t.limit.Entries > 0 && !maps.Equal(p.demand, t.limit.OnDemand)
	}
	if g := t.own.given; g != nil {
		if reachable {
			g.followPeers(&p, t.moved(&p), &out)
		}
		t.whole = t.whole || !g.covers(&p) || len(g.altered(&p)) > 0
	}
	clear(t.cns)
	clear(t.joins)
	return out
}

// LinksDelta is the part of Links that some NICs touched: entries as they must
// be, and entries that must not be.
type LinksDelta struct {
	Neighs []Neigh
	FDB    []FDB
	// NoNeighs has Link and IP only, NoFDB VNet and MAC only.
	NoNeighs []Neigh
	NoFDB    []FDB
	// Peers are those of vnets on demand that came, NoPeers those that went.
	Peers, NoPeers []Peer
	// Part is what the CN's own NICs that were touched need, nil without any. It comes
	// before the entries, which may be on its links.
	Part *Part
}

// Len is the number of entries and peers, without those of the Part.
func (d *LinksDelta) Len() int {
	return len(d.Neighs) + len(d.FDB) + len(d.NoNeighs) + len(d.NoFDB) + len(d.Peers) + len(d.NoPeers)
}

// entriesOf adds what the CN's kernel must hold of the touched entries, in their order. An
// entry that two of them name comes twice.
func (p *planner) entriesOf(nics []projections.NICRow, list []touched, out *LinksDelta) {
	d := delta{planner: p, links: map[log.UUID][]log.MAC{}, vnets: map[uint32]bool{}, out: out}
	for _, r := range nics {
		d.links[r.Network()] = append(d.links[r.Network()], r.MAC())
		d.vnets[r.Home().VNet] = true
	}
	for _, t := range list {
		d.fdb(t)
		d.neighs(t)
	}
}

// delta gathers a LinksDelta.
type delta struct {
	*planner
	links map[log.UUID][]log.MAC // of the CN's own NICs, by network
	vnets map[uint32]bool        // that they are on
	out   *LinksDelta
}

func (d *delta) fdb(t touched) {
	net := d.s.Network(t.network)
	if net == nil || !net.Fabric || !d.vnets[net.VNetID] {
		return
	}
	if r, ok := d.s.NICRow(t.mac); ok && r.Home() == log.VNetScope(net.VNetID) {
		if cn := r.CN(); cn != d.cn {
			if to := d.reach(cn); to.Addr.IsValid() {
				d.out.FDB = append(d.out.FDB, d.forward(net.VNetID, t.mac, to))
				return
			}
		}
	}
	d.out.NoFDB = append(d.out.NoFDB, FDB{VNet: net.VNetID, MAC: t.mac})
}

func (d *delta) neighs(t touched) {
	links := d.links[t.network]
	if len(links) == 0 || !t.ip.IsValid() {
		return
	}
	var mac log.MAC // of the NIC that has the address and can be reached
	if r, ok := d.s.NICRowAt(t.network, t.ip); ok {
		if cn := r.CN(); cn == d.cn || d.reach(cn).Addr.IsValid() {
			mac = r.MAC()
		}
	}
	for _, link := range links {
		if mac.IsZero() || mac == link {
			d.out.NoNeighs = append(d.out.NoNeighs, Neigh{Link: link, IP: t.ip})
		} else {
			d.out.Neighs = append(d.out.Neighs, Neigh{Link: link, IP: t.ip, MAC: mac})
		}
	}
}
