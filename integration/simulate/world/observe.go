package world

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/projections/desired"
	"rutter/raftstore"
)

// observer looks at servers, agents and kernels, and records what it sees. Its fields belong to
// who samples, and after that to who judges.
type observer struct {
	*world
	past witness
	heap int64 // in use when the history began
}

// sampler looks at servers until ctx ends.
func (w *observer) sampler(ctx context.Context) {
	for ctx.Err() == nil {
		w.sample()
		pause(ctx, time.Second)
	}
}

// sample looks at all servers once.
func (w *observer) sample() {
	for _, s := range w.servers {
		w.look(s)
		w.points(s)
	}
	w.gather()
	w.nodesNow()
	w.sizesOfAll()
}

// moment is the state of a server at an instant in which nothing moves.
type moment struct {
	head log.Cursor
	want func(*node) desired.Links // nil: no server runs
}

// newest returns what the server that is furthest wants of the nodes; call it in freeze.
func (w *observer) newest() (m moment) {
	var newest *raftstore.Store
	for _, s := range w.servers {
		if store := s.store(); store != nil && (newest == nil || store.Head().Seq > newest.Head().Seq) {
			newest = store
		}
	}
	if newest == nil {
		return m
	}
	newest.View(func(v raftstore.View) { m.head = v.Head })
	m.want = func(n *node) (want desired.Links) {
		newest.View(func(v raftstore.View) { want = desired.Of(v.State, n.cn) })
		return want
	}
	return m
}

// nodesNow looks at all agents, and at the kernels of those that say that they have all that the
// log has.
func (w *observer) nodesNow() {
	_ = w.freeze(func() error {
		m := w.newest()
		for _, n := range w.nodes {
			a := n.running()
			if a == nil || m.want == nil {
				continue
			}
			status := a.Status()
			e := seen.Agent{Head: status.Cursor, Programmed: log.Cursor{Seq: status.Programmed}, Complete: status.Kernel.Complete, Mismatches: status.Mismatches, Uncertified: n.uncertified()}
			if n.looked != m.head && status.Cursor == m.head && status.Programmed == m.head.Seq && !n.kernel.meddledWith() {
				n.looked = m.head
				e.Compared, e.Differences = true, n.kernel.unlike(m.want(n))
				if len(e.Differences) == 0 {
					n.kernel.wasRight()
				}
				w.count("kernels compared", 1)
			}
			w.seen.Add(n.name, e)
			w.kept(n, &status)
		}
		return nil
	})
}

// lacking says what kernels lack of an entry up to which a barrier was done just now. Only if the
// log is still there is it known what they are to have.
func (w *observer) lacking(seq log.Seq, concerned func(*node) bool) (lack map[string]string) {
	lack = map[string]string{}
	_ = w.freeze(func() error {
		m := w.newest()
		if m.want == nil || m.head.Seq != seq {
			return nil
		}
		for _, n := range w.nodes {
			if !concerned(n) || n.kernel.meddledWith() || n.kernel.refusedSome() || n.kernel.isFresh() {
				continue
			}
			w.count("barrier kernels", 1)
			if d := n.kernel.unlike(m.want(n)); len(d) > 0 {
				lack[n.name] = fmt.Sprintf("%d steps: %s", len(d), strings.Join(d[:min(3, len(d))], "; "))
			}
		}
		return nil
	})
	return lack
}

// Bounds of a simulated cluster of five servers and fifty nodes. Those of the process hold for
// what one history needs over what there was at its begin.
const (
	maxHeap        = 512 << 20
	maxGoroutines  = 5000
	maxConnections = 1000
	maxNetQueued   = 64 << 20
	maxProposals   = 4096
	maxLagBytes    = 64 << 20
)

// heap is what objects need, in bytes, with those that are garbage.
func heap() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// sizesOfAll records the sizes of what must not grow without a bound, of the whole process.
func (w *observer) sizesOfAll() {
	counts := w.net.Counts()
	for _, q := range []seen.Queue{
		{Name: "bytes of the heap", Size: heap() - w.heap, Bound: maxHeap},
		{Name: "goroutines", Size: int64(runtime.NumGoroutine()), Bound: maxGoroutines},
		{Name: "connections", Size: int64(counts["connections open"]), Bound: maxConnections},
		{Name: "bytes on the network", Size: int64(counts["bytes queued"]), Bound: maxNetQueued},
	} {
		w.seen.Add("world", q)
	}
}

// sizes records those of a server.
func (w *observer) sizes(s *server, st *raftstore.Status) {
	w.seen.Add(s.name, seen.Queue{Name: "proposals", Size: int64(st.Queued), Bound: maxProposals})
	w.seen.Add(s.name, seen.Queue{Name: "bytes not in changes.db", Size: int64(st.LagBytes), Bound: maxLagBytes})
	if st.RingFirst > 0 && st.Head.Seq >= st.RingFirst && st.Head.Seq != s.ringAt {
		s.ringAt = st.Head.Seq
		bound := int64(ringEntries + st.LagEvents)
		s.ringOver = append(s.ringOver[max(0, len(s.ringOver)-ringLooks+1):], int64(st.Head.Seq-st.RingFirst+1)-bound)
		if len(s.ringOver) == ringLooks {
			w.seen.Add(s.name, seen.Queue{Name: "entries in the ring", Size: bound + slices.Min(s.ringOver), Bound: bound})
		}
	}
}

// ringLooks is how many looks in a row, each after new entries, must find a ring too long: it is
// cut when an entry comes, by what was synced then, and is too long until the next one.
const ringLooks = 3

// look records a server's position.
func (w *observer) look(s *server) (e seen.Server, ok bool) {
	store := s.store()
	if store == nil {
		return e, false
	}
	st := store.Status()
	leads := st.State == "Leader"
	if leads {
		// Status reads raft's state before its term: a server that led in a term may be told of a
		// new one between. Only if the term was the same before and after did it lead in that term.
		term := st.Term
		st = store.Status()
		leads = st.State == "Leader" && st.Term == term
	}
	w.sizes(s, &st)
	e = seen.Server{Applied: st.Applied, Head: st.Head, Term: st.Term, Leads: leads, Leader: st.LeaderID, Ready: st.NotReady, Lag: st.LagEvents, Features: st.Feature, Replica: st.Replica}
	if st.Diverged != "" {
		w.fail("%s serves no more at %v: %s", s.name, w.seen.Since(time.Now()), st.Diverged)
	}
	w.seen.Add(s.name, e)
	return e, true
}

// points records the digests of a server's state at all raft indexes since the last look.
func (w *observer) points(s *server) {
	store := s.store()
	if store == nil {
		return
	}
	s.mu.Lock()
	if s.looked != store {
		s.looked, s.pointed = store, 0
	}
	after := s.pointed
	s.mu.Unlock()
	for _, p := range store.Points(after) {
		e := seen.State{Applied: p.Index, Seq: p.Seq}
		copy(e.Digest[:], p.Digest[:])
		w.seen.Add(s.name, e)
		after = p.Index
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pointed = after
}

// witness is the cluster's log as it was read while it was written: servers delete its begin.
type witness struct {
	timeline int
	entries  []log.Entry
}

// gather reads what is new in the log, from a server that has it.
func (w *observer) gather() {
	for _, s := range w.servers {
		store, timeline := s.store(), w.timeline()
		if store == nil {
			continue
		}
		p := &w.past
		if p.timeline != timeline { // what the backup had stays
			p.timeline = timeline
			p.entries = p.entries[:min(len(p.entries), int(w.backedUp()))]
		}
		for {
			more, err := store.Entries(log.Seq(len(p.entries)), 1000)
			if err != nil || len(more) == 0 || timeline != w.timeline() || s.store() != store {
				break
			}
			if more[0].Seq != log.Seq(len(p.entries))+1 {
				w.count("witness has a gap", 1)
				break
			}
			p.entries = append(p.entries, more...)
		}
	}
}

// backedUp is the lowest head to which the cluster was restored.
func (w *observer) backedUp() log.Seq {
	to, _ := restoredTo(w.seen.Records(), 0)
	return to
}

// tell records the whole log.
func (w *observer) tell() {
	w.gather()
	if len(w.past.entries) > 0 {
		w.seen.Add("world", seen.Entries{Floor: 1, Entries: w.past.entries})
	}
}
