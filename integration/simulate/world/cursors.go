package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"rutter/api/client"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

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
