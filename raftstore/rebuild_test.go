package raftstore

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"rutter/raftstore/internal/changesdb"
)

// markBarrier makes n set a marker at a barrier after the last entry that its FSM got.
// No other marker may be due.
func markBarrier(t *testing.T, nodes []*node, n *node) {
	t.Helper()
	for ctx := patience(t); n.persister.LastMarker().Index <= n.applied().Command; _ = n.pause(ctx, nil) {
		if ctx.Err() != nil {
			t.Fatalf("the marker stands at %d, and not after %d", n.persister.LastMarker().Index, n.applied().Command)
		}
		if _, err := leaderOf(t, nodes).Consistent(ctx); err != nil {
			t.Fatal(err)
		}
		_ = n.raft.Load().Snapshot().Error()
	}
}

// applied returns the end of what the FSM applied.
func (n *node) applied() changesdb.Head {
	n.applier.mu.Lock()
	defer n.applier.mu.Unlock()
	return n.applier.head
}

func noMarkers(c *Config) { c.MarkerEvery, c.MarkerEntries = time.Hour, 1<<30 }

// TestRebuildAfterBarrier: the marker of a server stands at a barrier after the last
// change, and nothing more is written. The server is rebuilt from others whose data end at
// that change: at once, and after a restart, when its applied index is the barrier's too.
func TestRebuildAfterBarrier(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) {
		noMarkers(c)
		c.Heartbeat = 2 * time.Second // a slow machine is not to elect another one
	})
	must(t, leaderOf(t, nodes), tagChange(newID(), "before"))
	checkSame(t, nodes)
	odd := others(nodes, leaderOf(t, nodes))[0]
	markBarrier(t, nodes, odd)
	marker := odd.persister.LastMarker()
	for _, n := range others(nodes, odd) {
		if at := n.persister.Progress().Index; at >= marker.Index {
			t.Errorf("%s is at raft index %d, and the marker at %d", n.cfg.ID, at, marker.Index)
		}
	}
	if err := odd.Rebuild(patience(t)); err != nil {
		t.Fatalf("with a marker at %d and the last entry at %d: %v", marker.Index, odd.applied().Command, err)
	}
	if m, h := odd.persister.LastMarker(), odd.applied(); m.Index != marker.Index || h.Applied != marker.Index || h.Term != marker.Term || h.Command >= m.Index {
		t.Errorf("rebuilt: marker at %d, applied %d of term %d, last entry %d; the marker was at %d of term %d", m.Index, h.Applied, h.Term, h.Command, marker.Index, marker.Term)
	}
	odd.halt(t)
	rest := others(nodes, odd)
	odd = odd.again(t)
	until(t, odd, "it runs", func() bool { return odd.raft.Load() != nil && phase(odd.lead.phase.Load()) == running })
	if h := odd.applied(); h.Applied < marker.Index || h.Command >= marker.Index {
		t.Errorf("restarted: applied %d, last entry %d, marker at %d", h.Applied, h.Command, marker.Index)
	}
	if err := odd.Rebuild(patience(t)); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	nodes = append(rest, odd)
	must(t, odd, tagChange(newID(), "after"))
	checkSame(t, nodes)
	checkRestart(t, nodes, odd)
}

// TestFinalMarker: a marker whose transaction is under way as a rebuild begins is the one
// that the rebuilt file gets. raft.db may be trimmed up to it.
func TestFinalMarker(t *testing.T) {
	t.Parallel()
	s, err := Open(testConfig(t, "s1", t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	under, release := make(chan bool, 1), make(chan bool)
	s.persister.SetFault(func(string) error {
		under <- true
		<-release
		return nil
	})
	epoch, marked := s.persister.CurrentEpoch(), make(chan error, 1)
	go func() { marked <- s.persister.Mark(changesdb.Marker{Index: 5, Term: 2}, epoch) }()
	flushed := make(chan error, 1)
	go func() { // as its run does
		for ctx := patience(t); ; _ = s.pause(ctx, nil) {
			if err := s.persister.Flush(); err != nil || s.persister.LastMarker().Index > 0 {
				flushed <- err
				return
			}
		}
	}()
	<-under
	b, _, err := s.applier.beginRebuild()
	if err != nil {
		t.Fatal(err)
	}
	final := make(chan changesdb.Marker, 1)
	go func() {
		m, err := s.rebuilder.finalMarker()
		if err != nil {
			t.Error(err)
		}
		final <- m
	}()
	select {
	case m := <-final:
		t.Errorf("the marker is final at %d while one at 5 is written", m.Index)
		final <- m
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if m := <-final; m.Index != 5 {
		t.Errorf("the final marker is at %d, want 5", m.Index)
	}
	if err := errors.Join(<-marked, <-flushed); err != nil {
		t.Error(err)
	}
	s.applier.endRebuild(b)
}

// TestStreamAfterBarrier: a marker that stands at a barrier after the last change does not
// end the images that are sent.
func TestStreamAfterBarrier(t *testing.T) {
	t.Parallel()
	n := one(t, noMarkers)
	must(t, n, tagChange(newID(), "before"))
	markBarrier(t, []*node{n}, n)
	_, stream, err := n.images.Open("stream")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.raft.Load().Snapshot().Error(); err == nil || !strings.Contains(err.Error(), "(0 entries now)") {
		t.Errorf("a marker while an image is sent: %v", err)
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		t.Errorf("the image that is sent: %v", err)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
}
