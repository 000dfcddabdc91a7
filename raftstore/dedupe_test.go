package raftstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/window"
)

func TestRetryGetsFirstResult(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	made := tagChange(newID(), "made")
	refused := tagChange(newID(), "bad name!")
	first := must(t, nodes[0], made)
	why, err := nodes[1].Propose(patience(t), refused)
	if err != nil || why.Refusal == nil {
		t.Fatalf("got %+v, %v, want a refusal", why, err)
	}
	again := func(nodes []*node) {
		t.Helper()
		for _, n := range nodes {
			if got := must(t, n, made); got.First != first.First || !slices.Equal(got.IDs, first.IDs) {
				t.Errorf("retry at %s: %+v, want %+v", n.cfg.ID, got, first)
			}
			got, err := n.Propose(patience(t), refused)
			if err != nil || got.Refusal == nil || got.Refusal.Error() != why.Refusal.Error() {
				t.Errorf("retry at %s: %+v, %v, want %v", n.cfg.ID, got, err, why.Refusal)
			}
		}
	}
	again(nodes)
	// Another leader.
	old := leaderOf(t, nodes)
	term := old.raft.Load().CurrentTerm()
	if err := old.members.Transfer(patience(t), ""); err != nil {
		t.Fatal(err)
	}
	again(nodes)
	if got := leaderOf(t, nodes); got.raft.Load().CurrentTerm() <= term { // on a slow machine, old may be elected again
		t.Errorf("%s still leads after a transfer, in term %d", got.cfg.ID, term)
	}
	// After a restart of all.
	for _, n := range nodes {
		n.halt(t)
	}
	for i, n := range nodes {
		nodes[i] = n.again(t)
	}
	again(nodes)
	if head := nodes[0].Head().Seq; head != 1 {
		t.Errorf("head %d, want 1: a retry was applied", head)
	}
}

func TestChangeIDs(t *testing.T) {
	t.Parallel()
	for _, version := range []uint32{log.FeatureFirst, log.FeatureContained} {
		t.Run(fmt.Sprintf("version=%d", version), func(t *testing.T) {
			t.Parallel()
			testChangeIDs(t, version)
		})
	}
}

func testChangeIDs(t *testing.T, version uint32) {
	n := one(t, func(c *Config) { c.DedupeCount, c.Features = 3, version })
	at := func(d time.Duration) log.UUID { return window.NewID(time.Now().Add(d)) }
	var v4 log.UUID
	v4[0], v4[6] = 1, 0x40
	var kept []*log.Change
	for i := range 5 {
		kept = append(kept, tagChange(at(time.Duration(i-100)*time.Second), fmt.Sprintf("k%d", i)))
		must(t, n, kept[i])
	}
	tests := []struct {
		name   string
		change *log.Change
		want   string
	}{
		{"older than an hour", tagChange(at(-61*time.Minute), "a"), log.CodeTooOld},
		{"from the future", tagChange(at(2*time.Minute), "b"), log.CodeInvalidParameters},
		{"not version 7", tagChange(v4, "c"), log.CodeInvalidParameters},
		{"pushed out of the window", kept[1], log.CodeTooOld},
		{"new, but below what was pushed out", tagChange(at(-101*time.Second), "d"), log.CodeTooOld},
		{"lowest of the window", kept[2], ""},
		{"newest", kept[4], ""},
	}
	check := func(t *testing.T) {
		for _, test := range tests {
			result, err := n.Propose(patience(t), test.change)
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			var got string
			if result.Refusal != nil {
				got = result.Refusal.Code
			}
			if got != test.want {
				t.Errorf("%s: code %q, want %q", test.name, got, test.want)
			}
		}
	}
	check(t)
	n.halt(t)
	n = n.again(t)
	check(t)
	if head := n.Head().Seq; head != 5 {
		t.Errorf("head %d, want 5", head)
	}
}

// TestRetryAfterTheResultIsStored: the first result is answered from memory, from
// changes.db, and after a restart; a row that was altered stops the server.
func TestRetryAfterTheResultIsStored(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	c := tagChange(newID(), "once")
	first := must(t, n, c)
	for _, stored := range []bool{false, true} {
		if stored {
			if err := n.persister.Flush(); err != nil {
				t.Fatal(err)
			}
			must(t, n, tagChange(newID(), "settles"))
			n.applier.mu.Lock()
			w := n.applier.window
			if _, fresh := w.Result(w.Known(c.ID)); fresh || w.Len() != 2 {
				t.Errorf("of %d results the first is in memory: %t; want those that are not stored", w.Len(), fresh)
			}
			n.applier.mu.Unlock()
		}
		if again := must(t, n, c); !reflect.DeepEqual(again, first) {
			t.Errorf("stored %t: a retry gave %+v, want %+v", stored, again, first)
		}
	}
	n.halt(t)
	n = n.again(t)
	if again := must(t, n, c); !reflect.DeepEqual(again, first) {
		t.Errorf("after a restart a retry gave %+v, want %+v", again, first)
	}
	err := dbOf(n.files).Update(func(tx *bbolt.Tx) error {
		changes := tx.Bucket(window.BucketChanges)
		_, value, err := window.ReadChangeRow(c.ID[:], changes.Get(c.ID[:]))
		if err != nil {
			return err
		}
		return changes.Put(c.ID[:], window.ChangeRow(c.ID, append(value, 0)))
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = n.Propose(patience(t), c)
	n.stopsWith(t, log.ErrCorrupt)
}

// Every id that the window forgot is gone from the file, also those in a page that
// the same transaction writes to, as after an hour in which there were no changes;
// and one that is left all the same, as older programs did, is no part of the window.
func TestForgottenIDsLeaveTheFile(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	n.halt(t)
	db, err := bbolt.Open(filepath.Join(n.cfg.Dir, changesdb.Name), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	id := func(i byte) log.UUID { return log.UUID{15: i} }
	write := func(results []window.Result, trimmed log.UUID) {
		t.Helper()
		err := db.Update(func(tx *bbolt.Tx) error {
			return window.Write(tx, []*window.Batch{{Results: results, Trimmed: trimmed}}, new(log.Room), func() {})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var old []window.Result
	for i := byte(1); i <= 9; i++ {
		old = append(old, window.Result{ID: id(i), Value: []byte("old")})
	}
	write(old, log.UUID{})
	write([]window.Result{{ID: id(20), Value: []byte("new")}}, id(9))
	var left []log.UUID
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(window.BucketChanges).ForEach(func(k, _ []byte) error {
			if k[0] == 0 {
				left = append(left, log.UUID(k))
			}
			return nil
		})
	})
	if err != nil || len(left) != 1 || left[0] != id(20) {
		t.Errorf("the file has %v, error %v; want the new id alone", left, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// A file that has rows of forgotten ids, as programs of before left some, is read
// without them.
func TestForgottenIDsAreNotRead(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.DedupeCount, c.Features = 2, log.FeatureFirst })
	for i := range 4 {
		must(t, n, tagChange(newID(), fmt.Sprintf("t%d", i)))
	}
	n.halt(t)
	db, err := bbolt.Open(filepath.Join(n.cfg.Dir, changesdb.Name), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	low := log.UUID{15: 1}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(window.BucketChanges).Put(low[:], window.ChangeRow(low, []byte("old")))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	n = n.again(t)
	must(t, n, tagChange(newID(), "after"))
	n.halt(t)
	if got := n.applier.window.Len(); got > 2 {
		t.Errorf("the window has %d ids, want 2", got)
	}
}
