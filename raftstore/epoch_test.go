package raftstore

import (
	"context"
	"errors"
	"io"
	"testing"

	"rutter/raftstore/internal/changesdb"

	"go.etcd.io/bbolt"
)

// A restore raises the epoch: a snapshot that raft began before it, and upkeep of
// the file that it replaced, write nothing into the new one (SAFETY S4). So does
// the begin of a rebuild.
func TestRestoreRaisesEpoch(t *testing.T) {
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
	if err := errors.Join(err, stream.Close()); err != nil {
		t.Fatal(err)
	}

	s, err := Open(testConfig(t, "s9", t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for what, replace := range map[string]func() error{
		"restore": func() error { return s.take(meta, image) },
		"rebuild": func() error {
			b, _, err := s.applier.beginRebuild()
			s.applier.endRebuild(b)
			return err
		},
	} {
		ticket, err := fsm{s}.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		epoch := s.persister.CurrentEpoch()
		if err := replace(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		sink, err := s.images.Create(1, meta.Index+1, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
		if err != nil {
			t.Fatal(err)
		}
		persisted := make(chan error, 1)
		go func() { persisted <- ticket.Persist(sink) }()
		for ctx := patience(t); len(persisted) == 0; {
			if err := s.persister.Flush(); err != nil { // what its run would do
				t.Fatal(err)
			}
			_ = s.pause(ctx, nil)
		}
		if err := <-persisted; !errors.Is(err, changesdb.ErrEpoch) {
			t.Errorf("%s: a snapshot from before it gives %v, want errEpoch", what, err)
		}
		if at := s.persister.LastMarker().Index; at > meta.Index {
			t.Errorf("%s: a marker from before it stands at raft index %d, beyond the image's %d", what, at, meta.Index)
		}
		wrote := false
		err = s.persister.Upkeep(context.Background(), epoch, func(*bbolt.Tx) error {
			wrote = true
			return nil
		})
		if !errors.Is(err, changesdb.ErrEpoch) || wrote {
			t.Errorf("%s: upkeep from before it gives %v, and wrote: %v; want errEpoch, and nothing written", what, err, wrote)
		}
	}
}
