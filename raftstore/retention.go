package raftstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/metarow"
)

// Retention says how much of the log a cluster keeps: entries that are younger
// than Age or among the newest Events, whichever is more, as long as changes.db
// uses no more than Bytes. It is replicated; the zero value is the default.
type Retention struct {
	Age    time.Duration `json:"age_ns"`
	Events uint64        `json:"events"`
	Bytes  uint64        `json:"bytes"` // in use in changes.db, which wins over both; the file itself never shrinks
}

// DefaultRetention is 7 days and 10 million events, up to 16 GiB.
func DefaultRetention() Retention {
	return Retention{Age: 7 * 24 * time.Hour, Events: 10_000_000, Bytes: 16 << 30}
}

func (r Retention) orDefault() Retention {
	if r == (Retention{}) {
		return DefaultRetention()
	}
	return r
}

const retentionBytes = 24

func (r Retention) encode() []byte {
	b := make([]byte, 0, retentionBytes)
	for _, n := range [...]uint64{uint64(r.Age), r.Events, r.Bytes} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func (r Retention) row() []byte {
	b := metarow.New(retentionBytes)
	b = append(b, r.encode()...)
	return metarow.Seal(keyRetention, b)
}

// decodeRetention reads the row; none is the default.
func decodeRetention(row []byte) (Retention, error) {
	if row == nil {
		return Retention{}, nil
	}
	r, err := metarow.Open(keyRetention, row)
	if err != nil {
		return Retention{}, err
	}
	if len(r.Rest) < retentionBytes {
		return Retention{}, fmt.Errorf("changes.db: retention of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	return Retention{time.Duration(r.U64()), r.U64(), r.U64()}, nil
}

// SetRetention changes what the cluster keeps, on any server.
func (s *Store) SetRetention(ctx context.Context, r Retention) error {
	if err := s.checkRetention(r); err != nil {
		return err
	}
	return s.admin(ctx, adminRequest{Do: "retention", Retention: &r})
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
	now, err := s.clock.sure()
	if err != nil {
		return p, err
	}
	err = s.files.view(func(tx *bbolt.Tx) error {
		h, _, err := readMeta(tx)
		if err != nil {
			return err
		}
		p = RetentionPlan{Retention: h.retention.orDefault(), Head: h.seq, Floor: h.floor, Next: h.floor, Bytes: usedBytes(tx)}
		if r != nil {
			p.Retention = *r
		}
		if p.Oldest, err = timeOf(tx, h.floor+1, h.seq); err != nil {
			return err
		}
		to, err := wantedFloor(tx, r, now)
		if err != nil || to.Seq == 0 {
			return err
		}
		p.Next = to.Seq
		p.NextTime, err = timeOf(tx, to.Seq, h.seq)
		return err
	})
	return p, err
}

// timeOf returns the time of an entry; 0 if it is beyond the last one.
func timeOf(tx *bbolt.Tx, seq, last log.Seq) (log.Time, error) {
	if seq > last {
		return 0, nil
	}
	key := seqKey(seq)
	row, err := readEventRow(seq, key, tx.Bucket(bucketEvents).Get(key))
	if err != nil {
		return 0, err
	}
	e, err := row.Event()
	if err != nil {
		return 0, err
	}
	return e.Time, nil
}

// setRetentionLocal is SetRetention on the leader.
func (s *Store) setRetentionLocal(ctx context.Context, r *raft.Raft, want *Retention) error {
	if want == nil {
		return errors.New("retention: nothing to set")
	}
	if !s.allKnow(commandRetention, r.GetConfiguration().Configuration().Servers) {
		return errors.New("retention: not all members were heard to know this command: upgrade them, or wait until they are back")
	}
	return awaitFuture(ctx, r.Apply(append([]byte{commandRetention}, want.encode()...), enqueueTimeout))
}

func (s *Store) applyRetention(data []byte) error {
	if len(data) < retentionBytes {
		return fmt.Errorf("retention of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	r := metarow.Reader{Rest: data}
	s.applier.head.retention = Retention{time.Duration(r.U64()), r.U64(), r.U64()}
	return nil
}

// floorEntry returns the raft entry that moves the floor.
func floorEntry(seq log.Seq, hash log.Hash) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{commandFloor}, uint64(seq)), hash[:]...)
}

// applyFloor moves the floor, never back. The rows go later, in small
// transactions: see maintain.go.
func (s *Store) applyFloor(data []byte) error {
	if len(data) < 8+len(log.Hash{}) {
		return fmt.Errorf("floor of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	r := metarow.Reader{Rest: data}
	seq := log.Seq(r.U64())
	a := &s.applier
	if seq > a.head.seq {
		return fmt.Errorf("floor at %d, beyond the head at %d: %w", seq, a.head.seq, log.ErrCorrupt)
	}
	if seq > a.head.floor {
		a.head.floor, a.head.floorHash = seq, log.Hash(r.Take(len(log.Hash{})))
	}
	return nil
}

// floorStep is the part of Retention.Events that the floor moves by at least,
// so that it does not move for each entry.
const floorStep = 100

// moveFloor proposes a floor if there is enough to let go. Only the leader
// does; it reads its own file, so the rows that it names are there.
func (s *Store) moveFloor(ctx context.Context, r *raft.Raft) error {
	if !s.leading() || !s.allKnow(commandFloor, r.GetConfiguration().Configuration().Servers) {
		return nil
	}
	now, err := s.clock.sure()
	if err != nil {
		return err // a clock that may be wrong must not let history go
	}
	var to slot
	err = s.files.view(func(tx *bbolt.Tx) error {
		to, err = wantedFloor(tx, nil, now)
		return err
	})
	if err != nil || to.Seq == 0 {
		return err
	}
	if err := awaitFuture(ctx, r.Apply(floorEntry(to.Seq, to.Hash), enqueueTimeout)); err != nil {
		return fmt.Errorf("move the floor to %d: %w", to.Seq, err)
	}
	s.logger.Info("the floor moves", "floor", to.Seq)
	return nil
}

// wantedFloor returns the entry that is to be the last one not kept, always the
// end of a change; the zero slot if the floor stays. A retention of nil is that
// of the cluster.
func wantedFloor(tx *bbolt.Tx, as *Retention, now log.Time) (slot, error) {
	h, _, err := readMeta(tx)
	if err != nil {
		return slot{}, err
	}
	keep := h.retention.orDefault()
	if as != nil {
		keep = *as
	}
	first := firstEvent(tx, &h)
	if first > h.seq {
		return slot{}, nil
	}
	var want log.Seq
	if uint64(h.seq) > keep.Events {
		want = min(h.seq-log.Seq(keep.Events), lastBefore(tx, h.floor, h.seq, now-log.Time(keep.Age)))
	}
	want = max(want, cappedFloor(tx, &h, first, keep.Bytes))
	if want < h.floor+log.Seq(max(1, min(keep.Events/floorStep, 10_000))) {
		return slot{}, nil
	}
	events := tx.Bucket(bucketEvents)
	for ; want > h.floor; want-- {
		key := seqKey(want)
		at, err := readEventRow(want, key, events.Get(key))
		if err != nil || at.more == 0 {
			at.Bytes = nil // it is the transaction's
			return at, err
		}
	}
	return slot{}, nil
}

// firstEvent returns the seq of the first row there is; that after the head if
// there is none.
func firstEvent(tx *bbolt.Tx, h *head) log.Seq {
	key, _ := tx.Bucket(bucketEvents).Cursor().First()
	if len(key) != 8 {
		return h.seq + 1
	}
	return log.Seq(binary.BigEndian.Uint64(key))
}

// lastBefore returns the last seq in (floor, last] whose event is not after a
// time; floor if there is none. Time goes back along the log only where an operator set
// it (mend.go); if that lies in between, it is some seq whose event is not after the
// time and the one behind it is. A row that cannot be read counts as young: it is not
// let go.
func lastBefore(tx *bbolt.Tx, floor, last log.Seq, at log.Time) log.Seq {
	events := tx.Bucket(bucketEvents)
	n := sort.Search(int(last-floor), func(i int) bool {
		seq := floor + 1 + log.Seq(i)
		key := seqKey(seq)
		row, err := readEventRow(seq, key, events.Get(key))
		if err != nil {
			return true
		}
		e, err := row.Event()
		return err != nil || e.Time > at
	})
	return floor + log.Seq(n)
}

// cappedFloor returns the floor that brings the file's use to nine tenths of
// the cap, counted from the first row there is: rows that are to go already are
// not counted twice.
func cappedFloor(tx *bbolt.Tx, h *head, first log.Seq, limit uint64) log.Seq {
	used := usedBytes(tx)
	if used <= limit {
		return 0
	}
	perEvent := max(1, used/uint64(h.seq-first+1))
	return min(first-1+log.Seq((used-limit/10*9)/perEvent), h.seq)
}

// usedBytes is the size of the file without its free pages.
func usedBytes(tx *bbolt.Tx) uint64 {
	stats := tx.DB().Stats()
	free := int64(stats.FreePageN+stats.PendingPageN) * int64(tx.DB().Info().PageSize)
	return uint64(max(0, tx.Size()-free))
}
