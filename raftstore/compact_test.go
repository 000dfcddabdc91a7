package raftstore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/offline"
)

// TestCompactFolder: a folder whose entries are mostly gone gives the room back, and
// has the same state, log and remembered changes afterwards. One that a server has
// open is left alone.
func TestCompactFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	n := one(t, func(c *Config) { c.UpkeepEvery, c.CheckpointEvents = 10*1e6, 50 })
	must(t, n, tagChange(newID(), "kept"))
	kept := tagChange(newID(), "answered_once")
	first := must(t, n, kept)
	for i := range 60 {
		var create, remove []log.Op
		for j := range 50 {
			name := fmt.Sprintf("t_%d_%d", i, j)
			create = append(create, tagOp(name))
			remove = append(remove, log.Op{Action: log.Delete, Kind: log.KindNICTag, ID: name})
		}
		must(t, n, &log.Change{ID: newID(), Actor: "test", Ops: create})
		must(t, n, &log.Change{ID: newID(), Actor: "test", Ops: remove})
	}
	if err := n.SetRetention(patience(t), changesdb.Retention{Events: 10, Bytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	more := 0
	until(t, n, "the old entries go", func() bool {
		// They go below a checkpoint only, which may stand at the last entry: upkeep
		// comes when it can.
		more++
		must(t, n, tagChange(newID(), fmt.Sprintf("more%d", more)))
		gone := false
		err := n.files.View(func(tx *bbolt.Tx) error {
			h, _, err := changesdb.ReadMeta(tx)
			gone = err == nil && changesdb.FirstEvent(tx, &h) > h.Seq/2
			return err
		})
		return err == nil && gone
	})
	if _, err := offline.CompactFolder(n.cfg.Dir, nil); err == nil {
		t.Error("a folder that a server has open was compacted")
	}
	head := n.Head()
	n.halt(t)
	done, err := offline.CompactFolder(n.cfg.Dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range done {
		t.Logf("%s: %d bytes, before %d", filepath.Base(c.File), c.After, c.Before)
	}
	if c := done[0]; c.After >= c.Before/2 || c.After != disk.FileSize(filepath.Join(n.cfg.Dir, changesdb.Name)) {
		t.Errorf("changes.db has %d bytes, before %d", c.After, c.Before)
	}
	if left, _ := filepath.Glob(filepath.Join(n.cfg.Dir, "*"+boltfile.PendingSuffix)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	again := n.again(t)
	if again.Head() != head {
		t.Errorf("the head is %v, before %v", again.Head(), head)
	}
	if second := must(t, again, kept); second.First != first.First {
		t.Errorf("a change of before stands at %d, and was answered with %d", second.First, first.First)
	}
	must(t, again, tagChange(newID(), "after"))
}

// TestCompactNoFolder: what is no data folder stays none.
func TestCompactNoFolder(t *testing.T) {
	dir := t.TempDir()
	if _, err := offline.CompactFolder(dir, nil); err == nil {
		t.Error("an empty folder was compacted")
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}
