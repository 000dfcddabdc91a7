package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
)

// trimmed writes until raft's log no longer reaches back to its start, so that
// a new server can only be brought up by a snapshot.
func trimmed(t *testing.T, n *node) {
	t.Helper()
	for i := 0; ; i++ {
		must(t, n, tagChange(newID(), fmt.Sprintf("t%d", i)))
		first, err := n.raftLog.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		if first > 1 && i > 200 {
			return
		}
	}
}

func TestJoinBySnapshot(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	retried := tagChange(newID(), "retried")
	first := must(t, n, retried)
	trimmed(t, n)

	cfg := testConfig(t, "s2", filepath.Join(t.TempDir(), "s2"))
	cfg.Join = []string{n.Address()}
	second := launch(t, cfg)
	waitFor(t, second, n.Head().Seq)
	nodes := []*node{n, second}
	checkSame(t, nodes)
	// Two, if the leader trimmed its log once more before the first was told.
	if got := second.Status().Restores; got < 1 {
		t.Errorf("%d restores: the log reached back", got)
	}
	if got := must(t, second, retried); got.First != first.First {
		t.Errorf("retry after a snapshot got seq %d, want the first result's %d", got.First, first.First)
	}
	// What the image had and what came after survive a restart.
	second.halt(t)
	second = second.again(t)
	must(t, n, tagChange(newID(), "afterwards"))
	waitFor(t, second, n.Head().Seq)
	checkFold(t, second.Store)
	left, err := filepath.Glob(filepath.Join(cfg.Dir, "*"+boltfile.PendingSuffix))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// The meta of an image is that of the data in it, not that of the marker, which may be far
// behind (SAFETY S1).
func TestImageIsOfItsData(t *testing.T) {
	t.Parallel()
	n := one(t, noMarkers)
	for i := range 5 {
		must(t, n, tagChange(newID(), fmt.Sprintf("t%d", i)))
	}
	if err := n.persister.Flush(); err != nil {
		t.Fatal(err)
	}
	meta, stream, err := n.images.Open("any")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), changesdb.Name)
	file, err := os.Create(path)
	if err == nil {
		err = changesdb.ReadImage(stream, file, nil)
	}
	if err := errors.Join(err, stream.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := changesdb.Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		h, m, err := changesdb.ReadMeta(tx)
		if meta.Index != h.Applied || meta.Term != h.Term || meta.ConfigurationIndex != h.ConfIndex || len(meta.Configuration.Servers) != 1 {
			t.Errorf("the image is announced at raft index %d of term %d, configuration at %d; its data is at %d, %d, %d, its marker at %d",
				meta.Index, meta.Term, meta.ConfigurationIndex, h.Applied, h.Term, h.ConfIndex, m.Index)
		}
		if h.Seq != 5 {
			t.Errorf("the image has entries up to %d, want 5", h.Seq)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestImage sends an image through damage of every sort: only the whole one is taken, and
// what is refused leaves the server as it was.
func TestImage(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	trimmed(t, n)
	metas, err := n.images.List()
	if err != nil || len(metas) != 1 {
		t.Fatalf("list: %v, %v, want one", metas, err)
	}
	meta, stream, err := n.images.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(stream)
	if err != nil || int64(len(image)) != meta.Size {
		t.Fatalf("image of %d bytes, %v, want %d", len(image), err, meta.Size)
	}
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	if meta.Index < metas[0].Index {
		t.Errorf("image at raft index %d, before its marker at %d", meta.Index, metas[0].Index)
	}

	flip := func(at int) []byte {
		b := bytes.Clone(image)
		b[at] ^= 1
		return b
	}
	tests := []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"magic", flip(0), log.ErrFormat},
		{"length", flip(9), log.ErrCorrupt},
		{"middle", flip(len(image) / 2), log.ErrCorrupt},
		{"sum", flip(len(image) - 1), log.ErrCorrupt},
		{"short", image[:len(image)-1], log.ErrCorrupt},
		{"half", image[:len(image)/2], log.ErrCorrupt},
		{"long", append(bytes.Clone(image), 0), log.ErrCorrupt},
		{"whole", image, nil},
	}
	n.halt(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := testConfig(t, "s9", filepath.Join(t.TempDir(), "s9"))
			s, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := s.take(meta, test.bytes); !errors.Is(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if test.want == nil {
				if s.Head().Seq == 0 || s.appliedIndex() != meta.Index {
					t.Errorf("head %s at raft index %d, want %d", s.Head(), s.appliedIndex(), meta.Index)
				}
				checkFold(t, s)
				older := *meta
				older.Index--
				if err := s.take(&older, test.bytes); err == nil {
					t.Error("an image behind the own state was taken")
				}
			} else if s.Head() != (log.Cursor{}) {
				t.Errorf("head %s after a refused image", s.Head())
			}
			files, err := os.ReadDir(cfg.Dir)
			if err != nil || len(files) != 3 {
				t.Errorf("files %v, %v, want changes.db, raft.db and raft.wal", files, err)
			}
		})
	}
}

// take does with an image what raft does with one that it receives.
func (s *Store) take(meta *raft.SnapshotMeta, image []byte) error {
	k, err := s.images.Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(k, bytes.NewReader(image)); err != nil {
		return errors.Join(err, k.Cancel())
	}
	if err := k.Close(); err != nil {
		return err
	}
	_, from, err := s.images.Open(k.ID())
	if err != nil {
		return err
	}
	return errors.Join(fsm{s}.Restore(from), from.Close())
}
