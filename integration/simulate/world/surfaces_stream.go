package world

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"rutter/agent"
	"rutter/api/client"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// batch is how many changes a streamer has under way at once.
const batch = 4

// streamer writes several changes at once over one write stream, and then waits until the compute
// nodes that the first of them concerns have it, as rutter apply --wait does.
type streamer struct {
	w   *world
	who string
	rnd *rand.Rand
	n   int // changes so far
}

func newStreamer(w *world) *streamer {
	const who = "b1"
	return &streamer{w: w, who: who, rnd: w.rand(who)}
}

// run writes until ctx ends.
func (s *streamer) run(ctx context.Context) {
	api, err := s.w.client(s.w.net.Host(s.who), "", 1)
	if err != nil {
		s.w.fail("client: %v", err)
		return
	}
	defer api.Close()
	stream := api.NewStream()
	var running sync.WaitGroup
	life, end := context.WithCancel(context.Background())
	running.Go(func() { _ = stream.Run(life) })
	defer running.Wait()
	defer end()
	for ctx.Err() == nil {
		cn := s.rnd.IntN(s.w.h.Agents)
		agents, timeline := s.w.agents(), s.w.timeline()
		if seq := s.write(stream.Submit, cn); seq > 0 {
			s.await(ctx, api, cn, seq, agents, timeline)
		}
		pause(ctx, time.Second+time.Duration(s.rnd.Int64N(int64(6*time.Second))))
	}
}

// write sends some changes at once, each again with its id while its outcome is not known. The
// first makes a VM on a node; write returns its last entry, 0 if it was not accepted.
func (s *streamer) write(send submit, cn int) (first log.Seq) {
	var under sync.WaitGroup
	for i := range batch {
		c := &log.Change{ID: changeID(s.rnd), Ops: s.w.ops(s.rnd, s.who, s.n)}
		if s.n++; i == 0 {
			c.Ops = s.w.model.create(s.rnd, cn)
		}
		under.Go(func() {
			for range 4 {
				within, cancel := context.WithTimeout(s.w.ctx, 10*time.Second)
				e := s.w.write(within, s.who, "stream", send, c)
				cancel()
				if i == 0 && e.Outcome == seen.Accepted {
					first = e.Result.Last
				}
				if e.Outcome == seen.Accepted || e.Outcome == seen.Refused {
					return
				}
				pause(s.w.ctx, 200*time.Millisecond)
			}
		})
	}
	under.Wait()
	return first
}

// await waits for the nodes that a change concerns, and looks at the kernel of the one that it
// was made for.
func (s *streamer) await(ctx context.Context, api *client.Client, cn int, seq log.Seq, agents map[string]*agent.Agent, timeline int) {
	e := seen.Barrier{Seq: seq, From: s.w.seen.Since(time.Now())}
	v, err := api.Wait(ctx, client.Barrier{Seq: seq, Timeout: 3 * time.Second})
	e.Until = s.w.seen.Since(time.Now())
	e.Done = err == nil && v.Done
	for _, m := range v.Missing {
		e.Missing = append(e.Missing, m.Hostname)
	}
	if err != nil {
		e.Err = err.Error()
	}
	if e.Done && s.w.timeline() == timeline {
		s.w.count(coverage.StreamAwaited, 1)
		e.Kernels = s.w.observe.lacking(seq, func(of *node) bool { return of.i == cn })
		n := s.w.nodes[cn]
		if a := n.running(); a != nil {
			maps.Copy(e.Kernels, lacking(agents, map[string]*agent.Agent{n.name: a}, seq))
		}
	}
	s.w.seen.Add(s.who, e)
}
