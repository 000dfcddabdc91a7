package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"rutter/log"
)

// writeWindow adds and deletes dedupe rows as the units did in their order, and
// moves the lines.
func writeWindow(tx *bbolt.Tx, units []*unit) error {
	bucket := tx.Bucket(bucketChanges)
	lines := make(map[log.Asker]log.UUID)
	for _, u := range units {
		for key, line := range u.window.lines { // of an author the last one counts
			lines[key] = line
		}
	}
	// Below log.FeatureContained all up to a line goes, which is not so after it.
	first, trimmed := 0, log.UUID{}
	for i, u := range units {
		if !u.trimmed.IsZero() {
			first, trimmed = i+1, u.trimmed
		}
	}
	return errors.Join(
		writeRows(bucket, changesOf(units[:first]), trimmed),
		writeRows(bucket, changesOf(units[first:]), log.UUID{}),
		writeLines(tx, lines),
	)
}

// changesOf returns what units say of rows: of each id what was said last.
func changesOf(units []*unit) []changeResult {
	var rows []changeResult
	forgot := false
	for _, u := range units {
		rows = append(rows, u.results...)
		for _, id := range u.window.forgotten {
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

// loadWindow reads what the window of a head remembers.
func loadWindow(tx *bbolt.Tx, cfg *Config, h *head) (*window, error) {
	w := newWindow(cfg.DedupeAge, cfg.DedupeCount, h.trimmed)
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

// knownResult answers a change whose id is remembered: with the first result, if it
// is that change.
func (s *Store) knownResult(c *log.Change, asker log.Asker, known *remembered) (log.Result, error) {
	row, err := s.firstRow(c.ID, known)
	if err != nil {
		return log.Result{}, err
	}
	if !row.is(c, asker) {
		s.counters.refused.Add(1)
		return log.Result{ChangeID: c.ID, Refusal: idReused(c.ID)}, nil
	}
	s.counters.duplicates.Add(1)
	result, err := log.DecodeResult(row.result)
	if err != nil {
		return log.Result{}, fmt.Errorf("first result of change %s: %w", c.ID, err)
	}
	return *result, nil
}

// firstRow is what is remembered of a change. It is the same on every server, or
// there is none: the window has its hash.
func (s *Store) firstRow(id log.UUID, known *remembered) (rememberedRow, error) {
	value, ok := s.applier.window.result(known)
	if !ok {
		err := s.files.view(func(tx *bbolt.Tx) (err error) {
			_, value, err = readChangeRow(id[:], tx.Bucket(bucketChanges).Get(id[:]))
			return err
		})
		if err != nil {
			return rememberedRow{}, fmt.Errorf("first result of change %s: %w", id, err)
		}
	}
	if hashOf(id[:], value) != known.hash {
		return rememberedRow{}, fmt.Errorf("first result of change %s is another one than it was: %w", id, log.ErrCorrupt)
	}
	return openRemembered(id, value), nil
}
