package changesdb

import (
	"encoding/binary"
	"fmt"
	"sort"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/metarow"
)

// Retention is how much of the log a cluster keeps: entries that are younger than Age or
// among the newest Events, whichever is more, as long as changes.db uses at most Bytes.
// It is replicated; the zero value is the default.
type Retention struct {
	Age    time.Duration `json:"age_ns"`
	Events uint64        `json:"events"`
	Bytes  uint64        `json:"bytes"` // in use in changes.db, which wins over both; the file itself never shrinks
}

// DefaultRetention is 7 days and 10 million events, up to 16 GiB.
func DefaultRetention() Retention {
	return Retention{Age: 7 * 24 * time.Hour, Events: 10_000_000, Bytes: 16 << 30}
}

// OrDefault returns r, or the default if r is the zero value.
func (r Retention) OrDefault() Retention {
	if r == (Retention{}) {
		return DefaultRetention()
	}
	return r
}

// RetentionBytes is the length of an encoded Retention.
const RetentionBytes = 24

// Encode returns the form of r in its row and in raft entries, RetentionBytes long.
func (r Retention) Encode() []byte {
	b := make([]byte, 0, RetentionBytes)
	for _, n := range [...]uint64{uint64(r.Age), r.Events, r.Bytes} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func (r Retention) row() []byte {
	b := metarow.New(RetentionBytes)
	b = append(b, r.Encode()...)
	return metarow.Seal(keyRetention, b)
}

// decodeRetention reads the row. Without a row it returns the default.
func decodeRetention(row []byte) (Retention, error) {
	if row == nil {
		return Retention{}, nil
	}
	r, err := metarow.Open(keyRetention, row)
	if err != nil {
		return Retention{}, err
	}
	if len(r.Rest) < RetentionBytes {
		return Retention{}, fmt.Errorf("changes.db: retention of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	return ReadRetention(r), nil
}

// ReadRetention reads an encoded Retention. r must have at least RetentionBytes.
func ReadRetention(r *metarow.Reader) Retention {
	return Retention{time.Duration(r.U64()), r.U64(), r.U64()}
}

// TimeOf returns the time of an entry; 0 if it is beyond the last one.
func TimeOf(tx *bbolt.Tx, seq, last log.Seq) (log.Time, error) {
	if seq > last {
		return 0, nil
	}
	key := SeqKey(seq)
	row, err := ReadEvent(seq, key, tx.Bucket(BucketEvents).Get(key))
	if err != nil {
		return 0, err
	}
	e, err := row.Event()
	if err != nil {
		return 0, err
	}
	return e.Time, nil
}

// floorStep: the floor moves by at least Retention.Events/floorStep, so that it does not
// move for each entry.
const floorStep = 100

// WantedFloor returns the last entry that should not be kept, always the end of a change;
// the zero Slot if the floor stays. If as is nil, the cluster's retention is used.
func WantedFloor(tx *bbolt.Tx, as *Retention, now log.Time) (Slot, error) {
	h, _, err := ReadMeta(tx)
	if err != nil {
		return Slot{}, err
	}
	keep := h.Retention.OrDefault()
	if as != nil {
		keep = *as
	}
	first := FirstEvent(tx, &h)
	if first > h.Seq {
		return Slot{}, nil
	}
	var want log.Seq
	if uint64(h.Seq) > keep.Events {
		want = min(h.Seq-log.Seq(keep.Events), LastBefore(tx, h.Floor, h.Seq, now-log.Time(keep.Age)))
	}
	want = max(want, cappedFloor(tx, &h, first, keep.Bytes))
	if want < h.Floor+log.Seq(max(1, min(keep.Events/floorStep, 10_000))) {
		return Slot{}, nil
	}
	events := tx.Bucket(BucketEvents)
	for ; want > h.Floor; want-- {
		key := SeqKey(want)
		at, err := ReadEvent(want, key, events.Get(key))
		if err != nil || at.More == 0 {
			at.Bytes = nil // memory of the transaction
			return at, err
		}
	}
	return Slot{}, nil
}

// FirstEvent returns the seq of the first event row; if there is none, the seq after the
// head.
func FirstEvent(tx *bbolt.Tx, h *Head) log.Seq {
	key, _ := tx.Bucket(BucketEvents).Cursor().First()
	if len(key) != 8 {
		return h.Seq + 1
	}
	return log.Seq(binary.BigEndian.Uint64(key))
}

// LastBefore returns the last seq in (floor, last] whose event is not after a time; floor
// if there is none. If an operator set the time back within this range, it returns a seq
// whose event is not after the time and whose next event is. A row that cannot be read
// counts as young, so that it is kept.
func LastBefore(tx *bbolt.Tx, floor, last log.Seq, at log.Time) log.Seq {
	events := tx.Bucket(BucketEvents)
	n := sort.Search(int(last-floor), func(i int) bool {
		seq := floor + 1 + log.Seq(i)
		key := SeqKey(seq)
		row, err := ReadEvent(seq, key, events.Get(key))
		if err != nil {
			return true
		}
		e, err := row.Event()
		return err != nil || e.Time > at
	})
	return floor + log.Seq(n)
}

// cappedFloor returns the floor that reduces the use of the file to nine tenths of the
// cap. It counts from the first existing row, so that rows which are already due for
// deletion are not counted twice.
func cappedFloor(tx *bbolt.Tx, h *Head, first log.Seq, limit uint64) log.Seq {
	used := UsedBytes(tx)
	if used <= limit {
		return 0
	}
	perEvent := max(1, used/uint64(h.Seq-first+1))
	return min(first-1+log.Seq((used-limit/10*9)/perEvent), h.Seq)
}

// UsedBytes returns the size of the file without its free pages, in bytes.
func UsedBytes(tx *bbolt.Tx) uint64 {
	stats := tx.DB().Stats()
	free := int64(stats.FreePageN+stats.PendingPageN) * int64(tx.DB().Info().PageSize)
	return uint64(max(0, tx.Size()-free))
}
