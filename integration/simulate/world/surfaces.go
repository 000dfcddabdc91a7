package world

import (
	"context"
	"runtime"
	"sync"
	"time"

	"rutter/agent"
	"rutter/integration/simulate/seen"
)

// useSurfaces starts the clients of the surfaces beside writes, reads and the log, until ctx ends.
func (w *world) useSurfaces(ctx context.Context, work *sync.WaitGroup) {
	l := newListener(w)
	w.listeners = append(w.listeners, l)
	l.start(w.ctx)
	work.Go(func() { newStreamer(w).run(ctx) })
	work.Go(func() { w.runVMs(ctx) })
	for i := range 2 {
		work.Go(func() { newAsker(w, i).run(ctx) })
	}
}

// Bounds of what a history needs for each of its servers and agents, with their connections and
// clients, when nothing goes wrong and nothing is written any more. What a part keeps for each
// connection or request that there was grows with the history, and not with the machines.
const (
	quietGoroutines = 80 // about 40 are usual with three servers and five agents
	quietHeap       = 4 << 20
	// seenBytes is for each record of what was seen, with what it holds.
	seenBytes = 4 << 10
	// quietFor is how long connections that ended are given to end.
	quietFor = 5 * time.Second
)

// quiet records what the machines need at the end of a history.
func (w *observer) quiet() {
	time.Sleep(quietFor)
	machines := int64(len(w.servers) + len(w.nodes))
	for _, q := range []seen.Queue{
		{Name: "goroutines at the quiet end", Size: int64(runtime.NumGoroutine()), Bound: machines * quietGoroutines},
		{Name: "bytes of the heap at the quiet end", Size: collected() - w.heap, Bound: machines*quietHeap + seenBytes*int64(len(w.seen.Records()))},
	} {
		w.seen.Add("world", q)
	}
}

// collected is heap without garbage.
func collected() int64 {
	runtime.GC()
	return heap()
}

// kept records the sizes of what an agent keeps, with the bounds that its program has.
func (w *observer) kept(n *node, st *agent.Status) {
	for _, q := range []seen.Queue{
		{Name: "rows that are not in the cache", Size: int64(st.Cache.Waiting), Bound: maxCacheRows},
		{Name: "listed failures", Size: int64(max(len(st.Kernel.Failures), len(st.Kernel.Waits), len(st.Kernel.Drift), len(st.Kernel.Problems))), Bound: maxAgentList},
	} {
		w.seen.Add(n.name, q)
	}
}

// Bounds of package agent (persister.go, reconcile.go), which does not export them.
const (
	maxCacheRows = 1 << 16
	maxAgentList = 32
)
