package netsync

import (
	"maps"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/report"
	"rutter/projections"
)

// Pauses between two tries of the same.
const (
	minPause = 250 * time.Millisecond
	maxPause = time.Minute
)

// Part says what the agent's part of the log is a part of.
type Part struct {
	Cluster log.UUID // zero: no log yet
	Seq     log.Seq  // of its last bookmark
	// Complete: all that this node must know was held at least once.
	Complete bool
}

// core decides. It has no clock, no files and no goroutine: what a pass returns
// follows from what it is given, the book, and the passes before.
type core struct {
	cn     log.UUID
	ledger *ledger
	newID  func() log.UUID // of changes: UUIDv7

	found    map[string]report.Found // what the last answer found; one pass uses it
	foundSeq log.Seq
	// after: what this node has of a NIC counts for nothing until it has come to
	// this seq, at which a server told more of it.
	after map[log.MAC]log.Seq
	tries map[log.MAC]*try // of changes
	looks map[log.MAC]*try
}

func newCore(cn log.UUID, b *ledger, newID func() log.UUID) *core {
	return &core{cn: cn, ledger: b, newID: newID, after: make(map[log.MAC]log.Seq), tries: make(map[log.MAC]*try), looks: make(map[log.MAC]*try)}
}

// try paces what is tried again and again without effect.
type try struct {
	key     string // what is tried: something else is tried at once
	next    time.Time
	pause   time.Duration
	refusal string // why it had none
	pass    bool   // this pass wants it
}

// input is what a pass sees.
type input struct {
	now   time.Time
	vms   []VM // by UUID
	whole bool // a VM that is not among them is gone
	host  Host // what the node itself has
	state *projections.State
	place Part
}

// change is one of a plan's, about one NIC.
type change struct {
	mac log.MAC
	log.Change
}

// edit is what must become of a VM's manifest.
type edit struct {
	vm     log.UUID
	remove []log.MAC
	nics   map[log.MAC][]field
	fields []field
	reboot bool // it runs, and loses a NIC
}

// plan is what a pass found to do.
type plan struct {
	changes  []change
	look     []log.MAC
	networks []string
	// aggregations are those of the node that its part of the log has not.
	aggregations []string
	edits        []edit
	again        time.Time // when something is due that is not yet; zero: nothing is
	notes        []string  // what stays different, and why
}

// asks reports whether a server must be asked.
func (p *plan) asks() bool { return len(p.changes)+len(p.look)+len(p.networks)+len(p.aggregations) > 0 }

// pass compares.
func (c *core) pass(in input) plan {
	var p plan
	if in.place.Cluster.IsZero() || !in.place.Complete {
		return p
	}
	c.ledger.belongTo(in.place.Cluster)
	where := c.placeNICs(in.vms)
	for i := range in.vms {
		vm := &in.vms[i]
		v := &vmPass{core: c, in: &in, plan: &p, vm: vm, edit: edit{vm: vm.UUID}}
		v.run(where)
	}
	for _, mac := range c.ledger.macs() {
		claim := c.ledger.claims[mac]
		if at, local := where[mac]; local && at.UUID == claim.VM {
			continue
		}
		c.release(&in, &p, claim, where[mac])
	}
	c.passHost(&in, &p)
	c.settle(&p, in.now)
	maps.DeleteFunc(c.after, func(_ log.MAC, seq log.Seq) bool { return in.place.Seq >= seq })
	c.found = nil
	return p
}

// placeNICs says which VM has each NIC. Of two that name the same MAC it is the
// one that had it before, else the first.
func (c *core) placeNICs(vms []VM) map[log.MAC]*VM {
	where := make(map[log.MAC]*VM)
	for i := range vms {
		for _, nic := range vms[i].NICs {
			claim := c.ledger.claims[nic.MAC]
			if where[nic.MAC] == nil || claim != nil && claim.VM == vms[i].UUID {
				where[nic.MAC] = &vms[i]
			}
		}
	}
	return where
}

// settle forgets tries of what is not wanted any more, and finds the next one. A
// look and a change wait for each other by turns, so one that this pass does not
// want is kept for a while.
func (c *core) settle(p *plan, now time.Time) {
	for _, table := range []map[log.MAC]*try{c.tries, c.looks} {
		for mac, t := range table {
			if t.refusal != "" {
				p.notes = append(p.notes, "NIC "+mac.String()+": "+t.refusal)
			}
		}
	}
	slices.Sort(p.notes)
	for _, table := range []map[log.MAC]*try{c.tries, c.looks} {
		for mac, t := range table {
			if !t.pass {
				if now.After(t.next.Add(t.pause)) {
					delete(table, mac)
				}
				continue
			}
			t.pass = false
			if p.again.IsZero() || t.next.Before(p.again) {
				p.again = t.next
			}
		}
	}
}

// due reports whether something is to be tried now, and notes that it is.
func due(table map[log.MAC]*try, mac log.MAC, key string, now time.Time) bool {
	t := table[mac]
	if t == nil || t.key != key {
		table[mac] = &try{key: key, next: now.Add(minPause), pause: minPause, pass: true}
		return true
	}
	t.pass = true
	if now.Before(t.next) {
		return false
	}
	t.pause = min(2*t.pause, maxPause)
	t.next = now.Add(t.pause)
	return true
}

// remote is a NIC as the log has it, nil if it has none, and its record: as of the
// last answer, if that is not older than the agent's part. known is false when a server must be asked; asked says
// that one was.
func (c *core) remote(in *input, mac log.MAC) (nic *log.NIC, rec projections.Record, known, asked bool) {
	rec, ok := in.state.Get(log.KindNIC, mac.String()) // the last entries may be beyond the bookmark
	if f, told := c.found[mac.String()]; told && f.Kind == log.KindNIC && c.foundSeq >= max(in.place.Seq, rec.Seq) {
		nic, _ = f.Object.(*log.NIC) // nil: it is not there
		return nic, projections.Record{Object: f.Object, Revision: f.Revision, Seq: f.Seq}, true, true
	}
	if !ok || in.place.Seq < c.after[mac] {
		return nil, rec, false, false
	}
	return rec.Object.(*log.NIC), rec, true, false
}

// ask has a server say how a NIC stands, unless it did just now.
func (c *core) ask(in *input, p *plan, mac log.MAC, key string) bool {
	if len(p.look) == report.MaxLooks || !due(c.looks, mac, key, in.now) {
		return false
	}
	p.look = append(p.look, mac)
	return true
}

// send puts a change into the plan. One with an id of its own is the same
// whenever it is sent.
func (c *core) send(in *input, p *plan, mac log.MAC, key string, id log.UUID, op log.Op) {
	if len(p.changes) == report.MaxChanges {
		if p.again.IsZero() {
			p.again = in.now // the rest, right after
		}
		return
	}
	if !due(c.tries, mac, key, in.now) {
		return
	}
	if id.IsZero() {
		id = c.newID()
	}
	p.changes = append(p.changes, change{mac, log.Change{ID: id, Ops: []log.Op{op}}})
}

// release lets go of a NIC that its VM does not have any more. at is the VM that
// has it now, or nil.
func (c *core) release(in *input, p *plan, claim *claim, at *VM) {
	vm := find(in.vms, claim.VM)
	if vm == nil && !in.whole {
		return // out of sight is not gone
	}
	if vm != nil && vm.HandsOff {
		c.ledger.drop(claim.MAC)
		return
	}
	if vm != nil && !vm.settled() {
		return
	}
	if !claim.Create.IsZero() { // what became of it must be known before it can be deleted
		c.send(in, p, claim.MAC, "resolve", claim.Create, c.creation(claim, nil, at))
		return
	}
	if !claim.Held {
		c.ledger.drop(claim.MAC)
		return
	}
	nic, rec, known, asked := c.remote(in, claim.MAC)
	if !known || !asked && (nic.BelongsToUUID != claim.VM || c.elsewhere(in, nic)) {
		c.ask(in, p, claim.MAC, "release") // what this node has of it may be old
		return
	}
	if nic == nil || nic.BelongsToUUID != claim.VM || c.elsewhere(in, nic) {
		c.ledger.drop(claim.MAC)
		return
	}
	if nic.State != "running" && nic.State != "stopped" {
		return // it is being made anew
	}
	c.send(in, p, claim.MAC, "release/"+rec.ETag(), log.UUID{},
		log.Op{Action: log.Delete, Kind: log.KindNIC, ID: claim.MAC.String(), IfMatch: rec.Revision, IfSeq: rec.Seq})
}

// elsewhere reports whether a NIC, or the VM that it is of, went to another
// compute node: then it is not gone with the VM.
func (c *core) elsewhere(in *input, nic *log.NIC) bool {
	if !nic.CNUUID.IsZero() && nic.CNUUID != c.cn {
		return true
	}
	rec, known := in.state.Get(log.KindVM, nic.BelongsToUUID.String())
	if !known {
		return false
	}
	server := rec.Object.(*log.VM).ServerUUID
	return !server.IsZero() && server != c.cn
}

func find(vms []VM, id log.UUID) *VM {
	at, ok := slices.BinarySearchFunc(vms, id, func(v VM, id log.UUID) int { return compareUUID(v.UUID, id) })
	if !ok {
		return nil
	}
	return &vms[at]
}

// answered takes what a server said to a plan's changes.
func (c *core) answered(p *plan, a *report.Answer) {
	c.found, c.foundSeq = make(map[string]report.Found, len(a.Found)), a.Seq
	for _, f := range a.Found {
		c.found[f.Key] = f
	}
	for _, mac := range p.look {
		c.after[mac] = a.Seq
	}
	for i := range min(len(p.changes), len(a.Outcomes)) {
		c.concluded(&p.changes[i], a.Outcomes[i])
	}
}

func (c *core) concluded(sent *change, o report.Outcome) {
	t, claim := c.tries[sent.mac], c.ledger.claims[sent.mac]
	if t != nil {
		t.refusal = o.Unknown
		if o.Refusal != nil {
			t.refusal = o.Refusal.Error()
		}
	}
	op := &sent.Ops[0]
	if op.Action != log.Update {
		c.after[sent.mac] = max(c.after[sent.mac], o.Last)
	}
	switch {
	case o.Unknown != "":
	case op.Action == log.Create && claim != nil && claim.Create == sent.ID && o.Refusal == nil:
		c.ledger.hold(claim)
	case op.Action == log.Create && claim != nil && claim.Create == sent.ID:
		c.ledger.create(claim, log.UUID{}) // it is refused for good; another may be wanted
	case op.Action == log.Delete && o.Refusal == nil:
		c.ledger.drop(sent.mac)
	}
}
