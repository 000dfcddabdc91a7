package registered

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rutter/agent/vmsource"
	"rutter/log"
)

// opLock lets one request at a time ask the log about a VM.
type opLock struct {
	held   chan struct{} // holds a token while it is
	users  int
	cancel context.CancelCauseFunc // of the request that holds it
}

// lock takes the lock of a VM. The context that it returns ends with ctx, and when the VM
// is deleted.
func (s *Source) lock(ctx context.Context, id log.UUID) (context.Context, func(), error) {
	s.mu.Lock()
	l := s.ops[id]
	if l == nil {
		l = &opLock{held: make(chan struct{}, 1)}
		s.ops[id] = l
	}
	l.users++
	s.mu.Unlock()
	leave := func() {
		if l.users--; l.users == 0 {
			delete(s.ops, id)
		}
	}
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		leave()
		return ctx, nil, ctx.Err()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.cancel = cancel
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.cancel = nil
		<-l.held
		leave()
	}, nil
}

// busy reports whether a request asks the log about a VM.
func (s *Source) busy(id log.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ops[id] != nil
}

// interruptLocked ends the request that asks the log about a VM.
func (s *Source) interruptLocked(id log.UUID) {
	if l := s.ops[id]; l != nil && l.cancel != nil {
		l.cancel(errDeleted)
	}
}

// edit changes the record of a VM, on disk too. What is not on disk is settled again after
// a restart, so an error is only logged.
func (s *Source) edit(id log.UUID, change func(r *record)) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[id]
	if e == nil {
		return
	}
	r := e.clone()
	change(r)
	if err := s.keepLocked(e, r); err != nil {
		s.cfg.Logger.Error("a registration is not on disk as it is", "source", s.cfg.Name, "vm", id, "error", err)
		e.record = r
	}
}

// maxRounds bounds how often a change is made anew because of what the log says of it.
const maxRounds = 8

// make has the log make the NICs that it is to make. Errors: a *log.Refusal, and what says
// that no server answered.
func (s *Source) make(ctx context.Context, id log.UUID) error {
	for range maxRounds {
		r := s.recordOf(id)
		if r == nil {
			return nil
		}
		i := slices.IndexFunc(r.NICs, func(n nicRecord) bool { return !n.Held && n.Reason == "" })
		if i < 0 {
			return nil
		}
		change := r.NICs[i].Change
		_, err := s.cfg.Servers.Submit(ctx, s.creation(r, change), 0)
		var refusal *log.Refusal
		if err != nil && !errors.As(err, &refusal) {
			return err
		}
		here := false
		if refusal != nil && isDuplicate(refusal, log.KindVM, id.String()) {
			if here, err = s.cfg.Servers.HasVM(ctx, id); err != nil {
				return err
			}
		}
		if err := s.conclude(id, change, refusal, here); err != nil {
			return err
		}
	}
	return fmt.Errorf("the log did not take the NICs in %d forms", maxRounds)
}

// creation is the change of that id: it makes NICs, and the VM unless the log knows it.
func (s *Source) creation(r *record, id log.UUID) *log.Change {
	c := &log.Change{ID: id}
	if !r.Known {
		vm := &log.VM{UUID: r.UUID, Alias: r.Alias, OwnerUUID: r.OwnerUUID, ServerUUID: s.cfg.CN, Brand: r.Brand, Zonename: r.Zonename, State: r.State}
		set := []string{"brand", "owner_uuid", "server_uuid", "state", "uuid", "zonename"}
		if r.Alias != "" {
			set = slices.Insert(set, 0, "alias")
		}
		c.Ops = append(c.Ops, log.Op{Action: log.Create, Kind: log.KindVM, Set: set, Object: vm})
	}
	primary := r.primary()
	for i := range r.NICs {
		n := &r.NICs[i]
		if n.Change != id {
			continue
		}
		nic := &log.NIC{MAC: n.MAC, BelongsToType: "zone", BelongsToUUID: r.UUID, OwnerUUID: r.OwnerUUID, CNUUID: s.cfg.CN, State: r.State, NetworkUUID: n.Network, IP: n.IP}
		set := []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "network_uuid", "owner_uuid", "state"}
		if n.IP.IsValid() {
			set = append(set, "ip")
		}
		if i == primary {
			nic.Primary = true
			set = append(set, "primary")
		}
		slices.Sort(set)
		c.Ops = append(c.Ops, log.Op{Action: log.Create, Kind: log.KindNIC, Set: set, Object: nic, Options: []log.Option{log.OptionAnyOwner}})
	}
	return c
}

// isDuplicate reports whether a refusal says that an object exists already.
func isDuplicate(refusal *log.Refusal, kind log.Kind, id string) bool {
	return slices.ContainsFunc(refusal.Errors, func(e log.FieldError) bool {
		return e.Code == log.ElementDuplicate && e.Type == kind.String() && e.ID == id
	})
}

// conclude takes the log's answer to a creation. here: the log has the VM on this node. It
// returns the refusal if the NICs are not made in any form.
func (s *Source) conclude(id, change log.UUID, refusal *log.Refusal, here bool) error {
	final := error(nil)
	s.edit(id, func(r *record) {
		of := func(do func(n *nicRecord)) {
			for i := range r.NICs {
				if r.NICs[i].Change == change && !r.NICs[i].Held {
					do(&r.NICs[i])
				}
			}
		}
		switch {
		case refusal == nil:
			r.Known = true
			of(func(n *nicRecord) { n.Held = true })
		case refusal.Code == log.CodeTooOld && r.Leaving:
			// It can be done no more; whether it was, its deletion finds out.
			of(func(n *nicRecord) { n.Held = true })
		case refusal.Code == log.CodeTooOld:
			s.again(r, change)
		case s.exists(r, change, refusal, here):
			s.again(r, change)
		default:
			final = refusal
			of(func(n *nicRecord) { n.Reason = "the log refuses it: " + clipReason(refusal.Error()) })
		}
	})
	return final
}

// clipReason bounds a reason on disk, in bytes.
func clipReason(text string) string {
	const most = 2048
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// again gives the NICs of a change that was not done another change. What the log has of
// them already is held.
func (s *Source) again(r *record, change log.UUID) {
	next := s.cfg.NewID()
	for i, l := range s.inLog(r) {
		n := &r.NICs[i]
		if n.Change != change || n.Held {
			continue
		}
		if l.nic != nil && l.nic.CNUUID == s.cfg.CN {
			n.Held = true
			continue
		}
		n.Change = next
	}
}

// exists reports whether a refusal is about an object that exists already on this node, and
// changes the record so that the next form of the change does not make it.
func (s *Source) exists(r *record, change log.UUID, refusal *log.Refusal, here bool) bool {
	found := here && !r.Known
	r.Known = r.Known || here
	known := s.inLog(r)
	for _, e := range refusal.Errors {
		if e.Code != log.ElementDuplicate {
			continue
		}
		for i := range r.NICs {
			n := &r.NICs[i]
			if n.Change != change || n.Held || e.Type != log.KindNIC.String() || e.ID != n.MAC.String() {
				continue
			}
			if known[i].nic != nil {
				found = found || known[i].nic.CNUUID == s.cfg.CN // again holds it
			} else if !n.Given {
				n.MAC, found = randomMAC(), true
			}
		}
	}
	return found
}

// dropRefused removes the NICs that the log refused, and the registration if nothing of it
// is in the log.
func (s *Source) dropRefused(id log.UUID) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[id]
	if e == nil {
		return nil
	}
	r := e.clone()
	r.NICs = slices.DeleteFunc(r.NICs, func(n nicRecord) bool { return n.Reason != "" })
	if !r.Known && len(r.NICs) == 0 {
		if !e.shown {
			return s.forgetLocked(e)
		}
		r.Leaving = true // who was shown the VM is told of its end
	}
	return s.keepLocked(e, r)
}

// forgetLocked removes a registration of which the log has nothing. Locks are as for keepLocked.
func (s *Source) forgetLocked(e *entry) error {
	s.mu.Unlock()
	err := s.remove(e.UUID)
	s.mu.Lock()
	if err != nil {
		return err
	}
	delete(s.vms, e.UUID)
	return nil
}

// errNotShown: the VM's end is to be reported first.
var errNotShown = errors.New("registered: the VM was not shown yet")

// errNotSeen: this node's part of the log does not have what the servers have yet.
var errNotSeen = errors.New("registered: this node's part of the log is behind")

// isSoon reports whether an error of tell says that it is to be done again soon, and not
// that no server answered.
func isSoon(err error) bool { return errors.Is(err, errNotShown) || errors.Is(err, errNotSeen) }

// tell tells the log what is to be told of a VM. The caller has its lock. Errors say that
// no server answered.
func (s *Source) tell(ctx context.Context, id log.UUID) error {
	for {
		err := s.make(ctx, id)
		if err == nil {
			break
		}
		var refusal *log.Refusal // of one change, whose NICs have it as their reason now; others are still to be made
		if !errors.As(err, &refusal) {
			return err
		}
	}
	for {
		r := s.recordOf(id)
		if r == nil {
			return nil
		}
		i := slices.IndexFunc(r.NICs, func(n nicRecord) bool { return n.Leaving || r.Leaving })
		if i >= 0 {
			if err := s.deleteNIC(ctx, r, r.NICs[i]); err != nil {
				return err
			}
			continue
		}
		if again, err := left(s, id); !again {
			return err
		}
	}
}

// left removes a registration that was deleted and of which the log has no NIC. again: it was
// deleted only now, and has NICs that are to be deleted first.
func left(s *Source, id log.UUID) (again bool, err error) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[id]
	switch {
	case e == nil || !e.Leaving:
		return false, nil
	case len(e.NICs) > 0:
		return true, nil
	case e.Known && !e.shown:
		return false, errNotShown
	}
	return false, s.forgetLocked(e)
}

// tellAlways tells the log what is to be told until ctx ends: soon after each token in
// told, and again after pauses that grow while no server answers.
func (s *Source) tellAlways(ctx context.Context, told <-chan struct{}) {
	pause := s.cfg.RetryMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last log.UUID // of which it was tried last
	for {
		select {
		case <-ctx.Done():
			return
		case <-told:
		case <-timer.C:
		}
		left, err := s.tellAll(ctx, &last)
		switch {
		case err != nil:
			s.mu.Lock()
			s.status.Errors = vmsource.KeepLast(s.status.Errors, vmsource.Failure{Date: time.Now().UTC(), Err: err.Error()})
			s.mu.Unlock()
			pause = min(2*pause, s.cfg.RetryMax)
			select { // not at each token while no server answers
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			timer.Reset(0)
		case left:
			pause = s.cfg.RetryMin
			timer.Reset(pause)
		default:
			pause = s.cfg.RetryMin
		}
	}
}

// tellWithin bounds one try to tell the log of one VM.
const tellWithin = 20 * time.Second

// tellAll tells the log of all VMs of which it is to be told something. left: there is more
// to do soon. The error ends it: no server answered. It begins after the VM last, so that one
// that cannot be told does not keep it from the others.
func (s *Source) tellAll(ctx context.Context, last *log.UUID) (left bool, err error) {
	s.mu.Lock()
	var list []log.UUID
	for id, e := range s.vms {
		if e.unsettled() {
			list = append(list, id)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, log.UUID.Compare)
	from, _ := slices.BinarySearchFunc(list, *last, func(id, last log.UUID) int {
		if id.Compare(last) <= 0 {
			return -1
		}
		return 1
	})
	for _, id := range slices.Concat(list[from:], list[:from]) {
		*last = id
		if s.busy(id) {
			left = true
			continue
		}
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, tellWithin)
			defer cancel()
			ctx, release, err := s.lock(ctx, id)
			if err != nil {
				return err
			}
			defer release()
			return s.tell(ctx, id)
		}()
		switch {
		case isSoon(err), errors.Is(err, context.Canceled) && ctx.Err() == nil:
			left = true
		case err != nil:
			return left, err
		}
		s.Wake()
	}
	return left, nil
}
