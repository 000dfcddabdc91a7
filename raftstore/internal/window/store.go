package window

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
)

// Batch is what one raft entry changes in the window, in the order of the log.
type Batch struct {
	Results []Result // results of the changes that are now remembered
	Changes Changes
	// Trimmed is Window.trimmed below log.FeatureContained: all rows up to it are
	// deleted.
	Trimmed log.UUID
}

// Result is the row of one change id.
type Result struct {
	ID    log.UUID
	Value []byte // see Row
}

// Empty reports whether there is nothing to write.
func (b *Batch) Empty() bool {
	return len(b.Results)+len(b.Changes.forgotten)+len(b.Changes.lowMarks) == 0 && b.Trimmed.IsZero()
}

// Write adds and deletes the rows that the batches changed, in their order, and writes
// the low-water marks. The rows lie in room until the transaction ends. step is called
// before each row.
func Write(tx *bbolt.Tx, batches []*Batch, room *log.Room, step func()) error {
	bucket := tx.Bucket(BucketChanges)
	marks := make(map[log.Asker]log.UUID)
	for _, u := range batches {
		for key, mark := range u.Changes.lowMarks { // of each author the last one counts
			marks[key] = mark
		}
	}
	// Only below log.FeatureContained all rows up to an id are deleted.
	first, trimmed := 0, log.UUID{}
	for i, u := range batches {
		if !u.Trimmed.IsZero() {
			first, trimmed = i+1, u.Trimmed
		}
	}
	return errors.Join(
		writeRows(bucket, changesOf(batches[:first]), trimmed, room, step),
		writeRows(bucket, changesOf(batches[first:]), log.UUID{}, room, step),
		writeLowMarks(tx, marks),
	)
}

// changesOf returns the rows that batches changed; of each id the last one.
func changesOf(batches []*Batch) []Result {
	n := 0
	for _, u := range batches {
		n += len(u.Results) + len(u.Changes.forgotten)
	}
	rows, forgot := make([]Result, 0, n), false
	for _, u := range batches {
		rows = append(rows, u.Results...)
		for _, id := range u.Changes.forgotten {
			rows, forgot = append(rows, Result{ID: id}), true
		}
	}
	if forgot {
		return lastOfEach(rows)
	}
	return rows
}

// lastOfEach keeps the last row of each id.
func lastOfEach(rows []Result) []Result {
	slices.Reverse(rows)
	seen := make(map[log.UUID]bool, len(rows))
	return slices.DeleteFunc(rows, func(r Result) bool {
		before := seen[r.ID]
		seen[r.ID] = true
		return before
	})
}

// writeRows writes the rows that have a value, and deletes the others. It also deletes
// all rows up to trimmed, because older programs left some.
func writeRows(bucket *bbolt.Bucket, rows []Result, trimmed log.UUID, room *log.Room, step func()) error {
	bucket.FillPercent = 1 // ids begin with their time: nearly all go to the end
	slices.SortFunc(rows, func(a, b Result) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for i := range rows {
		step()
		r := &rows[i]
		var err error
		switch {
		case r.Value == nil:
			err = bucket.Delete(r.ID[:])
		case bytes.Compare(r.ID[:], trimmed[:]) > 0:
			err = bucket.Put(r.ID[:], changeRow(room, r.ID, r.Value))
		}
		if err != nil {
			return err
		}
	}
	// Do not call Next after Cursor.Delete: in a page that this transaction has written
	// to, it skips every second row.
	var old [][]byte
	cursor := bucket.Cursor()
	for k, _ := cursor.First(); k != nil && bytes.Compare(k, trimmed[:]) <= 0; k, _ = cursor.Next() {
		old = append(old, bytes.Clone(k))
	}
	for _, k := range old {
		if err := bucket.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// writeLowMarks writes low-water marks. The zero id deletes one.
func writeLowMarks(tx *bbolt.Tx, marks map[log.Asker]log.UUID) error {
	if len(marks) == 0 {
		return nil
	}
	bucket, err := tx.CreateBucketIfNotExists(BucketLowMarks)
	if err != nil {
		return err
	}
	for key, mark := range marks { // of different keys: in any order
		if mark.IsZero() {
			err = bucket.Delete(key[:])
		} else {
			err = bucket.Put(key[:], lowMarkRow(key, mark))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Head has the fields of the head of changes.db that concern the window in it.
type Head struct {
	Feature uint32 // of the cluster
	Time    log.Time
	Trimmed log.UUID
	Leaps   []Leap
}

// Load reads the window that is stored with a head.
func Load(tx *bbolt.Tx, age time.Duration, count int, h *Head) (*Window, error) {
	w := New(age, count, h.Trimmed)
	w.contained = h.Feature >= log.FeatureContained
	err := tx.Bucket(BucketChanges).ForEach(func(k, v []byte) error {
		id, value, err := ReadChangeRow(k, v)
		if err != nil {
			return err
		}
		if !w.contained && bytes.Compare(id[:], h.Trimmed[:]) <= 0 {
			return nil // forgotten; older programs left some of these rows
		}
		w.remember(id, value, 0)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if marks := tx.Bucket(BucketLowMarks); marks != nil {
		err = marks.ForEach(func(k, v []byte) error {
			key, mark, err := readLowMarkRow(k, v)
			if err == nil {
				w.setLowMark(key, mark)
			}
			return err
		})
	}
	w.setLeaps(h.Leaps)
	w.arrange(h.Time)
	w.TakeChanges()
	return w, err
}
