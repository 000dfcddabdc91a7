package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/history"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/offline"
)

// TestOpenFolder: of a running server it is refused, as is what is none; a
// snapshot file is read like the folder that it was made of.
func TestOpenFolder(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	churn(t, n, 30)
	if _, err := history.OpenFolder(n.cfg.Dir); err == nil || !strings.Contains(err.Error(), "a server has it open") {
		t.Errorf("a running server's folder: %v", err)
	}
	want := n.Head()
	got, err := n.Past().PartAt(t.Context(), history.Part{}, 12)
	whole, err2 := n.Past().StateAt(t.Context(), 12)
	if err := errors.Join(err, err2); err != nil || !bytes.Equal(got.Dump(), whole.Dump()) {
		t.Errorf("the part of a running server: %v", err)
	}
	n.halt(t)
	image := filepath.Join(t.TempDir(), "snapshot")
	out, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := offline.BackupFolder(n.cfg.Dir, out, nil); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{n.cfg.Dir, image} {
		f, err := history.OpenFolder(path)
		if err != nil {
			t.Fatal(err)
		}
		state, err := f.StateAt(t.Context(), 12)
		if err != nil || f.Head() != want || !bytes.Equal(state.Dump(), whole.Dump()) {
			t.Errorf("%s: head %s, want %s (%v)", path, f.Head(), want, err)
		}
		if v, err := f.Verify(t.Context(), nil); err != nil || len(v.Problems) > 0 {
			t.Errorf("%s: verify: %v, %+v", path, err, v.Problems)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := history.OpenFolder(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no data folder") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestIndexUpkeep: a running server writes blocks, and drops those of what is gone.
func TestIndexUpkeep(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { upkeeping(c); c.CheckpointEvents = 1000 })
	blocks := func() (count int) {
		err := n.files.View(func(tx *bbolt.Tx) error {
			if index := tx.Bucket([]byte("index")); index != nil {
				count = index.Stats().KeyN
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	round := 0
	fill := func(to log.Seq) {
		for n.Head().Seq < to {
			round++
			c := &log.Change{ID: newID(), Actor: "test"}
			for i := range 250 {
				op := tagOp(fmt.Sprintf("t%d", i))
				if round > 1 {
					op.Action, op.ID, op.Set = log.Update, fmt.Sprintf("t%d", i), []string{"mtu"}
					op.Object.(*log.NICTag).MTU = uint32(1500 + round%1000)
				}
				c.Ops = append(c.Ops, op)
			}
			must(t, n, c)
		}
	}
	fill(history.SegmentEvents + 500)
	until(t, n, "a block is there", func() bool { return blocks() == 1 })
	want, err := n.Past().StateAt(t.Context(), 5000)
	if err != nil {
		t.Fatal(err)
	}
	ref := history.Ref{Kind: log.KindNICTag, ID: "t7"}
	rec, ok, err := n.Past().ObjectAt(t.Context(), ref, 5000)
	if wantRec, _ := want.Get(ref.Kind, ref.ID); err != nil || !ok || !reflect.DeepEqual(rec, wantRec) {
		t.Errorf("%+v %v %v, want %+v", rec, ok, err, wantRec)
	}
	until(t, n, "all members are heard", func() bool {
		return n.SetRetention(patience(t), changesdb.Retention{Events: 200, Bytes: 1 << 28}) == nil
	})
	fill(history.SegmentEvents + 3000)
	// The floor goes no farther than to a checkpoint, and those are made where the
	// head is when upkeep looks: the log must go on.
	until(t, n, "the block is dropped", func() bool {
		if firstRow(t, n.Store) > history.SegmentEvents && blocks() == 0 {
			return true
		}
		fill(n.Head().Seq + 1)
		return false
	})
}
