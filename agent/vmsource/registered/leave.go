package registered

import (
	"context"
	"errors"
	"slices"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Delete removes a registration. Errors are of this node only: the log is told now or
// later, also after a restart.
func (s *Source) Delete(ctx context.Context, id log.UUID) error {
	s.mu.Lock()
	s.interruptLocked(id)
	s.mu.Unlock()
	return s.leave(ctx, id, func(r *record) bool {
		before := r.Leaving
		r.Leaving = true
		return !before
	})
}

// Forget removes a registration whose VM is on another node now: its NICs stay in the log.
func (s *Source) Forget(ctx context.Context, id log.UUID) error {
	s.mu.Lock()
	s.interruptLocked(id)
	s.mu.Unlock()
	return s.leave(ctx, id, func(r *record) bool {
		before := r.Leaving
		r.Leaving, r.NICs = true, nil
		return !before
	})
}

// Away says whether the VM's program has moved a registered VM to another node. It is so
// until a registration says that the VM runs here.
func (s *Source) Away(id log.UUID, away bool) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[id]
	if e == nil || e.Away == away {
		return nil
	}
	r := e.clone()
	r.Away = away
	return s.keepLocked(e, r)
}

// DeleteNIC removes one NIC of a VM, as Delete does.
func (s *Source) DeleteNIC(ctx context.Context, id log.UUID, key string) error {
	return s.leave(ctx, id, func(r *record) bool {
		n := r.nic(key)
		if n == nil {
			return false
		}
		n.Leaving = true
		return true
	})
}

// leave marks what is to go on disk, and has the log told soon.
func (s *Source) leave(ctx context.Context, id log.UUID, mark func(r *record) bool) error {
	r, marked, err := s.mark(id, mark)
	if err != nil {
		e := diskFailed(s.cfg.Folder, err)
		e.Message += ": nothing was removed; repeat it"
		return e
	}
	if r == nil {
		return nil
	}
	if r.Leaving && marked {
		s.cfg.Node.Ended(id, "")
	}
	s.cfg.Node.Attaching(nil) // its links go now, whenever the log is told
	s.Wake()
	enough := time.NewTimer(s.cfg.DeleteWithin)
	defer enough.Stop()
	look := time.NewTicker(lookMin)
	defer look.Stop()
	for {
		if now := s.recordOf(id); now == nil || !now.unsettled() {
			return nil
		}
		select {
		case <-look.C:
		case <-enough.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// mark changes the record of a VM on disk, and returns what it is then: nil if there is none.
func (s *Source) mark(id log.UUID, mark func(r *record) bool) (r *record, marked bool, err error) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[id]
	if e == nil {
		return nil, false, nil
	}
	r = e.clone()
	if marked = mark(r); marked {
		err = s.keepLocked(e, r)
	}
	return r, marked, err
}

// deleteNIC deletes a NIC in the log, and then in the record. The id of the change is on
// disk before it is sent: it is done once, so that a late one cannot delete another NIC. It
// names the NIC as it was when it was this VM's on this node, so that a NIC that has come to
// another node stays.
func (s *Source) deleteNIC(ctx context.Context, r *record, n nicRecord) error {
	change := func(id log.UUID, seq log.Seq) {
		n.Delete, n.DeleteSeq = id, seq
		s.edit(r.UUID, func(r *record) {
			for i := range r.NICs {
				if r.NICs[i].MAC == n.MAC {
					r.NICs[i].Delete, r.NICs[i].DeleteSeq = id, seq
				}
			}
		})
	}
	if n.Held && n.DeleteSeq == 0 {
		seq, err := s.ownSeq(ctx, r, &n)
		if err != nil {
			return err
		}
		if seq > 0 {
			change(s.cfg.NewID(), seq)
		}
	}
	if n.Held && n.DeleteSeq > 0 {
		_, err := s.cfg.Servers.Submit(ctx, &log.Change{ID: n.Delete, Ops: []log.Op{{Action: log.Delete, Kind: log.KindNIC, ID: n.MAC.String(), IfSeq: n.DeleteSeq}}}, 0)
		var refusal *log.Refusal
		switch {
		case err == nil:
		case !errors.As(err, &refusal):
			return err
		case refusal.Code == log.CodeTooOld, refusal.Code == log.CodePreconditionFailed:
			change(log.UUID{}, 0)
			return errNotSeen
		case refusal.Code != log.CodeResourceNotFound:
			// Something else of this node may have deleted it meanwhile, and of a NIC that is
			// not there the servers say that it is not this node's.
			if nic, err := s.cfg.Servers.NIC(ctx, n.MAC); err != nil {
				return err
			} else if nic == nil {
				break
			}
			s.cfg.Logger.Warn("a NIC of a VM that is registered no more stays in the log", "source", s.cfg.Name, "vm", r.UUID, "nic", n.MAC, "reason", refusal)
		}
	}
	s.edit(r.UUID, func(r *record) {
		r.NICs = slices.DeleteFunc(r.NICs, func(kept nicRecord) bool { return kept.MAC == n.MAC })
	})
	s.cfg.Node.Attaching(nil)
	return nil
}

// ownSeq is the seq of a NIC that is this VM's on this node; 0: the log has it no more, or on
// another node, or as another VM's. What this node's part of the log does not say, a server
// is asked.
func (s *Source) ownSeq(ctx context.Context, r *record, n *nicRecord) (log.Seq, error) {
	own := func(nic *log.NIC) bool { return nic.BelongsToUUID == r.UUID && nic.CNUUID == s.cfg.CN }
	var seq log.Seq
	s.cfg.Node.View(func(state *projections.State) {
		if rec, ok := state.Get(log.KindNIC, n.MAC.String()); ok && own(rec.Object.(*log.NIC)) {
			seq = rec.Seq
		}
	})
	if seq > 0 {
		return seq, nil
	}
	nic, err := s.cfg.Servers.NIC(ctx, n.MAC)
	switch {
	case err != nil:
		return 0, err
	case nic == nil:
		return 0, nil
	case own(nic):
		return 0, errNotSeen
	}
	s.cfg.Logger.Info("a NIC of a VM that is registered no more is not this node's, and stays in the log", "source", s.cfg.Name, "vm", r.UUID, "nic", n.MAC, "cn", nic.CNUUID)
	return 0, nil
}
