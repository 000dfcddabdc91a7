package vmm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"rutter/log"
	"rutter/log/feed"
	"rutter/log/vmobject"
	"rutter/projections"
)

// maxReportOps bounds the operations of one change and so, with the largest VMs (texts
// of 1 KB), its bytes, log.MaxChangeBytes. More operations become several changes.
const maxReportOps = 512

// The states of a VM for which the CN's report is not the only source.
const (
	vmProvisioning = "provisioning"
	vmDestroyed    = "destroyed"
	vmRunning      = "running"
)

// reported is what a CN reports of its VMs on one connection. The log is repeatedly
// made to match it. So the time and number of comparisons do not matter, nor a report
// of an older connection between them.
type reported struct {
	mu       sync.Mutex            // protects what follows
	vms      map[log.UUID]*log.VM  // the VMs that it has; nil: no report yet
	coming   map[log.UUID]*log.VM  // of a whole set that is not complete yet
	gone     map[log.UUID]struct{} // VMs that it reported as gone
	dirty    map[log.UUID]struct{} // to be compared with the log
	allDirty bool
	queued   bool // it waits for a comparison, or is being compared
	again    bool // it is being compared, and has new reports
}

// Report takes a frame of the CN's inventory. A VM that cannot be decoded is left out,
// as if the CN had not reported it.
func (l *Conn) Report(m *feed.Inventory) {
	r := &l.reported
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Whole && m.First {
		r.coming = make(map[log.UUID]*log.VM)
	}
	if m.Whole && r.coming == nil || !m.Whole && r.vms == nil {
		return // the rest of a set whose begin was missed
	}
	for _, said := range m.VMs {
		l.take(r, m.Whole, said)
	}
	if m.Whole && !m.Last {
		return
	}
	if m.Whole {
		r.vms, r.coming, r.allDirty = r.coming, nil, true
		r.gone, r.dirty = make(map[log.UUID]struct{}), make(map[log.UUID]struct{})
	}
	l.s.compareSoon(l)
}

// take stores one VM. The caller holds the lock.
func (l *Conn) take(r *reported, whole bool, said feed.InventoryVM) {
	into := r.vms
	if whole {
		into = r.coming
	} else {
		r.dirty[said.UUID] = struct{}{}
	}
	if len(said.Object) == 0 {
		delete(into, said.UUID)
		if !whole {
			r.gone[said.UUID] = struct{}{}
		}
		return
	}
	o, err := log.DecodeObject(log.KindVM, said.UUID.String(), said.Object)
	vm, is := o.(*log.VM)
	if err != nil || !is || vm.UUID != said.UUID || len(into) >= MaxVMs && into[said.UUID] == nil {
		l.s.logger.Warn("a VM that a CN reports is left out", "cn", l.cn, "vm", said.UUID, "vms", len(into), "error", err)
		l.s.metrics.reports.WithLabelValues("refused").Inc()
		return
	}
	into[said.UUID] = vm
	delete(r.gone, said.UUID)
}

// compareSoon queues a connection for comparison with the log. The caller holds the
// connection's lock.
func (s *Service) compareSoon(l *Conn) {
	if l.reported.queued {
		l.reported.again = true
		return
	}
	select {
	case s.reports <- l:
		l.reported.queued = true
	default: // the next sweep finds it
	}
}

// recheckReports queues every connection: a server that took an older connection for
// the newest may have written that connection's report.
func (s *Service) recheckReports() {
	s.mu.Lock()
	lines := make([]*Conn, 0, len(s.conns))
	for _, l := range s.conns {
		lines = append(lines, l)
	}
	s.mu.Unlock()
	for _, l := range lines {
		l.reported.mu.Lock()
		if l.reported.vms != nil {
			l.reported.allDirty = true
			s.compareSoon(l)
		}
		l.reported.mu.Unlock()
	}
}

// takeReports compares connections with the log, one after the other.
func (s *Service) takeReports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-s.reports:
			err := s.compare(ctx, l)
			if ctx.Err() != nil {
				return
			}
			switch {
			case errors.Is(err, errNobody): // the leader learns of it with the next answer of this server
				s.compared(l, soonAfter)
			case errors.Is(err, errElsewhere): // by the leader's knowledge, which may not include this one yet
				s.compared(l, againAfter)
			case err != nil:
				s.logger.Warn("what a CN reports of its VMs is not written: again soon", "cn", l.cn, "error", err)
				s.metrics.reports.WithLabelValues("retried").Inc()
				s.compared(l, againAfter)
			default:
				s.compared(l, 0)
			}
		}
	}
}

// compared ends a comparison. A failed one is repeated after a while; 0: it did not
// fail.
func (s *Service) compared(l *Conn, after time.Duration) {
	r := &l.reported
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case after > 0:
		r.allDirty, r.again = true, false
		time.AfterFunc(after, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.queued = false
			s.compareSoon(l)
		})
	case r.again:
		r.again, r.queued = false, false
		s.compareSoon(l)
	default:
		r.queued = false
	}
}

// compare writes the differences of the log from the CN's report. Only the newest
// connection of a CN with this server counts.
func (s *Service) compare(ctx context.Context, l *Conn) error {
	if s.conn(l.cn) != l {
		return nil
	}
	r := &l.reported
	r.mu.Lock()
	dirty, all := r.dirty, r.allDirty
	r.dirty, r.allDirty = make(map[log.UUID]struct{}), false
	var ops []log.Op
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { ops = l.opsOf(state, dirty, all) })
	r.mu.Unlock()
	if len(ops) == 0 {
		return nil
	}
	switch newest, err := s.newest(ctx, l.cn); {
	case err != nil:
		return err
	case !newest:
		return errElsewhere
	}
	for part := range slices.Chunk(ops, maxReportOps) {
		if err := s.writeReport(ctx, l, part); err != nil {
			return err
		}
	}
	return nil
}

// errNobody: the leader does not know a session of the CN yet.
var errNobody = errors.New("vmm: the leader knows no session of the compute node")

// errElsewhere: another server has the newest connection of the CN.
var errElsewhere = errors.New("vmm: another server has the newest connection of the compute node")

// newest reports whether this server has the newest connection of a CN by the leader's
// knowledge. It asks after the state was read. If a report of a newer connection is in
// that state, the leader knows that connection. If the report came later, the revisions
// in the operations do not match any more.
func (s *Service) newest(ctx context.Context, cn log.UUID) (bool, error) {
	if s.cfg.Peers == nil {
		return true, nil
	}
	id, err := s.cfg.Peers.Where(ctx, cn)
	if err == nil && id == "" {
		err = errNobody
	}
	if err != nil || id == s.cfg.Peers.Self() {
		return err == nil, err
	}
	s.metrics.reports.WithLabelValues("fenced").Inc()
	return false, nil
}

// opsOf compares the VMs of dirty, or all, with the state, sorted by VM. The caller
// holds the connection's lock.
func (l *Conn) opsOf(state *projections.State, dirty map[log.UUID]struct{}, all bool) (ops []log.Op) {
	if all {
		dirty = make(map[log.UUID]struct{}, len(l.reported.vms))
		for id := range l.reported.vms {
			dirty[id] = struct{}{}
		}
		for id := range l.reported.gone {
			dirty[id] = struct{}{}
		}
		for rec := range state.VMsOn(l.cn) {
			dirty[rec.Object.(*log.VM).UUID] = struct{}{}
		}
	}
	ids := make([]log.UUID, 0, len(dirty))
	for id := range dirty {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, log.UUID.Compare)
	for _, id := range ids {
		rec, known := state.Get(log.KindVM, id.String())
		said := l.reported.vms[id]
		if said != nil && !said.DoNotInventory {
			if known && leftBehind(state, l.cn, rec.Object.(*log.VM)) {
				continue
			}
			if op, differs := has(said, l.cn, rec, known, state.Feature() >= log.FeatureTriton); differs {
				ops = append(ops, op)
			}
			continue
		}
		if !known || rec.Object.(*log.VM).ServerUUID != l.cn {
			continue
		}
		_, told := l.reported.gone[id]
		if op, differs := hasNot(state, rec, told || said != nil); differs {
			ops = append(ops, op)
		}
	}
	return ops
}

// leftBehind reports whether the log has a VM on another CN, and there a newer VMM of it than
// on this one, neither of which has ended: the VM migrates, so that both CNs have it, and it is
// not this one's any more.
func leftBehind(state *projections.State, cn log.UUID, vm *log.VM) bool {
	if vm.ServerUUID.IsZero() || vm.ServerUUID == cn {
		return false
	}
	var here, there log.Seq
	for rec := range state.VMMsOf(vm.UUID) {
		m := rec.Object.(*log.VMM)
		switch {
		case !onCN(m.State) && m.State != stateCreating:
		case m.SledID == cn:
			here = max(here, rec.Seq)
		case m.SledID == vm.ServerUUID:
			there = max(there, rec.Seq)
		}
	}
	return here > 0 && there > here
}

// has returns the operation that makes the log match a CN's report of a VM that it has.
// properties: the log has VM.Properties. A CN that reports none has no part in them.
func has(said *log.VM, cn log.UUID, rec projections.Record, known, properties bool) (op log.Op, differs bool) {
	want := log.Clone(said).(*log.VM)
	want.ServerUUID, want.Properties = cn, vmobject.Reported("", said.Properties)
	if !properties {
		want.Properties = ""
	}
	before, action := new(log.VM), log.Create
	if known {
		before, action = rec.Object.(*log.VM), log.Update
		if elsewhere := before.ServerUUID; !elsewhere.IsZero() && elsewhere != cn && before.State == vmRunning && want.State != vmRunning {
			return op, false // the other CN of a migration
		}
		// Whose a VM is, the log knows; a report does not change it (log.Rights).
		want.CreateTimestamp, want.OwnerUUID = before.CreateTimestamp, before.OwnerUUID
		if want.LastModified == 0 {
			want.LastModified = before.LastModified
		}
		if want.Zonename == "" {
			want.Zonename = before.Zonename
		}
		if want.State == "" {
			want.State = before.State
		}
		if want.Properties = vmobject.Reported(before.Properties, want.Properties); !properties {
			want.Properties = before.Properties
		}
	}
	var set []string
	for _, changed := range log.Diff(before, want) {
		set = append(set, changed.Path)
	}
	if slices.Equal(set, []string{"last_modified"}) {
		return op, false // no field of the log differs
	}
	slices.Sort(set)
	op = log.Op{Action: action, Kind: log.KindVM, Set: set, Object: want}
	if known {
		op.ID, op.IfMatch, op.IfSeq = want.UUID.String(), rec.Revision, rec.Seq
	}
	return op, set != nil
}

// hasNot returns the operation for a VM that its CN does not have any more. While NICs
// or VMMs name it, it stays, as destroyed, because the CN may not delete them. A VM
// that is being provisioned may not exist yet, unless the CN reported it as gone.
func hasNot(state *projections.State, rec projections.Record, told bool) (op log.Op, differs bool) {
	held := rec.Object.(*log.VM)
	if held.State == vmProvisioning && !told {
		return op, false
	}
	named := false
	for range state.NICsOf(held.UUID) {
		named = true
		break
	}
	for range state.VMMsOf(held.UUID) {
		named = true
		break
	}
	op = log.Op{Action: log.Delete, Kind: log.KindVM, ID: held.UUID.String(), IfMatch: rec.Revision, IfSeq: rec.Seq}
	if named {
		op.Action, op.Set = log.Update, []string{"state", "zone_state"}
		op.Object = &log.VM{State: vmDestroyed, ZoneState: vmDestroyed}
	}
	return op, !named || held.State != vmDestroyed
}

// moved reports whether an operation was refused because the log had changed, or
// because this server is behind it.
func moved(r *log.Refusal) bool {
	switch r.Code {
	case log.CodePreconditionFailed, log.CodeInUse, log.CodeResourceNotFound:
		return true
	}
	return slices.ContainsFunc(r.Errors, func(e log.FieldError) bool {
		return e.Field == "uuid" && e.Code == log.ElementDuplicate
	})
}

// writeReport writes operations in one change. If it is refused, it writes each alone,
// so that one VM does not prevent the others. VMs that had changed in the log are
// compared again.
func (s *Service) writeReport(ctx context.Context, l *Conn, ops []log.Op) error {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	result, err := s.propose(ctx, &log.Change{Actor: actorCN + l.cn.String(), By: s.by(l.cn), Ops: ops})
	switch {
	case err != nil:
		return err
	case result.Refusal == nil:
		s.metrics.reports.WithLabelValues("written").Add(float64(len(ops)))
		if err := s.cfg.Store.WaitSeq(ctx, result.Last); err != nil { // else the next comparison would find the difference again
			return err
		}
		l.ringPlaced()
		return nil
	case len(ops) > 1:
		for i := range ops {
			if err := s.writeReport(ctx, l, ops[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	case moved(result.Refusal):
		if _, err := s.cfg.Store.Consistent(ctx); err != nil {
			return err
		}
		return result.Refusal
	}
	s.metrics.reports.WithLabelValues("refused").Inc()
	s.logger.Warn("what a CN says of a VM is refused", "cn", l.cn, "vm", ops[0].ID, "error", result.Refusal)
	return nil
}
