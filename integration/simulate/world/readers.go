package world

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"rutter/agent"
	"rutter/api/client"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// reader reads registers with every promise that reads can have, until ctx ends.
func (w *world) reader(ctx context.Context, i int) {
	who := fmt.Sprintf("r%d", i+1)
	rnd := w.rand(who)
	apis, end, err := w.clients(who)
	if err != nil {
		w.fail("client: %v", err)
		return
	}
	defer end()
	for ctx.Err() == nil {
		at := rnd.IntN(len(apis))
		e := seen.Read{Server: w.servers[at].id, Kind: log.KindNetwork, ID: networkID(rnd.IntN(registers)), Mode: "consistent", From: w.seen.Since(time.Now())}
		query := url.Values{"consistent": {""}}
		switch rnd.IntN(4) {
		case 0:
			e.Mode, query = "local", nil
		case 1:
			e.Mode, e.MinSeq = "min_seq", w.lastSeq()
			query = url.Values{"min_seq": {e.MinSeq.String()}}
		}
		within, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		e.Object, err = apis[at].Get(within, "/networks/"+e.ID, query)
		cancel()
		e.Until = w.seen.Since(time.Now())
		if err != nil {
			e.Err = err.Error()
		} else {
			e.Found = true
			if n, ok := e.Object["revision"].(float64); ok {
				e.Revision = log.Revision(n)
			}
		}
		w.seen.Add(who, e)
		w.count("read "+e.Mode, 1)
		pause(ctx, time.Duration(rnd.Int64N(int64(w.think()/2))))
	}
}

// clients are clients of one server each, on one host.
func (w *world) clients(who string) (apis []*client.Client, end func(), err error) {
	for _, s := range w.servers {
		api, err := w.client(w.net.Host(who), s.name, 0)
		if err != nil {
			return nil, nil, err
		}
		apis = append(apis, api)
	}
	return apis, func() {
		for _, api := range apis {
			api.Close()
		}
	}, nil
}

// follower reads the log as lines, from where it was, from server to server.
func (w *world) follower(ctx context.Context, i int, query url.Values) {
	who := fmt.Sprintf("f%d", i+1)
	apis, end, err := w.clients(who)
	if err != nil {
		w.fail("client: %v", err)
		return
	}
	defer end()
	rnd := w.rand(who)
	var at log.Cursor
	for ctx.Err() == nil {
		server := rnd.IntN(len(apis))
		q := client.LogQuery{Follow: true, Query: url.Values{}}
		for k, v := range query {
			q.Query[k] = v
		}
		if at.Seq > 0 {
			q.Query.Set("cursor", at.String())
		}
		w.seen.Add(who, seen.StreamBegun{Stream: who, Kind: "log", Filter: query.Encode(), After: at})
		life, stop := context.WithTimeout(ctx, time.Duration(1+rnd.Int64N(20))*time.Second)
		var ended error
		for line, err := range apis[server].Log(life, q) {
			if err != nil {
				ended = err
				break
			}
			at.Seq, at.Chain = line.Seq, line.Chain
			w.seen.Add(who, seen.Item{Stream: who, Seq: line.Seq, Chain: line.Chain, Line: fmt.Sprint(line)})
			w.count("stream items", 1)
		}
		stop()
		e := seen.StreamEnded{Stream: who}
		if ended != nil {
			e.Err = ended.Error()
			var refusal *log.Refusal
			if errors.As(ended, &refusal) {
				e.Code = refusal.Code
				at = log.Cursor{} // it begins anew
				w.count("stream refused "+refusal.Code, 1)
			}
		}
		if at.Seq > 0 {
			at.Cluster = w.cluster()
		}
		w.seen.Add(who, e)
		pause(ctx, 200*time.Millisecond)
	}
}

// waiter waits for the fabric now and then, through a server of its choice, and looks at the
// kernels when it is told that they have it.
func (w *world) waiter(ctx context.Context, i int) {
	who := fmt.Sprintf("w%d", i+1)
	rnd := w.rand(who)
	apis, end, err := w.clients(who)
	if err != nil {
		w.fail("client: %v", err)
		return
	}
	defer end()
	for n := 0; ctx.Err() == nil; n++ {
		agents, timeline := w.agents(), w.timeline()
		e := seen.Barrier{Seq: w.lastSeq(), From: w.seen.Since(time.Now())}
		if older := log.Seq(rnd.IntN(40)); n%3 > 0 && older < e.Seq { // what programs that ran before have programmed
			e.Seq -= older
		}
		v, err := apis[rnd.IntN(len(apis))].Wait(ctx, client.Barrier{Seq: e.Seq, Scopes: []log.Scope{log.AllScope()}, Timeout: 2 * time.Second})
		e.Until = w.seen.Since(time.Now())
		e.Done = err == nil && v.Done
		for _, m := range v.Missing {
			e.Missing = append(e.Missing, m.Hostname)
		}
		if err != nil {
			e.Err = err.Error()
		}
		if e.Done && w.timeline() == timeline {
			e.Kernels = w.observe.lacking(e.Seq, func(*node) bool { return true })
			maps.Copy(e.Kernels, lacking(agents, w.agents(), e.Seq))
		}
		w.seen.Add(who, e)
		w.count(fmt.Sprintf("barrier done=%v", e.Done), 1)
		pauseUnless(ctx, w.turned, time.Duration(rnd.Int64N(int64(2*usualThink))))
	}
}

// awaiter writes changes that wait for the compute nodes, and looks at the kernels when it is
// told that they have them.
func (w *world) awaiter(ctx context.Context) {
	const who = "w3"
	rnd := w.rand(who)
	api, err := w.waitingClient(w.net.Host(who), "", 0, 2*time.Second)
	if err != nil {
		w.fail("client: %v", err)
		return
	}
	defer api.Close()
	for n := 0; ctx.Err() == nil; n++ {
		cn := rnd.IntN(w.h.Agents)
		c := &log.Change{ID: changeID(rnd), Ops: w.model.create(rnd, cn)}
		timeline := w.timeline()
		within, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		wrote := w.write(within, who, "await", api.Submit, c)
		cancel()
		if wrote.Outcome == seen.Accepted {
			e := seen.Barrier{Seq: wrote.Result.Last, From: wrote.From, Until: wrote.Until, Done: true, Kernels: map[string]string{}}
			if w.timeline() == timeline {
				e.Kernels = w.observe.lacking(e.Seq, func(of *node) bool { return of.i == cn })
			}
			w.seen.Add(who, e)
		}
		w.count(fmt.Sprintf("awaited %s", wrote.Outcome), 1)
		pause(ctx, time.Second+time.Duration(rnd.Int64N(int64(4*time.Second))))
	}
}

// agents are those that run now and that a server knows, by node.
func (w *world) agents() map[string]*agent.Agent {
	all := map[string]*agent.Agent{}
	for _, n := range w.nodes {
		if a := n.known(); a != nil {
			all[n.name] = a
		}
	}
	return all
}

// lacking says which agents have not reached a seq, of those that ran before a barrier and run
// still: an agent that began meanwhile does not know what the one before it has programmed.
func lacking(before, after map[string]*agent.Agent, seq log.Seq) map[string]string {
	lack := map[string]string{}
	for name, a := range after {
		if status := a.Status(); before[name] == a && status.Reached < seq {
			lack[name] = fmt.Sprintf("it has reached %d, programmed %d", status.Reached, status.Programmed)
		}
	}
	return lack
}

// timeline is how often the cluster was restored.
func (w *world) timeline() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restores
}

// cursorsKept is how many places of the log a prober keeps.
const cursorsKept = 64

// prober asks servers for the log from places that are not in it: beyond its end, of another
// chain, of another cluster, and places that were in it and are no more.
type prober struct {
	w    *world
	rnd  *rand.Rand
	apis []*client.Client
	kept []log.Cursor
}

// probe asks until ctx ends.
func probe(ctx context.Context, w *world) {
	const who = "p1"
	apis, end, err := w.clients(who)
	if err != nil {
		w.fail("client: %v", err)
		return
	}
	defer end()
	p := &prober{w: w, rnd: w.rand(who), apis: apis}
	for ctx.Err() == nil {
		p.ask(ctx, who)
		pause(ctx, time.Duration(p.rnd.Int64N(int64(2*usualThink))))
	}
}

func (p *prober) ask(ctx context.Context, who string) {
	i := p.rnd.IntN(len(p.apis))
	store := p.w.servers[i].store()
	if store == nil {
		return
	}
	head, floor := store.Head(), store.Floor()
	if head.Seq == 0 {
		return
	}
	p.keep(head)
	c, what := p.draw(head, floor)
	if what == "" {
		return
	}
	within, cancel := context.WithTimeout(ctx, 4*time.Second)
	_, err := p.apis[i].Raw(within, http.MethodGet, "/log?limit=1&"+url.Values{"cursor": {c.String()}}.Encode(), nil)
	cancel()
	e := seen.Probe{Server: p.w.servers[i].name, What: what, Cursor: c, Followed: err == nil}
	if err != nil {
		e.Err = err.Error()
	}
	p.w.seen.Add(who, e)
	p.w.count(fmt.Sprintf("cursor %s followed=%v", what, e.Followed), 1)
}

func (p *prober) keep(c log.Cursor) {
	if len(p.kept) == cursorsKept {
		p.kept[p.rnd.IntN(cursorsKept)] = c
		return
	}
	p.kept = append(p.kept, c)
}

// draw returns a cursor that a server with this head and floor must refuse, and why; "": it
// need not.
func (p *prober) draw(head log.Cursor, floor log.Seq) (c log.Cursor, why string) {
	c = p.kept[p.rnd.IntN(len(p.kept))]
	switch p.rnd.IntN(4) {
	case 0:
		c = head
		c.Seq += 1_000_000
		return c, "beyond the end"
	case 1:
		if c.Cluster == head.Cluster {
			c.Chain[0] ^= 1
			return c, "of another chain"
		}
	case 2:
		c.Cluster[15] ^= 1
		return c, "of another cluster"
	}
	switch {
	case c.Cluster != head.Cluster:
		return c, "of the log before a restore"
	case c.Seq < floor:
		return c, "below the floor"
	}
	return c, ""
}
