package changesdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/window"
)

// newFile returns the writer of a new changes.db.
func newFile(t *testing.T) *Persister {
	t.Helper()
	db, err := Open(filepath.Join(t.TempDir(), Name), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load(db, window.DefaultAge, window.DefaultCount)
	if err != nil {
		t.Fatal(err)
	}
	f := new(Files)
	if err := f.Swap(db); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return NewPersister(Options{
		Logger: slog.New(slog.DiscardHandler), Delay: time.Second, Events: 100, MaxLagEvents: 1000, MaxLagBytes: 1 << 20, SweepEvents: 100, SweepDelay: time.Minute,
	}, f, &c)
}

// TestMarkerDuringTransaction: a marker that was asked for while a transaction
// was being written took the head from before it, and so moved the file's head
// back behind its events.
func TestMarkerDuringTransaction(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	h := Head{Applied: 3, Term: 1, Seq: 1}
	entry := Slot{Entry: log.Entry{Seq: 1, Bytes: []byte("event")}}
	entry.Hash = h.Hash.Next(1, entry.Bytes)
	h.Hash = entry.Hash
	u := new(Unit)
	u.Slots = append(u.Slots, entry)
	p.Hand(u, h)

	other, err := p.files.current.DB.Begin(true) // keeps the transaction waiting
	if err != nil {
		t.Fatal(err)
	}
	flushed, marked := make(chan error, 1), make(chan error, 1)
	go func() { flushed <- p.Flush() }()
	waitUntil(t, p, func() bool { return p.next == nil })
	go func() { marked <- p.Mark(Marker{Index: 5, Term: 2}, p.CurrentEpoch()) }()
	waitUntil(t, p, func() bool { return p.next != nil })
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := <-marked; err != nil {
		t.Fatal(err)
	}
	err = p.files.View(func(tx *bbolt.Tx) error {
		got, m, err := ReadMeta(tx)
		if err == nil && (got.Seq != 1 || got.Hash != h.Hash || got.Applied != 5 || got.Term != 2 || m.Index != 5) {
			err = fmt.Errorf("head at %d, raft index %d, term %d, marker at %d, want 1, 5, 2, 5", got.Seq, got.Applied, got.Term, m.Index)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMarkerAfterEachTransaction: a marker at a barrier is never beyond the head in the
// file, whatever is written after it: a process that is killed at any time reads its file
// again.
func TestMarkerAfterEachTransaction(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	h := Head{Applied: 3, Term: 1}
	check := func(what string, applied, marker uint64) {
		t.Helper()
		path := filepath.Join(t.TempDir(), Name)
		if err := p.files.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) }); err != nil {
			t.Fatal(err)
		}
		db, err := Open(path, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *bbolt.Tx) error {
			got, m, err := ReadMeta(tx)
			if err == nil && (got.Applied != applied || m.Index != marker) {
				err = fmt.Errorf("applied %d, marker at %d, want %d and %d", got.Applied, m.Index, applied, marker)
			}
			return err
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	add := func() {
		h.Seq++
		entry := Slot{Entry: log.Entry{Seq: h.Seq, Bytes: []byte("event")}}
		entry.Hash = h.Hash.Next(h.Seq, entry.Bytes)
		h.Hash = entry.Hash
		p.Hand(&Unit{Slots: []Slot{entry}}, h)
	}
	flush := func() {
		t.Helper()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mark := func(at uint64) {
		t.Helper()
		marked := make(chan error, 1)
		go func() { marked <- p.Mark(Marker{Index: at, Term: 1}, p.CurrentEpoch()) }()
		waitUntil(t, p, func() bool { return p.next != nil && p.next.marker != nil })
		flush()
		if err := <-marked; err != nil {
			t.Fatal(err)
		}
	}
	add()
	flush()
	check("an entry", 3, 0)
	mark(5)
	check("a marker alone", 5, 5)
	p.Hand(new(Unit), h) // of an index that the marker is beyond, as after a rebuild
	flush()
	check("a head that is behind", 5, 5)
	h.Applied = 6
	add()
	mark(8)
	check("a marker with an entry", 8, 8)
	if err := p.Upkeep(t.Context(), p.CurrentEpoch(), func(*bbolt.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	check("upkeep", 8, 8)
	p.flushing.Lock()
	err := p.moveRows(p.CurrentEpoch(), h.Seq, nil)
	p.flushing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	check("the end of a sweep", 8, 8)
}

// waitUntil waits until cond, which is called under the persister's lock.
func waitUntil(t *testing.T, p *Persister, cond func() bool) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; {
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
	p := newFile(t)
	epoch := p.CurrentEpoch()
	p.epoch++
	if err := p.Mark(Marker{Index: 1, Term: 1}, epoch); err != ErrEpoch {
		t.Errorf("got %v, want %v", err, ErrEpoch)
	}
	if p.next != nil {
		t.Error("the old marker is to be written")
	}
}

// TestMarkWaits: raft trims its log when Mark returns, so it returns when the marker and
// everything that was handed over before are on disk (SAFETY S3).
func TestMarkWaits(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	h := Head{Applied: 3, Term: 1, Seq: 1}
	entry := Slot{Entry: log.Entry{Seq: 1, Bytes: []byte("event")}}
	entry.Hash = h.Hash.Next(1, entry.Bytes)
	h.Hash = entry.Hash
	p.Hand(&Unit{Slots: []Slot{entry}}, h)
	marked := make(chan error, 1)
	go func() { marked <- p.Mark(Marker{Index: 3, Term: 1}, p.CurrentEpoch()) }()
	waitUntil(t, p, func() bool { return p.next != nil && p.next.marker != nil })
	select {
	case err := <-marked:
		t.Errorf("the marker was said to be written (%v) before any transaction", err)
		marked <- err
	case <-time.After(20 * time.Millisecond): // it must not come: any time will do
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := <-marked; err != nil || p.Durable() != 1 {
		t.Errorf("marked: %v, with entries up to %d on disk, want 1", err, p.Durable())
	}
}

// TestReplaceDropsWork: what was handed over and not written before a restore is not
// written into the restored file, and a marker that waits is refused (SAFETY S4).
func TestReplaceDropsWork(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	entry := Slot{Entry: log.Entry{Seq: 1, Bytes: []byte("event of before")}}
	entry.Hash = log.Hash{}.Next(1, entry.Bytes)
	p.Hand(&Unit{Slots: []Slot{entry}}, Head{Applied: 3, Term: 1, Seq: 1, Hash: entry.Hash})
	marked := make(chan error, 1)
	go func() { marked <- p.Mark(Marker{Index: 3, Term: 1}, p.CurrentEpoch()) }()
	waitUntil(t, p, func() bool { return p.next != nil && p.next.marker != nil })
	db, err := Open(filepath.Join(t.TempDir(), Name), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	restored := Content{Head: Head{Applied: 9, Term: 2}, Marker: Marker{Index: 9, Term: 2}}
	if err := p.Replace(db, &restored); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := <-marked; !errors.Is(err, ErrEpoch) {
		t.Errorf("a marker from before a restore: %v, want %v", err, ErrEpoch)
	}
	err = p.files.View(func(tx *bbolt.Tx) error {
		if key, _ := tx.Bucket(BucketEvents).Cursor().First(); key != nil {
			t.Errorf("the restored file has the event %x of before", key)
		}
		got, m, err := ReadMeta(tx)
		if got.Seq != 0 || m.Index != 0 {
			t.Errorf("the restored file's head is at %d, its marker at %d; want what the restore wrote, nothing", got.Seq, m.Index)
		}
		return err
	})
	if at := p.Progress(); err != nil || at.LagEvents != 0 || at.Index != 9 {
		t.Errorf("%v; %d events wait, raft index %d; want none, 9", err, at.LagEvents, at.Index)
	}
}

// TestSweptRow: the row counts for the head that it names, and no other.
func TestSweptRow(t *testing.T) {
	t.Parallel()
	h := Head{Seq: 9, Rows: 5}
	row := h.encodeSwept(h.encode())
	if got, err := h.decodeSwept(row, h.encode()); got != 5 || err != nil {
		t.Errorf("got %d, %v, want 5", got, err)
	}
	later := Head{Seq: 12}
	if got, err := later.decodeSwept(row, later.encode()); got != 12 || err != nil {
		t.Errorf("behind another head: got %d, %v, want 12", got, err)
	}
	if got, err := later.decodeSwept(nil, later.encode()); got != 12 || err != nil {
		t.Errorf("no row: got %d, %v, want 12", got, err)
	}
	ahead := Head{Seq: 9, Rows: 10}
	if _, err := ahead.decodeSwept(ahead.encodeSwept(ahead.encode()), ahead.encode()); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("rows beyond the head: %v, want ErrCorrupt", err)
	}
	for i := range row {
		bad := append([]byte(nil), row...)
		bad[i] ^= 4
		if _, err := h.decodeSwept(bad, h.encode()); !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("byte %d changed: %v, want ErrCorrupt", i, err)
		}
	}
	if _, err := h.decodeSwept(row[:8], h.encode()); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("half a row: %v, want ErrCorrupt", err)
	}
}

func FuzzRows(f *testing.F) {
	h := Head{Applied: 9, Term: 2, ConfIndex: 1, Seq: 5, Time: 7, Feature: 1}
	h.Conf.Servers = []raft.Server{{ID: "s1", Address: "10.0.0.1:7421"}}
	m := Marker{9, 2, 1, h.Conf}
	f.Add(h.encode())
	f.Add(m.Encode())
	f.Add(EventRow(SeqKey(5), &Slot{log.Entry{Seq: 5, Bytes: []byte("event")}, 0}))
	f.Add(window.ChangeRow(log.UUID{}, []byte("result")))
	f.Fuzz(func(t *testing.T, row []byte) {
		if h, err := DecodeHead(row); err == nil && row != nil && !bytes.Equal(h.encode(), row) {
			t.Errorf("head %+v is not what was read", h)
		}
		if m, err := decodeMarker(row); err == nil && row != nil && !bytes.Equal(m.Encode(), row) {
			t.Errorf("marker %+v is not what was read", m)
		}
		if s, err := ReadEvent(5, SeqKey(5), row); err == nil && !bytes.Equal(EventRow(SeqKey(5), &s), row) {
			t.Errorf("event row %+v is not what was read", s)
		}
		if id, result, err := window.ReadChangeRow(make([]byte, 16), row); err == nil && !bytes.Equal(window.ChangeRow(id, result), row) {
			t.Errorf("change row %x is not what was read", result)
		}
		_, _, _, _ = ReadObject(log.KindNIC, "x", row)
		_, _ = decodeConf(row)
	})
}

// TestWhichTransactionsRest: a usual transaction makes way for changes; one that a caller
// waits for, one with many events, and the last one do not.
func TestWhichTransactionsRest(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	ended, end := context.WithCancel(t.Context())
	end()
	for _, test := range []struct {
		name  string
		ctx   context.Context
		next  *work
		rests bool
	}{
		{"usual", t.Context(), &work{events: p.options.Events}, true},
		{"none", t.Context(), nil, true},
		{"a marker waits", t.Context(), &work{done: make([]chan<- error, 1)}, false},
		{"many events", t.Context(), &work{events: restEvents*p.options.Events + 1}, false},
		{"the end", ended, &work{events: 1}, false},
	} {
		p.next = test.next
		if got := p.mayRest(test.ctx) != nil; got != test.rests {
			t.Errorf("%s: rests %v, want %v", test.name, got, test.rests)
		}
	}
	p.next = nil
}
