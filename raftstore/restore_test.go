package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/offline"
)

// saved returns the bytes of a backup of n.
func saved(t *testing.T, n *node) []byte {
	t.Helper()
	b, err := n.Backup(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(b)
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	if int64(len(image)) != b.Size {
		t.Errorf("a backup of %d bytes, announced as %d", len(image), b.Size)
	}
	if head := n.Head(); b.Cluster != head.Cluster || b.Seq != head.Seq {
		t.Errorf("the backup says cluster %s, seq %d; want those of %s", b.Cluster, b.Seq, head)
	}
	return image
}

func written(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A restored cluster has the log, the state and the dedupe window of the
// snapshot and another identity; servers with empty folders join it.
func TestRestore(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	var last log.Result
	for i := range 50 {
		last = must(t, n, tagChange(newID(), fmt.Sprintf("tag%d", i)))
	}
	old := n.Head()
	path := written(t, saved(t, n))
	n.halt(t)

	dir := filepath.Join(t.TempDir(), "r1")
	at := offline.Rebirth{Dir: dir, Member: Member{ID: "r1", Address: freeAddress(t)}}
	dry := at
	dry.DryRun = true
	if c, err := offline.Restore(path, dry); err != nil || c.Head != old || c.Events != 50 || c.Objects["nic_tag"] != 50 {
		t.Fatalf("dry run: %+v, %v", c, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("the dry run left %v", left)
	}
	c, err := offline.Restore(path, at)
	if err != nil {
		t.Fatal(err)
	}
	if c.Head.Seq != old.Seq || c.Head.Cluster == old.Cluster || c.Head.Chain != old.Chain {
		t.Errorf("restored %s out of %s: want another cluster, and the same place", c.Head, old)
	}
	if _, err := offline.Restore(path, at); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second restore over the first: %v", err)
	}

	cfg := testConfig(t, "r1", dir)
	cfg.Listen = at.Member.Address
	r := launch(t, cfg)
	leaderOf(t, []*node{r})
	if err := r.CheckCursor(old); !errors.Is(err, log.ErrOtherLog) {
		t.Errorf("a cursor of the old cluster: %v, want ErrOtherLog", err)
	}
	if again := must(t, r, tagChange(last.ChangeID, "tag49")); again.Last != last.Last {
		t.Errorf("a change from before, sent again: %+v, want %+v", again, last)
	}
	must(t, r, tagChange(newID(), "new"))
	checkFold(t, r.Store)

	joiner := testConfig(t, "r2", filepath.Join(t.TempDir(), "r2"))
	joiner.Join = []string{r.Address()}
	j := launch(t, joiner)
	if err := j.WaitSeq(patience(t), old.Seq+1); err != nil {
		t.Fatal(err)
	}
	checkFold(t, j.Store)
	// It can lead: its log's terms do not go back.
	for ctx := patience(t); !j.lead.leading(); {
		if err := r.members.Transfer(ctx, "r2"); err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
		_ = r.pause(ctx, nil)
	}
	must(t, r, tagChange(newID(), "through_the_joiner"))
}

// A snapshot with any byte flipped, cut or added is refused, and leaves nothing.
func TestRestoreDamaged(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	image := saved(t, n)
	dir := filepath.Join(t.TempDir(), "r1")
	at := offline.Rebirth{Dir: dir, Member: Member{ID: "r1", Address: "127.0.0.1:1"}}
	damaged := map[string][]byte{
		"cut":   image[:len(image)-1],
		"short": image[:10],
		"empty": {},
		"added": append(bytes.Clone(image), 0),
	}
	for range 30 {
		i := rand.IntN(len(image))
		b := bytes.Clone(image)
		b[i] ^= 1 << rand.IntN(8)
		damaged[fmt.Sprintf("flipped at %d", i)] = b
	}
	for name, b := range damaged {
		if _, err := offline.Restore(written(t, b), at); !errors.Is(err, log.ErrCorrupt) && !errors.Is(err, log.ErrFormat) {
			t.Errorf("%s: %v, want ErrCorrupt or ErrFormat", name, err)
		}
		if err := changesdb.CheckImage(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: CheckImage finds nothing", name)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Fatalf("%s: left %v", name, left)
		}
	}
}

// A folder without a server is saved like a running one, and an open one refused.
func TestBackupFolder(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	for i := range 10 {
		must(t, n, tagChange(newID(), fmt.Sprintf("tag%d", i)))
	}
	if _, err := offline.InspectFolder(n.cfg.Dir, nil); err == nil {
		t.Error("the folder of a running server was inspected")
	}
	head := n.Head()
	n.halt(t)
	var b bytes.Buffer
	c, err := offline.BackupFolder(n.cfg.Dir, &b, nil)
	if err != nil || c.Head != head || c.Waiting != 0 {
		t.Fatalf("%+v, %v; want head %s and nothing waiting", c, err, head)
	}
	if c, err := offline.InspectSnapshot(written(t, b.Bytes()), nil); err != nil || c.Head != head || c.Objects["nic_tag"] != 10 {
		t.Errorf("%+v, %v; want head %s", c, err, head)
	}
}

// One server of three is left: it becomes a cluster of one that has everything
// which was acknowledged, and others join it.
func TestRecover(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.PersistDelay = time.Hour }) // raft.db has what changes.db has not
	leader := leaderOf(t, nodes)
	for i := range 20 {
		must(t, leader, tagChange(newID(), fmt.Sprintf("tag%d", i)))
	}
	if _, err := leader.Consistent(patience(t)); err != nil { // it may lead no longer
		t.Fatal(err)
	}
	old := leader.Head()
	var survivor *node
	for _, n := range nodes {
		if n != leader {
			survivor = n
		}
	}
	if err := survivor.WaitSeq(patience(t), old.Seq); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.halt(t)
	}
	at := offline.Rebirth{Dir: survivor.cfg.Dir, Member: Member{ID: survivor.cfg.ID}}
	if _, err := Recover(offline.Rebirth{Dir: at.Dir, Member: Member{ID: "s9"}}, survivor.cfg.Logger); err == nil || !strings.Contains(err.Error(), "not among them") {
		t.Errorf("as a server that never was: %v", err)
	}
	dry := at
	dry.DryRun = true
	if c, err := Recover(dry, survivor.cfg.Logger); err != nil || len(c.Members) != 3 || c.Cluster != old.Cluster {
		t.Errorf("dry run: %+v, %v", c, err)
	}
	c, err := Recover(at, survivor.cfg.Logger)
	if err != nil {
		t.Fatal(err)
	}
	if c.Head.Seq != old.Seq || c.Cluster == old.Cluster || len(c.Members) != 1 || c.Members[0].Address != survivor.Address() {
		t.Errorf("recovered %+v out of %s", c, old)
	}
	survivor.cfg.InitialMembers = nil
	s := survivor.again(t)
	must(t, s, tagChange(newID(), "alone"))
	checkFold(t, s.Store)
	cfg := testConfig(t, "s8", filepath.Join(t.TempDir(), "s8"))
	cfg.Join = []string{s.Address()}
	j := launch(t, cfg)
	if err := j.WaitSeq(patience(t), old.Seq+1); err != nil {
		t.Fatal(err)
	}
	checkFold(t, j.Store)
}

// After a crash raft's log holds entries that changes.db has not: they are
// counted, and a recovery takes them over.
func TestRecoverTakesWhatWaits(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) {
		c.PersistDelay = time.Hour
		c.MarkerEntries = 1 << 20
	})
	for i := range 30 {
		must(t, n, tagChange(newID(), fmt.Sprintf("tag%d", i)))
	}
	// A copy of the files, as a crash leaves them.
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(n.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	head := n.Head()
	n.halt(t)
	c, err := offline.InspectFolder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Head.Seq < head.Seq && c.Waiting == 0 {
		t.Errorf("changes.db at %d of %d, and nothing waits", c.Head.Seq, head.Seq)
	}
	if len(c.Members) == 0 {
		t.Skip("the copy was taken before the first transaction")
	}
	if c, err = Recover(offline.Rebirth{Dir: dir, Member: Member{ID: "s1"}}, n.cfg.Logger); err != nil {
		t.Fatal(err)
	}
	if c.Head.Seq != head.Seq || c.Head.Chain != head.Chain {
		t.Errorf("recovered up to %s, want seq %d", c.Head, head.Seq)
	}
}

// A backup is written while others write, and no writer waits for it.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "first"))
	ctx, cancel := context.WithCancel(t.Context())
	var changes atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := n.Propose(context.WithoutCancel(ctx), tagChange(newID(), fmt.Sprintf("tag%d", i))); err != nil {
				t.Errorf("change %d: %v", i, err)
				break
			}
			changes.Add(1)
		}
	}()
	// Five backups, and as many more as it takes until a change came between.
	for i := 0; i < 5 || changes.Load() == 0 && !t.Failed(); i++ {
		b, err := n.Backup(ctx)
		if err != nil {
			t.Fatal(err)
		}
		image, err := io.ReadAll(b)
		if err := errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
		c, err := offline.InspectSnapshot(written(t, image), nil)
		if err != nil || c.Head.Seq != b.Seq {
			t.Errorf("%+v, %v; want seq %d", c, err, b.Seq)
		}
	}
	cancel()
	<-done
}
