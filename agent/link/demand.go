package link

import (
	"cmp"
	"container/list"
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// DefaultTable is how many entries, neighbours and forwarding entries together,
// the kernel keeps for each vnet on demand: more than a node's VMs talk to at
// once, few enough that a dump of them takes tens of milliseconds.
const DefaultTable = 16384

// DefaultAhead is how many entries of a vnet are programmed ahead: they take a
// fifth of a second to make, and a pass a tenth to compare.
const DefaultAhead = 65536

const (
	// maxEvict is how many MACs go at once, so that a question that comes
	// meanwhile waits for a millisecond or two.
	maxEvict = 64
	// roomParts: when a vnet has too many entries, one part in so many of the limit
	// goes at once.
	roomParts = 16
	// usedGrain is how exactly the kernel tells when an entry was used last: in
	// hundredths of a second (ndm_used, linux/neighbour.h), rounded twice.
	usedGrain = 20 * time.Millisecond
)

// Lookup finds single entries of the desired state; *desired.Entries does.
type Lookup interface {
	Neigh(link log.MAC, ip netip.Addr) (desired.Neigh, bool)
	FDB(vnet uint32, mac log.MAC) (desired.FDB, bool)
}

var _ Lookup = (*desired.Entries)(nil)

// Source is what the log says of single entries. Read calls read at once, while
// nothing changes; any goroutine may call it.
type Source interface {
	Read(read func(entries Lookup))
}

// Question is an entry that the kernel lacks: the neighbour IP on a fabric link,
// or the forwarding entry of MAC on a VXLAN device.
type Question struct {
	VNet      uint32
	Namespace string  // of the fabric link
	Link      string  // its name
	Fabric    log.MAC // its MAC
	IP        netip.Addr
	MAC       log.MAC
}

// EntryWriter does steps while the kernel itself is in use.
type EntryWriter interface {
	// Do is that of Kernel, for entries only.
	Do(ctx context.Context, steps []plan.Step) []error
	// Unused returns how long ago the kernel used each forwarding entry last;
	// negative: nobody knows.
	Unused(ctx context.Context, entries []plan.Entry) []time.Duration
}

// Asker is a Kernel that asks for the entries that it lacks.
type Asker interface {
	// Ask calls answer with what is asked for, until ctx ends, and returns ctx's
	// error then. answer is called by one goroutine at a time, and has the hand
	// while it runs.
	Ask(ctx context.Context, answer func(ctx context.Context, asked []Question, hand EntryWriter)) error
}

// Asked counts what was asked for since the process began.
type Asked struct {
	VNets     int    // on demand
	Resident  int    // entries that the kernel keeps for them
	Questions uint64 // asked by the kernel
	Answered  uint64 // of these; of the others the log knows nothing
	Evicted   uint64 // entries that went to make room
}

// demand has the entries that the kernel holds of vnets on demand. Whoever
// writes entries holds its lock from looking up what they are until the kernel
// has them: so no answer that is older than the log's change comes after it.
type demand struct {
	mu     sync.Mutex // protects what follows
	source Source
	limit  int
	vnets  map[uint32]*residents
	links  map[log.MAC]uint32 // fabric links on vnets on demand
	// generation counts the dumps; what came during the last one may not be in it.
	generation uint64
	now        func() time.Time

	questions, answered, evicted atomic.Uint64
}

// residents are the entries of one vnet.
type residents struct {
	macs   map[log.MAC]*list.Element // of *resident
	neighs map[neighKey]log.MAC
	order  *list.List // the one to be looked at next for making room comes first
	size   int        // neighbours and forwarding entries
}

// neighKey is a neighbour on the fabric link of a NIC.
type neighKey struct {
	link log.MAC
	ip   netip.Addr
}

// resident is a MAC with all that leads to it.
type resident struct {
	mac        log.MAC
	to         plan.Target // the forwarding entry; zero: none, as for NICs of this node
	neighs     map[neighKey]plan.LinkKey
	looked     time.Time // when it came, or was last found in use
	generation uint64
}

func newDemand(limit int, now func() time.Time) *demand {
	return &demand{limit: cmp.Or(limit, DefaultTable), vnets: map[uint32]*residents{}, links: map[log.MAC]uint32{}, now: now}
}

func newResidents() *residents {
	return &residents{macs: map[log.MAC]*list.Element{}, neighs: map[neighKey]log.MAC{}, order: list.New()}
}

// read asks the log, if there is one to ask.
func (d *demand) read(read func(entries Lookup)) {
	if d.source != nil {
		d.source.Read(read)
	}
}

// begin notes that a dump begins.
func (d *demand) begin() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	return d.generation
}

// follow takes over which vnets are on demand. What was resident of others is
// ahead now, and wanted as such.
func (d *demand) follow(want *desired.Links) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.vnets
	d.vnets = map[uint32]*residents{}
	for i := range want.VXLANs {
		if v := &want.VXLANs[i]; v.OnDemand {
			if d.vnets[v.VNet] = before[v.VNet]; d.vnets[v.VNet] == nil {
				d.vnets[v.VNet] = newResidents()
			}
		}
	}
	clear(d.links)
	for i := range want.Fabrics {
		if f := &want.Fabrics[i]; d.vnets[f.VNet] != nil {
			d.links[f.MAC] = f.VNet
		}
	}
}

// extend returns want with those entries of vnets on demand that the kernel has
// and the log as well: what it has besides must go, what it lacks may be lacking.
func (d *demand) extend(want desired.Links, have *plan.Snapshot) desired.Links {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.vnets) == 0 {
		return want
	}
	want.Neighs, want.FDB = slices.Clip(want.Neighs), slices.Clip(want.FDB)
	d.read(func(entries Lookup) {
		for i := range have.Links {
			l := &have.Links[i]
			if l.Kind == plan.KindVXLAN && d.vnets[l.VNI] != nil {
				for _, f := range l.FDB {
					if e, ok := entries.FDB(l.VNI, f.MAC); ok {
						want.FDB = append(want.FDB, e)
					}
				}
			}
			if _, on := d.links[l.MAC]; on && l.Kind == plan.KindMacvlan {
				for _, n := range l.Neighs {
					if e, ok := entries.Neigh(l.MAC, n.IP); ok {
						want.Neighs = append(want.Neighs, e)
					}
				}
			}
		}
	})
	return want
}

// sync makes what is resident what a dump showed, which began with a generation.
func (d *demand) sync(have *plan.Snapshot, generation uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.vnets) == 0 {
		return
	}
	seen := map[*residents]*residents{}
	for vnet, r := range d.vnets {
		seen[r] = newResidents()
		d.vnets[vnet] = seen[r]
	}
	for i := range have.Links {
		l := &have.Links[i]
		if l.Kind == plan.KindVXLAN && d.vnets[l.VNI] != nil {
			for _, f := range l.FDB {
				d.put(l.VNI, f.MAC).forward(d.vnets[l.VNI], plan.Target{Dst: f.Dst, Port: f.Port})
			}
		}
		if vnet, on := d.links[l.MAC]; on && l.Kind == plan.KindMacvlan {
			for _, n := range l.Neighs {
				d.vnets[vnet].addReference(d.put(vnet, n.MAC), neighKey{l.MAC, n.IP}, l.Key())
			}
		}
	}
	for old, now := range seen {
		old.keep(now, generation)
	}
}

// keep lets those that a dump showed stand in the order in which they stood
// before it, and adds what came after it began.
func (r *residents) keep(now *residents, generation uint64) {
	order := list.New()
	for e := r.order.Front(); e != nil; e = e.Next() {
		was := e.Value.(*resident)
		is, seen := now.macs[was.mac]
		switch {
		case was.generation >= generation:
			if seen {
				now.drop(is)
			}
			now.macs[was.mac] = order.PushBack(was)
			now.size += was.size()
			for key := range was.neighs {
				now.neighs[key] = was.mac
			}
		case seen:
			x := is.Value.(*resident)
			x.looked, x.generation = was.looked, was.generation
			now.order.Remove(is)
			now.macs[was.mac] = order.PushBack(x)
		}
	}
	order.PushFrontList(now.order) // nobody knows of these when they were used
	now.order = order
	for e := order.Front(); e != nil; e = e.Next() {
		now.macs[e.Value.(*resident).mac] = e
	}
}

// put returns the resident of a MAC, a new one if there is none.
func (d *demand) put(vnet uint32, mac log.MAC) *resident {
	r := d.vnets[vnet]
	if e, ok := r.macs[mac]; ok {
		return e.Value.(*resident)
	}
	x := &resident{mac: mac, neighs: map[neighKey]plan.LinkKey{}, looked: d.now()}
	r.macs[mac] = r.order.PushBack(x)
	return x
}

func (x *resident) size() int {
	n := len(x.neighs)
	if x.to != (plan.Target{}) {
		n++
	}
	return n
}

// forward notes what the forwarding entry of x is.
func (x *resident) forward(r *residents, to plan.Target) {
	r.size -= x.size()
	x.to = to
	r.size += x.size()
}

// addReference notes that a neighbour leads to x, and to nobody else.
func (r *residents) addReference(x *resident, key neighKey, at plan.LinkKey) {
	if mac, ok := r.neighs[key]; ok && mac != x.mac {
		r.dropReference(key)
	}
	r.size -= x.size()
	r.neighs[key], x.neighs[key] = x.mac, at
	r.size += x.size()
}

// dropReference notes that a neighbour is not there any more.
func (r *residents) dropReference(key neighKey) {
	e, ok := r.macs[r.neighs[key]]
	delete(r.neighs, key)
	if !ok {
		return
	}
	x := e.Value.(*resident)
	if _, ok := x.neighs[key]; ok {
		delete(x.neighs, key)
		r.size--
	}
	r.prune(e)
}

// prune forgets a MAC of which nothing is left.
func (r *residents) prune(e *list.Element) {
	if x := e.Value.(*resident); x.size() == 0 {
		r.order.Remove(e)
		delete(r.macs, x.mac)
	}
}

// drop forgets a MAC with all that leads to it.
func (r *residents) drop(e *list.Element) {
	x := e.Value.(*resident)
	r.size -= x.size()
	for key := range x.neighs {
		delete(r.neighs, key)
	}
	r.order.Remove(e)
	delete(r.macs, x.mac)
}

// vnetOf returns the vnet on demand that an entry belongs to.
func (d *demand) vnetOf(o plan.Object) (vnet uint32, on bool) {
	if o.Kind == plan.ObjectNeigh {
		vnet, on = d.links[o.MAC]
		return vnet, on
	}
	return o.VNet, o.Kind == plan.ObjectFDB && d.vnets[o.VNet] != nil
}

// note remembers a step that was done, and reports whether it is of a vnet on
// demand.
func (d *demand) note(s *plan.Step) bool {
	vnet, on := d.vnetOf(s.Object)
	if !on {
		return false
	}
	r := d.vnets[vnet]
	key := neighKey{s.Object.MAC, s.Addr}
	switch s.Op {
	case plan.OpSetFDB:
		x := d.put(vnet, s.MAC)
		x.generation = d.generation
		x.forward(r, plan.Target{Dst: s.Addr, Port: s.Port})
	case plan.OpDelFDB:
		if e, ok := r.macs[s.MAC]; ok {
			e.Value.(*resident).forward(r, plan.Target{})
			r.prune(e)
		}
	case plan.OpSetNeigh:
		x := d.put(vnet, s.MAC)
		x.generation = d.generation
		r.addReference(x, key, plan.LinkKey{Namespace: s.Namespace, Name: s.Link})
	case plan.OpDelNeigh:
		if _, ok := r.neighs[key]; ok {
			r.dropReference(key)
		}
	}
	return true
}

// wanted returns what an entry of a vnet on demand should be: what the kernel
// was told. It is not on if the vnet is ahead.
func (d *demand) wanted(o plan.Object) (p plan.Target, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holds(o)
}

func (d *demand) holds(o plan.Object) (p plan.Target, on bool) {
	vnet, on := d.vnetOf(o)
	if !on {
		return p, false
	}
	r := d.vnets[vnet]
	if o.Kind == plan.ObjectNeigh {
		return plan.Target{MAC: r.neighs[neighKey{o.MAC, o.IP}]}, true
	}
	if e, ok := r.macs[o.MAC]; ok {
		return e.Value.(*resident).to, true
	}
	return p, true
}

// resident leaves of the steps of a delta those that are of vnets ahead, or of
// entries that the kernel holds, and the forwarding entries that go with these.
// The others are not contradicted by anything in the kernel.
func (d *demand) resident(steps []plan.Step) []plan.Step {
	if len(d.vnets) == 0 {
		return steps
	}
	type target struct {
		vnet uint32
		mac  log.MAC
	}
	needed := map[target]bool{}
	holds := func(s *plan.Step) bool {
		p, on := d.holds(s.Object)
		return !on || p != (plan.Target{})
	}
	for i := range steps {
		if s := &steps[i]; s.Op == plan.OpSetNeigh && holds(s) {
			if vnet, on := d.vnetOf(s.Object); on {
				needed[target{vnet, s.MAC}] = true
			}
		}
	}
	return slices.DeleteFunc(steps, func(s plan.Step) bool {
		return !holds(&s) && (s.Op != plan.OpSetFDB || !needed[target{s.Object.VNet, s.MAC}])
	})
}

// asked returns the counts so far.
func (d *demand) asked() Asked {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := Asked{Questions: d.questions.Load(), Answered: d.answered.Load(), Evicted: d.evicted.Load(), VNets: len(d.vnets)}
	for _, r := range d.vnets {
		a.Resident += r.size
	}
	return a
}
