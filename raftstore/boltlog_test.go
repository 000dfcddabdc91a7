package raftstore

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// logFile is one of the two that know the format of raft.db.
type logFile interface {
	raft.LogStore
	Set(key, value []byte) error
	Get(key []byte) ([]byte, error)
	Close() error
}

// openLog opens raft.db by this program's means, or as programs before it did.
func openLog(t interface{ Fatal(...any) }, path string, before bool) logFile {
	options := &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
	var f logFile
	var err error
	if before {
		f, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options})
	} else {
		f, err = openBoltLog(path, options)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestLogOfBefore has programs of before and this one take turns on one raft.db:
// what either wrote, cut and trimmed is what both read.
func TestLogOfBefore(t *testing.T) {
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		path := filepath.Join(dir, string(rune('a'+runs%26))+time.Now().Format("150405.000000000"))
		first, last := uint64(1), uint64(0)
		entries := map[uint64]*raft.Log{}
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			f := openLog(t, path, rapid.Bool().Draw(t, "before"))
			for range rapid.IntRange(1, 6).Draw(t, "steps") {
				switch step := rapid.IntRange(0, 4).Draw(t, "step"); {
				case step == 0 && last >= first: // old ones go
					upTo := rapid.Uint64Range(first, last).Draw(t, "trim")
					if err := f.DeleteRange(first, upTo); err != nil {
						t.Fatal(err)
					}
					for ; first <= upTo; first++ {
						delete(entries, first)
					}
				case step == 1 && last >= first: // another leader's come instead
					from := rapid.Uint64Range(first, last).Draw(t, "cut")
					if err := f.DeleteRange(from, last); err != nil {
						t.Fatal(err)
					}
					for ; last >= from; last-- {
						delete(entries, last)
					}
				default:
					var batch []*raft.Log
					for range rapid.IntRange(1, 3).Draw(t, "entries") {
						last++
						size := rapid.SampledFrom([]int{0, 1, 300, 5000, spacedFrom - 1, spacedFrom, 70_000}).Draw(t, "size")
						entries[last] = &raft.Log{Index: last, Term: last / 7, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(last)}, size), Extensions: []byte{1}, AppendedAt: time.Unix(int64(last), 5).UTC()}
						batch = append(batch, entries[last])
					}
					if err := f.StoreLogs(batch); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			for _, before := range []bool{true, false} {
				f := openLog(t, path, before)
				sameLog(t, f, entries, first, last)
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// sameLog compares a log with the entries that it should have.
func sameLog(t *rapid.T, f logFile, entries map[uint64]*raft.Log, first, last uint64) {
	if len(entries) == 0 {
		first, last = 0, 0
	}
	gotFirst, err := f.FirstIndex()
	if err != nil || gotFirst != first {
		t.Fatalf("%T: first entry %d, %v, want %d", f, gotFirst, err, first)
	}
	gotLast, err := f.LastIndex()
	if err != nil || gotLast != last {
		t.Fatalf("%T: last entry %d, %v, want %d", f, gotLast, err, last)
	}
	for index, want := range entries {
		var got raft.Log
		if err := f.GetLog(index, &got); err != nil {
			t.Fatalf("%T: entry %d: %v", f, index, err)
		}
		if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) || !bytes.Equal(got.Extensions, want.Extensions) || !got.AppendedAt.Equal(want.AppendedAt) {
			t.Fatalf("%T: entry %d is %+v, want %+v", f, index, got, want)
		}
	}
	if err := f.GetLog(last+1, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatalf("%T: entry after the last: %v, want %v", f, err, raft.ErrLogNotFound)
	}
}

// TestEntriesAreWrittenOnce: an entry that takes many pages is not written again
// with those that follow.
func TestEntriesAreWrittenOnce(t *testing.T) {
	f := openLog(t, filepath.Join(t.TempDir(), raftName), false).(*boltLog)
	defer f.Close()
	const entries, size = 40, 200 << 10
	for i := range uint64(entries) {
		if err := f.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	stats := f.db.Stats().TxStats
	if got, most := stats.GetPageAlloc(), int64(entries*size*5/4); got > most {
		t.Errorf("%d entries of %d bytes: %d bytes of pages were written, want at most %d", entries, size, got, most)
	}
}

// TestLogKeepsValues: the stable store is that of raft-boltdb.
func TestLogKeepsValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), raftName)
	for i, before := range []bool{true, false, true} {
		f := openLog(t, path, before)
		if _, err := f.Get([]byte{byte(i)}); !errors.Is(err, raftboltdb.ErrKeyNotFound) {
			t.Errorf("%T: a value that nobody set: %v, want %v", f, err, raftboltdb.ErrKeyNotFound)
		}
		if err := f.Set([]byte{byte(i)}, []byte{7, byte(i)}); err != nil {
			t.Fatal(err)
		}
		for j := range i + 1 {
			if got, err := f.Get([]byte{byte(j)}); err != nil || !bytes.Equal(got, []byte{7, byte(j)}) {
				t.Errorf("%T: value %d: %v, %v", f, j, got, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
