package oracle

import (
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/projections"
)

// feed sends a compute node what it is to get: its scopes as of the fifth entry, which ends a
// change, and the entries behind it.
func (c *cloud) feed(name string, cn log.UUID) {
	const asOf = 5
	state := projections.NewState()
	for _, e := range c.entries[:asOf] {
		event, err := e.Event()
		if err == nil {
			_, err = state.Apply(e.Seq, event)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.add(name, seen.StreamBegun{Stream: name, Kind: "feed", Filter: "cn=" + cn.String(), Held: map[log.Scope]log.Seq{}})
	for _, scope := range state.Interest(cn) {
		e := seen.Scope{Stream: name, Scope: scope, AsOf: asOf, Chain: c.entries[asOf-1].Hash.Prefix()}
		for r := range state.InScope(scope) {
			b, err := log.NewEncoder().Object(r.Object)
			if err != nil {
				c.t.Fatal(err)
			}
			e.Objects = append(e.Objects, seen.Object{Kind: r.Object.Kind(), ID: r.Object.ID(), Revision: r.Revision, Seq: r.Seq, Bytes: b})
		}
		c.add(name, e)
	}
	c.add(name, seen.Bookmark{Stream: name, Seq: asOf, Chain: c.entries[asOf-1].Hash.Prefix()})
	for _, e := range c.entries[asOf:] {
		event, err := e.Event()
		if err != nil {
			c.t.Fatal(err)
		}
		if c.state.Interested(cn, event.Scopes) {
			c.add(name, seen.Item{Stream: name, Seq: e.Seq, Chain: e.Hash.Prefix(), Bytes: e.Bytes})
		}
	}
	digests := map[log.Scope]log.Digest{}
	for _, scope := range c.state.Interest(cn) {
		digests[scope] = c.state.Digest(scope)
	}
	c.add(name, seen.Bookmark{Stream: name, Seq: c.cursor().Seq, Chain: c.hash.Prefix(), Digests: digests})
}

// count returns how many records of a kind there are.
func count[T seen.Event](c *cloud) (n int) {
	for _, r := range c.records {
		if _, ok := r.Event.(T); ok {
			n++
		}
	}
	return n
}

// nodeBreaches are wrong records of compute nodes and of what they were sent.
var nodeBreaches = []breach{
	{"stream", "a tail is missing before a bookmark", func(c *cloud) { drop[seen.Item](c, count[seen.Item](c)-1) }},
	{"stream", "a scope is missing at a bookmark", func(c *cloud) { drop[seen.Scope](c, 0) }},
	{"stream", "a scope lacks an object", func(c *cloud) { edit(c, 0, func(e *seen.Scope) { e.Objects = e.Objects[1:] }) }},
	{"stream", "an object has other bytes", func(c *cloud) {
		edit(c, 0, func(e *seen.Scope) { e.Objects[0].Bytes = append([]byte{0}, e.Objects[0].Bytes...) })
	}},
	{"stream", "another digest", func(c *cloud) {
		edit(c, 1, func(e *seen.Bookmark) {
			for scope, digest := range e.Digests {
				digest.Lo ^= 1
				e.Digests[scope] = digest
			}
		})
	}},
	{"stream", "a bookmark of another log", func(c *cloud) { edit(c, 0, func(e *seen.Bookmark) { e.Chain[0] ^= 1 }) }},
	{"stream", "a bookmark within a change", func(c *cloud) {
		edit(c, 0, func(e *seen.Bookmark) { e.Seq, e.Chain = 1, c.entries[0].Hash.Prefix() })
	}},
	{"stream", "a scope that was not wanted", func(c *cloud) {
		edit(c, count[seen.StreamBegun](c)-1, func(e *seen.StreamBegun) { e.Held[log.VNetScope(7)] = 1 })
	}},
	{"stream", "an agent's state is not the server's", func(c *cloud) { edit(c, 0, func(e *seen.Agent) { e.Mismatches = 1 }) }},
	{"kernel", "lacks something while the history runs", func(c *cloud) {
		e := c.records[0]
		for _, r := range c.records {
			if _, ok := r.Event.(seen.Agent); ok {
				e = r
			}
		}
		a := e.Event.(seen.Agent)
		a.Compared, a.Differences = true, []string{"add link"}
		c.add(e.Who, a)
		a.Differences = nil
		c.add(e.Who, a)
	}},
}
