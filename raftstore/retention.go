package raftstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/metarow"
)

// Retention says how much of the log a cluster keeps. It is replicated; the zero value
// is the default: see DefaultRetention.
type Retention = changesdb.Retention

// SetRetention changes what the cluster keeps, on any server.
func (s *Store) SetRetention(ctx context.Context, r Retention) error {
	if err := s.checkRetention(r); err != nil {
		return err
	}
	return s.members.admin(ctx, adminRequest{Do: "retention", Retention: &r})
}

func (s *Store) checkRetention(r Retention) error {
	if r.Age < 0 || r.Events == 0 || r.Bytes == 0 || r.Bytes > uint64(s.cfg.MapBytes)/2 {
		return fmt.Errorf("raftstore: retention of %v, %d events, %d bytes: want an age, at least one event, and from 1 to %d bytes", r.Age, r.Events, r.Bytes, s.cfg.MapBytes/2)
	}
	return nil
}

// RetentionPlan is what a retention means for this server's file as it is now.
type RetentionPlan struct {
	Retention Retention
	Head      log.Seq
	Floor     log.Seq  // entries after it are kept
	Oldest    log.Time // of the first of them; 0 if there is none
	Bytes     uint64   // in use in changes.db
	Next      log.Seq  // where the floor would go now; Floor if it stays
	NextTime  log.Time // of the last entry that would go; 0 if none would
}

// PlanRetention says what r would let go now; nothing is changed. nil is the
// retention that the cluster has.
func (s *Store) PlanRetention(r *Retention) (p RetentionPlan, err error) {
	if r != nil {
		if err := s.checkRetention(*r); err != nil {
			return p, err
		}
	}
	now, err := s.times.clock.Sure()
	if err != nil {
		return p, err
	}
	err = s.files.View(func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		if err != nil {
			return err
		}
		p = RetentionPlan{Retention: h.Retention.OrDefault(), Head: h.Seq, Floor: h.Floor, Next: h.Floor, Bytes: changesdb.UsedBytes(tx)}
		if r != nil {
			p.Retention = *r
		}
		if p.Oldest, err = changesdb.TimeOf(tx, h.Floor+1, h.Seq); err != nil {
			return err
		}
		to, err := changesdb.WantedFloor(tx, r, now)
		if err != nil || to.Seq == 0 {
			return err
		}
		p.Next = to.Seq
		p.NextTime, err = changesdb.TimeOf(tx, to.Seq, h.Seq)
		return err
	})
	return p, err
}

// setRetentionLocal is SetRetention on the leader.
func (g *keeper) setRetentionLocal(ctx context.Context, r *raft.Raft, want *Retention) error {
	if want == nil {
		return errors.New("retention: nothing to set")
	}
	if !g.store.comparison.allKnow(command.Retention, r.GetConfiguration().Configuration().Servers) {
		return errors.New("retention: not all members were heard to know this command: upgrade them, or wait until they are back")
	}
	return awaitFuture(ctx, r.Apply(append([]byte{command.Retention}, want.Encode()...), enqueueTimeout))
}

func (a *applier) applyRetention(data []byte) error {
	if len(data) < changesdb.RetentionBytes {
		return fmt.Errorf("retention of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	a.head.Retention = changesdb.ReadRetention(&metarow.Reader{Rest: data})
	return nil
}

// applyFloor moves the floor, never back. The rows go later, in small
// transactions: see maintain.go.
func (a *applier) applyFloor(data []byte) error {
	if len(data) < 8+len(log.Hash{}) {
		return fmt.Errorf("floor of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	r := metarow.Reader{Rest: data}
	seq := log.Seq(r.U64())
	if seq > a.head.Seq {
		return fmt.Errorf("floor at %d, beyond the head at %d: %w", seq, a.head.Seq, log.ErrCorrupt)
	}
	if seq > a.head.Floor {
		a.head.Floor, a.head.FloorHash = seq, log.Hash(r.Take(len(log.Hash{})))
	}
	return nil
}

// moveFloor proposes a floor if there is enough to let go. Only the leader
// does; it reads its own file, so the rows that it names are there.
func (g *keeper) moveFloor(ctx context.Context, r *raft.Raft) error {
	if !g.store.lead.leading() || !g.store.comparison.allKnow(command.Floor, r.GetConfiguration().Configuration().Servers) {
		return nil
	}
	now, err := g.store.times.clock.Sure()
	if err != nil {
		return err // a clock that may be wrong must not let history go
	}
	var to changesdb.Slot
	err = g.store.files.View(func(tx *bbolt.Tx) error {
		to, err = changesdb.WantedFloor(tx, nil, now)
		return err
	})
	if err != nil || to.Seq == 0 {
		return err
	}
	if err := awaitFuture(ctx, r.Apply(command.EncodeFloor(to.Seq, to.Hash), enqueueTimeout)); err != nil {
		return fmt.Errorf("move the floor to %d: %w", to.Seq, err)
	}
	g.store.logger.Info("the floor moves", "floor", to.Seq)
	return nil
}
