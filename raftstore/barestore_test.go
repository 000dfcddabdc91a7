package raftstore

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
)

// bare is the part of a store that applies: a test hands raft's entries to it
// itself, in the order and as often as it likes. It has changes.db, which is not
// synced, and neither raft nor a port.
type bare struct {
	*Store
	t testing.TB
}

// bareStore opens dir's changes.db, made if need be.
func bareStore(t testing.TB, dir string) *bare {
	return bareStoreAt(t, filepath.Join(dir, changesdb.Name))
}

func bareStoreAt(t testing.TB, path string) *bare {
	t.Helper()
	cfg, err := Config{
		ID: "bare", Dir: filepath.Dir(path), MapBytes: 1 << 20, RingEntries: 64, RingBytes: 1 << 20,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := &bare{newStore(cfg), t}
	db, err := changesdb.Open(path, cfg.MapBytes)
	if err != nil {
		t.Fatal(err)
	}
	db.NoSync = true
	if err := s.files.Swap(db); err != nil {
		t.Fatal(err)
	}
	s.ring = changesdb.Ring{MaxEntries: cfg.RingEntries, MaxBytes: cfg.RingBytes}
	s.applier.enc = log.NewEncoder()
	s.restart()
	return s
}

// restart puts what changes.db has in the place of what is in memory, as a process
// does that was killed: what was not flushed is gone.
func (s *bare) restart() {
	s.t.Helper()
	c, err := changesdb.Load(dbOf(s.files), s.cfg.DedupeAge, s.cfg.DedupeCount)
	if err != nil {
		s.t.Fatalf("restart: %v", err)
	}
	s.state, s.head = c.State, c.Head
	s.ring.Reset(c.Head.Seq)
	s.applier.window, s.applier.head = c.Window, c.Head
	s.comparison.points.reset(&c.Head)
	s.persister = changesdb.NewPersister(s.persistOptions(), s.files, &c)
}

// flush writes what was applied to changes.db.
func (s *bare) flush() {
	s.t.Helper()
	if err := s.persister.Flush(); err != nil {
		s.t.Fatalf("flush: %v", err)
	}
}

func (s *bare) close() { _ = s.files.Close() }

// entry applies one raft entry, as raft would, and returns what its proposer gets.
func (s *bare) entry(index uint64, data []byte) any {
	return fsm{s.Store}.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data})
}

// batch applies encoded changes as one entry after the last, and returns their results.
func (s *bare) batch(changes ...[]byte) []log.Result {
	s.t.Helper()
	return s.results(s.applier.head.Applied+1, batchOf(changes...))
}

func (s *bare) results(index uint64, data []byte) []log.Result {
	s.t.Helper()
	switch response := s.entry(index, data).(type) {
	case []log.Result:
		return response
	default:
		s.t.Fatalf("raft entry %d stopped the server: %v", index, response)
		return nil
	}
}

func batchOf(changes ...[]byte) []byte {
	var batch []byte
	for _, c := range changes {
		batch = log.AppendBatch(batch, c)
	}
	return append([]byte{command.Batch}, batch...)
}

// found gives the store a cluster's identity and feature version.
func (s *bare) found(feature uint32) {
	s.t.Helper()
	cluster := log.UUID{1, 6: 0x70, 8: 0x80}
	data := binary.BigEndian.AppendUint32(append([]byte{command.Genesis}, cluster[:]...), feature)
	if err, ok := s.entry(s.applier.head.Applied+1, data).(error); ok {
		s.t.Fatal(err)
	}
}

// copyOf opens a copy of a changes.db, which is gone with it.
func copyOf(t testing.TB, file []byte) *bare {
	t.Helper()
	f, err := os.CreateTemp(memory(), "changes-*.db")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name()) // it is open by then
	_, err = f.Write(file)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return bareStoreAt(t, f.Name())
}

// memory is a folder that is in memory, "" (the one for temporary files) if there is none.
func memory() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		return ""
	}
	return shm
}

// encodedChange returns the bytes of a change.
func encodedChange(t testing.TB, c *log.Change) []byte {
	t.Helper()
	b, err := log.NewEncoder().Change(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// dbOf returns the file that is open now, which is not replaced meanwhile.
func dbOf(f *changesdb.Files) *bbolt.DB {
	h := f.Acquire()
	defer func() { _ = f.Release(h) }()
	return h.DB
}
