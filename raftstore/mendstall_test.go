package raftstore

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"rutter/raftstore/internal/admission"
	"rutter/raftstore/internal/window"
)

// The log's time is set, the disk hangs before that is written, and who asked is told
// that is unknown. When the disk goes on the time is set, and stays so.
func TestMendWhileDiskHangs(t *testing.T) {
	t.Parallel()
	var off atomic.Int64
	off.Store(int64(year))
	cfg := testConfig(t, "s1", filepath.Join(t.TempDir(), "s1"))
	cfg.Listen = freeAddress(t)
	cfg.InitialMembers = []Member{{ID: "s1", Address: cfg.Listen}}
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	n := launchHeld(t, cfg)
	must(t, n.node, tagChange(window.NewID(time.Now().Add(year)), "ahead"))
	off.Store(0)
	n.disk.hold()
	outcomes := make(chan admission.Outcome, 1)
	if err := n.proposer.enqueue(setTimeChange(newID(), true, textOf(time.Now())+" forced"), func(o admission.Outcome) { outcomes <- o }); err != nil {
		t.Fatal(err)
	}
	if o := <-outcomes; !errors.Is(o.Err, ErrUnknown) {
		t.Fatalf("the disk hangs: %+v, want ErrUnknown", o)
	}
	n.disk.release(false)
	becomes(t, "the time is set", func() bool { return n.lead.leading() && timeOff(t, n.node).Abs() < time.Hour })
	must(t, n.node, tagChange(newID(), "after"))
	if at := timeOff(t, n.node); at.Abs() > time.Hour {
		t.Errorf("the log's time is %v off again", at)
	}
}
