package netsync

import (
	"maps"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/report"
	"rutter/projections"
)

// Pauses between two attempts.
const (
	minPause = 250 * time.Millisecond
	maxPause = time.Minute
)

// Part describes the agent's part of the log.
type Part struct {
	Cluster log.UUID // zero: no log yet
	Seq     log.Seq  // of its last bookmark
	// Complete: all that this node must know was held at least once.
	Complete bool
}

// core decides. It has no clock, no files and no goroutine: the result of a pass
// follows from its input, the ledger, and the passes before.
type core struct {
	cn     log.UUID
	ledger *ledger
	newID  func() log.UUID // of changes: UUIDv7

	found    map[string]report.Found // what the last answer found; used by one pass
	foundSeq log.Seq
	// after: the node's own record of a NIC is ignored until its part of the log has
	// reached this seq, because a server reported a newer one.
	after    map[log.MAC]log.Seq
	attempts map[log.MAC]*attempt // of changes
	looks    map[log.MAC]*attempt
}

func newCore(cn log.UUID, b *ledger, newID func() log.UUID) *core {
	return &core{cn: cn, ledger: b, newID: newID, after: make(map[log.MAC]log.Seq), attempts: make(map[log.MAC]*attempt), looks: make(map[log.MAC]*attempt)}
}

// attempt delays attempts that are repeated without effect.
type attempt struct {
	key     string // the attempt: a different one is made at once
	next    time.Time
	pause   time.Duration
	refusal string // why it had no effect
	pass    bool   // this pass wants it
}

// input is what a pass sees.
type input struct {
	now   time.Time
	vms   []VM                   // by UUID
	gone  func(vm log.UUID) bool // of a VM that is not in vms: it may exist no more
	host  Host                   // the node's own NICs
	state *projections.State
	place Part
}

// change is one change of a plan, about one NIC.
type change struct {
	mac log.MAC
	log.Change
}

// edit is a change of a VM's manifest.
type edit struct {
	vm     log.UUID
	remove []log.MAC
	nics   map[log.MAC][]field
	fields []field
	reboot bool // it is running, and loses a NIC
}

// plan has the work that a pass found.
type plan struct {
	changes  []change
	look     []log.MAC
	networks []string
	// aggregations are those of the node that are missing in its part of the log.
	aggregations []string
	edits        []edit
	again        time.Time // when the next delayed work is due; zero: none
	notes        []string  // differences that stay, and why
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

// placeNICs returns which VM has each NIC. If two VMs name the same MAC, the one that
// had it before counts, otherwise the first.
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

// settle forgets attempts that are not wanted any more, and finds the next one. A
// request and a change wait for each other, so an attempt that this pass does not want
// is kept for a while.
func (c *core) settle(p *plan, now time.Time) {
	for _, table := range []map[log.MAC]*attempt{c.attempts, c.looks} {
		for mac, t := range table {
			if t.refusal != "" {
				p.notes = append(p.notes, "NIC "+mac.String()+": "+t.refusal)
			}
		}
	}
	slices.Sort(p.notes)
	for _, table := range []map[log.MAC]*attempt{c.attempts, c.looks} {
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

// due reports whether an attempt may be made now, and records it.
func due(table map[log.MAC]*attempt, mac log.MAC, key string, now time.Time) bool {
	t := table[mac]
	if t == nil || t.key != key {
		table[mac] = &attempt{key: key, next: now.Add(minPause), pause: minPause, pass: true}
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

// remote is a NIC in the log, nil if there is none, and its record: as of the last
// answer, if that is not older than the agent's part. known is false if a server must
// be asked; asked reports whether one was.
func (c *core) remote(in *input, mac log.MAC) (nic *log.NIC, rec projections.Record, known, asked bool) {
	rec, ok := in.state.Get(log.KindNIC, mac.String()) // the last entries may be after the bookmark
	if f, told := c.found[mac.String()]; told && f.Kind == log.KindNIC && c.foundSeq >= max(in.place.Seq, rec.Seq) {
		nic, _ = f.Object.(*log.NIC) // nil: it does not exist
		return nic, projections.Record{Object: f.Object, Revision: f.Revision, Seq: f.Seq}, true, true
	}
	if !ok || in.place.Seq < c.after[mac] {
		return nil, rec, false, false
	}
	return rec.Object.(*log.NIC), rec, true, false
}

// ask requests a server's record of a NIC, unless that was just done.
func (c *core) ask(in *input, p *plan, mac log.MAC, key string) bool {
	if len(p.look) == report.MaxLooks || !due(c.looks, mac, key, in.now) {
		return false
	}
	p.look = append(p.look, mac)
	return true
}

// send puts a change into the plan. A change with an id of its own has the same id each
// time it is sent.
func (c *core) send(in *input, p *plan, mac log.MAC, key string, id log.UUID, op log.Op) {
	if len(p.changes) == report.MaxChanges {
		if p.again.IsZero() {
			p.again = in.now // the rest follows at once
		}
		return
	}
	if !due(c.attempts, mac, key, in.now) {
		return
	}
	if id.IsZero() {
		id = c.newID()
	}
	p.changes = append(p.changes, change{mac, log.Change{ID: id, Ops: []log.Op{op}}})
}

// release removes a NIC from the log that its VM does not have any more. at is the VM
// that has it now, or nil.
func (c *core) release(in *input, p *plan, claim *claim, at *VM) {
	vm := find(in.vms, claim.VM)
	if vm == nil && !in.gone(claim.VM) {
		return // a NIC of an unknown VM may still exist
	}
	if vm != nil && vm.HandsOff {
		c.ledger.drop(claim.MAC)
		return
	}
	if vm != nil && !vm.settled() {
		return
	}
	if !claim.Create.IsZero() { // its result must be known before the NIC can be deleted
		c.send(in, p, claim.MAC, "resolve", claim.Create, c.creation(claim, nil, at))
		return
	}
	nic, rec, known, asked := c.remote(in, claim.MAC)
	if !claim.Held && known && (nic == nil || nic.State != "running" && nic.State != "stopped") {
		c.ledger.drop(claim.MAC) // it is still its creator's: this node has said nothing of it
		return
	}
	if !known || !asked && (nic.BelongsToUUID != claim.VM || c.elsewhere(in, nic)) {
		c.ask(in, p, claim.MAC, "release") // the node's own record may be old
		return
	}
	if nic == nil || nic.BelongsToUUID != claim.VM || c.elsewhere(in, nic) {
		c.ledger.drop(claim.MAC)
		return
	}
	if nic.State != "running" && nic.State != "stopped" {
		return // it is being created again
	}
	c.send(in, p, claim.MAC, "release/"+rec.ETag(), log.UUID{},
		log.Op{Action: log.Delete, Kind: log.KindNIC, ID: claim.MAC.String(), IfMatch: rec.Revision, IfSeq: rec.Seq})
}

// elsewhere reports whether a NIC, or its VM, moved to another compute node: then it is
// not deleted with the VM.
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

// answered handles a server's answer to a plan's changes.
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
	t, claim := c.attempts[sent.mac], c.ledger.claims[sent.mac]
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
		c.ledger.create(claim, log.UUID{}) // it is refused finally; another one may be wanted
	case op.Action == log.Delete && o.Refusal == nil:
		c.ledger.drop(sent.mac)
	}
}
