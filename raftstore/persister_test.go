package raftstore

import (
	"fmt"
	"testing"

	"go.etcd.io/bbolt"

	"rutter/log"
)

// TestMarkerDuringTransaction: a marker that was asked for while a transaction
// was being written took the head from before it, and so moved the file's head
// back behind its events.
func TestMarkerDuringTransaction(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t, "s1", t.TempDir())
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := s.persister
	h := head{applied: 3, term: 1, seq: 1}
	entry := slot{Entry: log.Entry{Seq: 1, Bytes: []byte("event")}}
	entry.Hash = h.hash.Next(1, entry.Bytes)
	h.hash = entry.Hash
	u := new(unit)
	u.slots = append(u.slots, entry)
	p.hand(u, h)

	other, err := s.files.current.db.Begin(true) // keeps the transaction waiting
	if err != nil {
		t.Fatal(err)
	}
	flushed, marked := make(chan error, 1), make(chan error, 1)
	go func() { flushed <- p.flush() }()
	waitUntil(t, p, func() bool { return p.next == nil })
	go func() { marked <- p.mark(marker{index: 5, term: 2}, p.currentEpoch()) }()
	waitUntil(t, p, func() bool { return p.next != nil })
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if err := p.flush(); err != nil {
		t.Fatal(err)
	}
	if err := <-marked; err != nil {
		t.Fatal(err)
	}
	err = s.files.view(func(tx *bbolt.Tx) error {
		got, m, err := readMeta(tx)
		if err == nil && (got.seq != 1 || got.hash != h.hash || got.applied != 5 || got.term != 2 || m.index != 5) {
			err = fmt.Errorf("head at %d, raft index %d, term %d, marker at %d, want 1, 5, 2, 5", got.seq, got.applied, got.term, m.index)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// waitUntil waits until cond, which is called under the persister's lock.
func waitUntil(t *testing.T, p *persister, cond func() bool) {
	t.Helper()
	for ctx := patience(t); ctx.Err() == nil; {
		p.mu.Lock()
		done := cond()
		p.mu.Unlock()
		if done {
			return
		}
	}
	t.Fatal("what was waited for did not come")
}

// TestOldEpoch: a marker from before a restore is not written (SAFETY S4).
func TestOldEpoch(t *testing.T) {
	t.Parallel()
	s, err := Open(testConfig(t, "s1", t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := s.persister
	epoch := p.currentEpoch()
	p.epoch++
	if err := p.mark(marker{index: 1, term: 1}, epoch); err != errEpoch {
		t.Errorf("got %v, want %v", err, errEpoch)
	}
	if p.next != nil {
		t.Error("the old marker is to be written")
	}
}
