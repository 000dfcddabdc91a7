package raftstore

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
)

// windowBatch is what one raft entry changes in the window, in the order of the log.
type windowBatch struct {
	results []changeResult // of the changes that it remembers
	changes windowChanges
	// trimmed is window.trimmed below log.FeatureContained: all rows up to it go.
	trimmed log.UUID
}

// changeResult is the row of one change id.
type changeResult struct {
	id    log.UUID
	value []byte // see rememberedRow
}

// empty reports whether there is nothing to write.
func (b *windowBatch) empty() bool {
	return len(b.results)+len(b.changes.forgotten)+len(b.changes.lines) == 0 && b.trimmed.IsZero()
}

// writeWindow adds and deletes dedupe rows as the batches did in their order, and
// moves the lines.
func writeWindow(tx *bbolt.Tx, batches []*windowBatch) error {
	bucket := tx.Bucket(bucketChanges)
	lines := make(map[log.Asker]log.UUID)
	for _, u := range batches {
		for key, line := range u.changes.lines { // of an author the last one counts
			lines[key] = line
		}
	}
	// Below log.FeatureContained all up to a line goes, which is not so after it.
	first, trimmed := 0, log.UUID{}
	for i, u := range batches {
		if !u.trimmed.IsZero() {
			first, trimmed = i+1, u.trimmed
		}
	}
	return errors.Join(
		writeRows(bucket, changesOf(batches[:first]), trimmed),
		writeRows(bucket, changesOf(batches[first:]), log.UUID{}),
		writeLines(tx, lines),
	)
}

// changesOf returns what batches say of rows: of each id what was said last.
func changesOf(batches []*windowBatch) []changeResult {
	var rows []changeResult
	forgot := false
	for _, u := range batches {
		rows = append(rows, u.results...)
		for _, id := range u.changes.forgotten {
			rows, forgot = append(rows, changeResult{id: id}), true
		}
	}
	if forgot {
		return lastOfEach(rows)
	}
	return rows
}

// lastOfEach keeps what was said last of each id.
func lastOfEach(rows []changeResult) []changeResult {
	slices.Reverse(rows)
	said := make(map[log.UUID]bool, len(rows))
	return slices.DeleteFunc(rows, func(r changeResult) bool {
		before := said[r.id]
		said[r.id] = true
		return before
	})
}

// writeRows writes the rows that have a value, and deletes the others. All rows up
// to trimmed go too: programs of before left some.
func writeRows(bucket *bbolt.Bucket, rows []changeResult, trimmed log.UUID) error {
	bucket.FillPercent = 1 // ids hold their time: nearly all come at the end
	slices.SortFunc(rows, func(a, b changeResult) int { return bytes.Compare(a.id[:], b.id[:]) })
	for i := range rows {
		r := &rows[i]
		var err error
		switch {
		case r.value == nil:
			err = bucket.Delete(r.id[:])
		case bytes.Compare(r.id[:], trimmed[:]) > 0:
			err = bucket.Put(r.id[:], changeRow(r.id, r.value))
		}
		if err != nil {
			return err
		}
	}
	// Not Next after Cursor.Delete: in a page that this transaction has written to, as
	// the one of the newest ids, that passes over every second row.
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

// writeLines writes lines; the zero one is that there is none.
func writeLines(tx *bbolt.Tx, lines map[log.Asker]log.UUID) error {
	if len(lines) == 0 {
		return nil
	}
	bucket, err := tx.CreateBucketIfNotExists(bucketLines)
	if err != nil {
		return err
	}
	for key, line := range lines { // of different keys: in any order
		if line.IsZero() {
			err = bucket.Delete(key[:])
		} else {
			err = bucket.Put(key[:], lineRow(key, line))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// windowHead is what the head of changes.db says of the window in it.
type windowHead struct {
	feature uint32 // of the cluster
	time    log.Time
	trimmed log.UUID
	leaps   []leap
}

// loadWindow reads the window that is stored with a head.
func loadWindow(tx *bbolt.Tx, age time.Duration, count int, h *windowHead) (*window, error) {
	w := newWindow(age, count, h.trimmed)
	w.contained = h.feature >= log.FeatureContained
	err := tx.Bucket(bucketChanges).ForEach(func(k, v []byte) error {
		id, value, err := readChangeRow(k, v)
		if err != nil {
			return err
		}
		if !w.contained && bytes.Compare(id[:], h.trimmed[:]) <= 0 {
			return nil // forgotten; programs of before left some of these rows
		}
		w.remember(id, value, 0)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if lines := tx.Bucket(bucketLines); lines != nil {
		err = lines.ForEach(func(k, v []byte) error {
			key, line, err := readLineRow(k, v)
			if err == nil {
				w.drawLine(key, line)
			}
			return err
		})
	}
	w.setLeaps(h.leaps)
	w.arrange(h.time)
	w.takeChanges()
	return w, err
}
