package raftstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/window"
	"rutter/raftstore/skipped"
)

// skipNext takes a bare store past its next entry, with the changes of it.
func (s *bare) skipNext(changes ...[]byte) []log.Result {
	s.t.Helper()
	index := s.applier.head.Applied + 1
	data := batchOf(changes...)
	entry := raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}
	s.applier.head.Skips = s.applier.head.Skips.With(skipped.Skip{
		Cluster: s.applier.head.Cluster, Index: index, Entry: skipped.EntryHash(&entry), ID: fixedID(1 << 40), Actor: "operator:a", Reason: "test",
	})
	return s.results(index, data)
}

// The ids of a skipped entry are forgotten at the same entry by a server that ran on
// and by one that was started again: whatever their own times are, earlier and later
// than the cluster's. Until then, and after it, none of them is applied.
func TestSkippedIDsAreForgottenByAll(t *testing.T) {
	t.Parallel()
	on, again := bareStore(t, t.TempDir()), bareStore(t, t.TempDir())
	defer on.close()
	defer again.close()
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	n := 0
	change := func(own time.Duration) []byte {
		n++
		c := tagChange(window.NewID(now.Add(own)), fmt.Sprintf("t%d", n))
		c.Time = log.TimeOf(now)
		return encodedChange(t, c)
	}
	both := func(fn func(s *bare)) {
		t.Helper()
		fn(on)
		fn(again)
		if on.applier.head.Digest() != again.applier.head.Digest() {
			t.Fatalf("at %v the servers differ: %d and %d ids, windows %x and %x", now, on.applier.window.Len(), again.applier.window.Len(), on.applier.head.WindowSum, again.applier.head.WindowSum)
		}
	}
	one := func(raw []byte, code string) {
		t.Helper()
		both(func(s *bare) {
			r := s.batch(raw)[0]
			if r.Refusal == nil && code != "" || r.Refusal != nil && r.Refusal.Code != code {
				t.Errorf("at %v: %v, want %q", now, r.Refusal, code)
			}
		})
	}
	both(func(s *bare) { s.found(log.FeatureContained) })
	one(change(0), "")
	skipped := [][]byte{change(-50 * time.Minute), change(0), change(50 * time.Second), change(25 * time.Minute)}
	both(func(s *bare) { s.skipNext(skipped...) })
	again.flush()
	again.restart()
	retries := func(code string) {
		t.Helper()
		for _, raw := range skipped {
			c, err := log.DecodeChange(raw)
			if err != nil {
				t.Fatal(err)
			}
			c.Time = log.TimeOf(now)
			one(encodedChange(t, c), code)
		}
	}
	for i := range 45 {
		now = now.Add(2 * time.Minute)
		one(change(0), "")
		switch i {
		case 10:
			retries(log.CodeSkipped)
		case 44:
			retries(log.CodeTooOld)
		}
	}
}

// A log whose time an operator set a year ahead by mistake, and in which changes were
// made for hours, can be set back: changes are taken then, and none a second time.
func TestTimeSetForwardAndBack(t *testing.T) {
	t.Parallel()
	// With pauses longer than ids are remembered each is a leap, and not all are noted.
	for _, pause := range []time.Duration{10 * time.Minute, 2 * time.Hour} {
		t.Run(pause.String(), func(t *testing.T) { setForwardAndBack(t, pause) })
	}
}

func setForwardAndBack(t *testing.T, pause time.Duration) {
	on, again := bareStore(t, t.TempDir()), bareStore(t, t.TempDir())
	defer on.close()
	defer again.close()
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	n := 0
	apply := func(c *log.Change) (code string) {
		t.Helper()
		c.Time = log.TimeOf(now)
		raw := encodedChange(t, c)
		for _, s := range []*bare{on, again} {
			if r := s.batch(raw)[0]; r.Refusal != nil {
				code = r.Refusal.Code
			}
		}
		again.flush()
		again.restart()
		if on.applier.head.Digest() != again.applier.head.Digest() {
			t.Fatalf("at %v the servers differ", now)
		}
		return code
	}
	for _, s := range []*bare{on, again} {
		s.found(log.FeatureContained)
	}
	change := func() *log.Change {
		n++
		return tagChange(window.NewID(now), fmt.Sprintf("t%d", n))
	}
	taken := func(c *log.Change) {
		t.Helper()
		if code := apply(c); code != "" {
			t.Fatalf("at %v: refused as %s", now, code)
		}
	}
	before := change()
	taken(before)
	ahead := now.Add(year)
	now = now.Add(time.Minute)
	taken(setTimeChange(window.NewID(ahead), true, textOf(ahead)+projections.ForcedTime))
	right := now
	for now = ahead; now.Sub(ahead) < 20*pause; now = now.Add(pause) {
		taken(change())
	}
	now = right.Add(20 * pause)
	mend := setTimeChange(window.NewID(now), false, textOf(now)+projections.ForcedTime)
	taken(mend)
	now = now.Add(window.MaxAhead + time.Second)
	last := change()
	taken(last)
	seq := on.applier.head.Seq
	for _, c := range []*log.Change{before, mend, last} {
		_ = apply(c)
	}
	if on.applier.head.Seq != seq {
		t.Errorf("a retry was applied again: seq %d, was %d", on.applier.head.Seq, seq)
	}
}

// A change that asks to set the log's time is judged by the time that it asks for. If it
// is refused for any sender, its id moves nothing of what is taken of others.
func TestRefusedMendIsForgotten(t *testing.T) {
	t.Parallel()
	for _, author := range []log.Author{{}, {Role: log.RoleCN, CN: fixedID(7)}, {Role: log.RoleForeign}, {Role: log.RoleReader}} {
		s := bareStore(t, t.TempDir())
		defer s.close()
		now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
		s.found(log.FeatureContained)
		apply := func(c *log.Change) *log.Refusal {
			t.Helper()
			c.Time = log.TimeOf(now)
			return s.batch(encodedChange(t, c))[0].Refusal
		}
		if r := apply(tagChange(window.NewID(now), "before")); r != nil {
			t.Fatal(r)
		}
		far := time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC)
		lie := setTimeChange(window.NewID(far), false, textOf(far)+projections.ForcedTime) // there is nothing to update
		lie.By = author
		for range 2 {
			if r := apply(lie); r == nil {
				t.Fatalf("%v: the time was set", author)
			}
		}
		for i := range 5 {
			now = now.Add(30 * time.Minute)
			if r := apply(tagChange(window.NewID(now), fmt.Sprintf("t%d", i))); r != nil {
				t.Fatalf("%v: %v later: %v", author, 30*time.Minute*time.Duration(i+1), r)
			}
		}
	}
}

// The check of a folder finds that an author's line, or what is remembered of leaps, is
// not what was written.
func TestVerifyFindsLines(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(tx *bbolt.Tx) error{
		"":      func(*bbolt.Tx) error { return nil },
		"line":  func(tx *bbolt.Tx) error { return tx.DeleteBucket(window.BucketLowMarks) },
		"leaps": func(tx *bbolt.Tx) error { return tx.Bucket(changesdb.BucketMeta).Delete(window.KeyLeaps) },
		"id": func(tx *bbolt.Tx) error {
			key, _ := tx.Bucket(window.BucketChanges).Cursor().First()
			return tx.Bucket(window.BucketChanges).Delete(bytes.Clone(key))
		},
	} {
		dir := t.TempDir()
		s := bareStore(t, dir)
		s.cfg.DedupeCount = 5
		s.restart()
		s.found(log.FeatureContained)
		now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
		for i := range 10 {
			c := tagChange(window.NewID(now.Add(time.Duration(i)*time.Second)), fmt.Sprintf("t%d", i))
			c.Time = log.TimeOf(now)
			s.batch(encodedChange(t, c))
		}
		if s.applier.window.LowMarks() != 1 {
			t.Fatal("no line was drawn")
		}
		s.flush()
		if err := dbOf(s.files).Update(damage); err != nil {
			t.Fatal(err)
		}
		s.close()
		f, err := history.OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		v, err := f.Verify(context.Background(), nil)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if found := len(v.Problems) > 0; found != (what != "") {
			t.Errorf("damaged %q: found %v", what, v.Problems)
		}
	}
}

// An id of a time that no log.Time can hold is one from ahead, and is not taken for one
// of now, whatever its milliseconds come to in nanoseconds; one that was taken so below
// log.FeatureContained is never forgotten by age, which would refuse all clients.
func TestIDsBeyondTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	// In nanoseconds these are now, if what does not fit is cut off.
	const around = (1<<63 + 250_000) / 500_000 // 2^64 ns, in ms
	beyond := func(rounds uint64) (id log.UUID) {
		id = window.NewID(now)
		ms := uint64(now.UnixMilli()) + rounds*around
		for i := range 6 {
			id[i] = byte(ms >> (40 - 8*i))
		}
		return id
	}
	for _, first := range []uint32{log.FeatureFirst, log.FeatureContained} {
		s := bareStore(t, t.TempDir())
		defer s.close()
		s.found(first)
		at := now
		apply := func(c *log.Change) *log.Refusal {
			t.Helper()
			c.Time = log.TimeOf(at)
			return s.batch(encodedChange(t, c))[0].Refusal
		}
		for rounds := uint64(1); rounds < 15; rounds++ {
			r := apply(tagChange(beyond(rounds), fmt.Sprintf("far%d", rounds)))
			if first == log.FeatureFirst && r != nil { // as it was
				t.Fatalf("version 1: %v", r)
			}
			if first == log.FeatureContained && (r == nil || r.Code != log.CodeInvalidParameters) {
				t.Errorf("an id of a time beyond any: %v, want it refused as ahead", r)
			}
			if first == log.FeatureContained {
				if r := apply(setTimeChange(beyond(rounds), rounds == 1, textOf(now))); r == nil {
					t.Errorf("the time is set by such an id")
				}
			}
		}
		if first == log.FeatureFirst {
			data := binary.BigEndian.AppendUint32([]byte{command.Feature}, log.FeatureContained)
			if err, failed := s.entry(s.applier.head.Applied+1, data).(error); failed {
				t.Fatal(err)
			}
		}
		for i := range 5 {
			at = at.Add(30 * time.Minute)
			if r := apply(tagChange(window.NewID(at), fmt.Sprintf("t%d", i))); r != nil {
				t.Fatalf("began with version %d, %v later: %v", first, at.Sub(now), r)
			}
		}
	}
}
