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

// DefaultTable is how many entries, neighbours and forwarding entries together, the
// kernel holds for each vnet on demand: more than a node's VMs use at once, and few
// enough that a dump takes tens of milliseconds.
const DefaultTable = 16384

// DefaultAhead is how many entries of a vnet are programmed ahead: making them takes
// 0.2 s, and comparing them in a pass 0.1 s.
const DefaultAhead = 65536

const (
	// maxEvict is how many MACs are removed at once, so that a question that comes
	// meanwhile waits for only 1 or 2 ms.
	maxEvict = 64
	// roomParts: when a vnet has too many entries, the limit divided by roomParts is
	// removed at once.
	roomParts = 16
	// usedGrain is the precision of the kernel's time of last use: hundredths of a
	// second (ndm_used, linux/neighbour.h), rounded twice.
	usedGrain = 20 * time.Millisecond
)

// Lookup looks up single entries of the desired state; *desired.Entries does.
type Lookup interface {
	Neigh(link log.MAC, ip netip.Addr) (desired.Neigh, bool)
	FDB(vnet uint32, mac log.MAC) (desired.FDB, bool)
}

var _ Lookup = (*desired.Entries)(nil)

// Source looks up single entries of the log's state. Read calls read at once, and
// nothing changes during the call. Any goroutine may call it.
type Source interface {
	Read(read func(entries Lookup))
}

// Question is an entry that the kernel misses: the neighbour IP on a fabric link, or
// the forwarding entry of MAC on a VXLAN device.
type Question struct {
	VNet      uint32
	Namespace string  // of the fabric link
	Link      string  // its name
	Fabric    log.MAC // its MAC
	IP        netip.Addr
	MAC       log.MAC
}

// EntryWriter executes steps on entries while a pass uses the kernel.
type EntryWriter interface {
	// Do is Kernel.Do, for entries only.
	Do(ctx context.Context, steps []plan.Step) []error
	// Unused returns the time since the kernel last used each forwarding entry;
	// negative: unknown.
	Unused(ctx context.Context, entries []plan.Entry) []time.Duration
}

// Asker is a Kernel that reports the entries that it misses.
type Asker interface {
	// Ask calls answer with the questions, until ctx ends, and then returns ctx's
	// error. answer is called by one goroutine at a time, and owns the writer during
	// the call.
	Ask(ctx context.Context, answer func(ctx context.Context, asked []Question, hand EntryWriter)) error
}

// Asked counts the questions since the process began.
type Asked struct {
	VNets     int    // on demand
	Resident  int    // their entries in the kernel
	Questions uint64 // asked by the kernel
	Answered  uint64 // of these; the log has no entry for the others
	Evicted   uint64 // entries that were removed to make room
}

// demand has the kernel's entries of vnets on demand. A caller that writes entries
// holds its lock from looking them up until the kernel has them, so that an older
// answer never follows a change of the log.
type demand struct {
	mu     sync.Mutex // protects what follows
	source Source
	limit  int
	vnets  map[uint32]*residents
	links  map[log.MAC]uint32 // fabric links on vnets on demand
	// generation counts the dumps; what came during the last one may be missing in it.
	generation uint64
	now        func() time.Time

	questions, answered, evicted atomic.Uint64
}

// residents are the entries of one vnet.
type residents struct {
	macs   map[log.MAC]*list.Element // of *resident
	neighs map[neighKey]log.MAC
	order  *list.List // the next candidate for removal comes first
	size   int        // neighbours and forwarding entries
}

// neighKey is a neighbour on the fabric link of a NIC.
type neighKey struct {
	link log.MAC
	ip   netip.Addr
}

// resident is a MAC with its neighbours.
type resident struct {
	mac        log.MAC
	to         plan.Target // the forwarding entry; zero: none, as for NICs of this node
	neighs     map[neighKey]plan.LinkKey
	looked     time.Time // when it was added, or was last found in use
	generation uint64
}

func newDemand(limit int, now func() time.Time) *demand {
	return &demand{limit: cmp.Or(limit, DefaultTable), vnets: map[uint32]*residents{}, links: map[log.MAC]uint32{}, now: now}
}

func newResidents() *residents {
	return &residents{macs: map[log.MAC]*list.Element{}, neighs: map[neighKey]log.MAC{}, order: list.New()}
}

// read looks up entries in the log, if there is a source.
func (d *demand) read(read func(entries Lookup)) {
	if d.source != nil {
		d.source.Read(read)
	}
}

// begin records the begin of a dump.
func (d *demand) begin() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	return d.generation
}

// follow updates which vnets are on demand. The entries of others are then ahead, and
// wanted as such.
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

// followPart is follow for a part. What the kernel loses with a link that is deleted or moved
// is forgotten.
func (d *demand) followPart(part *desired.Part) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range part.Links.VXLANs {
		if v := &part.Links.VXLANs[i]; v.OnDemand && d.vnets[v.VNet] == nil {
			d.vnets[v.VNet] = newResidents()
		}
	}
	for _, mac := range part.NICs {
		i, wanted := findFabric(part.Links.Fabrics, mac)
		vnet, on := d.links[mac]
		if on && (!wanted || part.Links.Fabrics[i].VNet != vnet) {
			d.vnets[vnet].dropLink(mac)
			delete(d.links, mac)
		}
		if wanted && d.vnets[part.Links.Fabrics[i].VNet] != nil {
			d.links[mac] = part.Links.Fabrics[i].VNet
		}
	}
	for _, vnet := range part.NoVXLANs {
		delete(d.vnets, vnet)
	}
}

// lost forgets the entries that the kernel lost with executed steps: all neighbours of a
// fabric link that was deleted or got another MAC.
func (d *demand) lost(done []plan.Step) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range done {
		s := &done[i]
		if s.Op != plan.OpDelLink && s.Change&plan.ChangeMAC == 0 || s.Object.Kind != plan.ObjectFabric {
			continue
		}
		if vnet, on := d.links[s.Object.MAC]; on {
			d.vnets[vnet].dropLink(s.Object.MAC)
		}
	}
}

// dropLink records that a fabric link lost its neighbours.
func (r *residents) dropLink(link log.MAC) {
	for key := range r.neighs {
		if key.link == link {
			r.dropReference(key)
		}
	}
}

// extend adds to want those entries of vnets on demand that both the kernel and the log
// have. Other entries in the kernel must be removed; missing ones may stay missing.
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
			if _, on := d.links[l.MAC]; on && l.IsFabric() {
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

// sync makes the residents match a dump that began at a generation.
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
				if f.MAC.IsZero() {
					continue // for all nodes of the vnet
				}
				d.put(l.VNI, f.MAC).forward(d.vnets[l.VNI], plan.Target{Dst: f.Dst, Port: f.Port})
			}
		}
		if vnet, on := d.links[l.MAC]; on && l.IsFabric() {
			for _, n := range l.Neighs {
				d.vnets[vnet].addReference(d.put(vnet, n.MAC), neighKey{l.MAC, n.IP}, l.Key())
			}
		}
	}
	for old, now := range seen {
		old.keep(now, generation)
	}
}

// keep keeps the earlier order of those that a dump showed, and adds those that came
// after it began.
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
	order.PushFrontList(now.order) // when these were used is unknown
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

// forward sets the forwarding entry of x.
func (x *resident) forward(r *residents, to plan.Target) {
	r.size -= x.size()
	x.to = to
	r.size += x.size()
}

// addReference records that a neighbour uses x, and no other MAC.
func (r *residents) addReference(x *resident, key neighKey, at plan.LinkKey) {
	if mac, ok := r.neighs[key]; ok && mac != x.mac {
		r.dropReference(key)
	}
	r.size -= x.size()
	r.neighs[key], x.neighs[key] = x.mac, at
	r.size += x.size()
}

// dropReference records that a neighbour was removed.
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

// prune forgets a MAC without entries.
func (r *residents) prune(e *list.Element) {
	if x := e.Value.(*resident); x.size() == 0 {
		r.order.Remove(e)
		delete(r.macs, x.mac)
	}
}

// drop forgets a MAC with all its neighbours.
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

// note records an executed step, and reports whether it is of a vnet on demand.
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

// wanted returns what an entry of a vnet on demand should be: what was programmed. on
// is false if the vnet is ahead.
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

// resident keeps those steps of a delta that are of vnets ahead, or of entries in the
// kernel, and the forwarding entries that belong to them. Nothing in the kernel
// contradicts the others.
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
