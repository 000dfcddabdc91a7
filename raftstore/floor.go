package raftstore

import (
	"encoding/binary"
	"fmt"
	"sort"
	"time"

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

// retentionBytes is the length of what encode makes.
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
	return readRetention(r), nil
}

// readRetention reads a retention as encode made it; r has at least RetentionBytes.
func readRetention(r *metarow.Reader) Retention {
	return Retention{time.Duration(r.U64()), r.U64(), r.U64()}
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

// floorStep is the part of Retention.Events that the floor moves by at least,
// so that it does not move for each entry.
const floorStep = 100

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
