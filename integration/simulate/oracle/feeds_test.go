package oracle

import (
	"strings"
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/changetest"
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

// hung is a fault of the disk of cn1, which takes long enough; programmed is how far its agent was
// then, and other a fault beside it.
func hung(c *cloud, programmed log.Seq, other ...history.Fault) {
	c.now += 2 * Carried
	f := history.Fault{Kind: history.Hang, On: "cn1", For: Carried + 10*time.Second}
	c.add("cn1", seen.Fault{Fault: f})
	for _, o := range other {
		c.add(o.On, seen.Fault{Fault: o})
	}
	c.now += f.For
	c.add("cn1", seen.Agent{Head: c.cursor(), Programmed: log.Cursor{Seq: programmed}, Complete: true})
	c.add("cn1", seen.Fault{Fault: f, Over: true})
	c.look()
}

// ended is a history in which the certificate of cn1 has ended while a fault is under way.
func ended(c *cloud, f history.Fault) {
	c.now += 2 * Renewed
	c.add(f.On, seen.Fault{Fault: f})
	c.now += 2 * Renewed
	c.add("cn1", seen.Agent{Head: c.cursor(), Programmed: c.cursor(), Complete: true, Uncertified: true})
	c.add(f.On, seen.Fault{Fault: f, Over: true})
	c.look()
}

// shows says which certificate cn1 shows, by the revocation of it that the log has.
type shows func(c *cloud, r *log.Revocation) seen.Certificate

// old is a certificate of before the revocation.
func old(*cloud, *log.Revocation) seen.Certificate { return seen.Certificate{Serial: "1a"} }

// later names the revocation.
func later(_ *cloud, r *log.Revocation) seen.Certificate {
	return seen.Certificate{Serial: "2b", Created: r.Created, IssuedBefore: r.IssuedBefore}
}

// listed is one that the log lists as good, in the same second.
func listed(c *cloud, _ *log.Revocation) seen.Certificate {
	c.write("c1", `create certificate {"serial":"2b","identity":"cn:`+changetest.UUID(11).String()+`","authority":"clients","issuer":"`+strings.Repeat("ab", 32)+`","key":"`+strings.Repeat("cd", 32)+`","not_before":"2026-01-01T00:00:00Z","not_after":"2036-01-01T00:00:00Z"}`)
	return seen.Certificate{Serial: "2b"}
}

// revoked is a history in which the certificates of cn1 are revoked, which s2 applies, and then
// late entries are written, of which cn1 hears by s2. s2 begins anew after it had applied that, if so.
func revoked(c *cloud, which shows, anew bool) {
	c.write("c1", `create revocation {"subject":"cn:`+changetest.UUID(11).String()+`","reason":"stolen"}`)
	event, err := c.entries[len(c.entries)-1].Event()
	if err != nil {
		c.t.Fatal(err)
	}
	certificate := which(c, event.Object.(*log.Revocation))
	c.add("cn1", seen.StreamBegun{Stream: "cn1", Kind: "feed", Filter: "cn=" + changetest.UUID(11).String(), After: c.cursor(), Held: map[log.Scope]log.Seq{}, Server: "s2", Certificate: certificate})
	c.look()
	c.now += 10 * time.Second
	c.look()
	if anew {
		c.add("s2", seen.Process{State: "started"})
	}
	c.write("c1", `update server #11# {"hostname":"other"}`)
	for i := range 3 {
		edit(c, i, func(e *seen.Entries) { e.Entries = c.entries })
	}
	e := c.entries[len(c.entries)-1]
	c.add("cn1", seen.Item{Stream: "cn1", Seq: e.Seq, Chain: e.Hash.Prefix(), Bytes: e.Bytes})
	c.look()
}

// TestTrouble: what agents with trouble may do and not do.
func TestTrouble(t *testing.T) {
	for name, do := range map[string]func(c *cloud){
		"a certificate ended while the node was cut off": func(c *cloud) {
			ended(c, history.Fault{Kind: history.Cut, On: "cn1", For: time.Second})
		},
		"a disk hangs, and the kernel has all": func(c *cloud) { hung(c, c.cursor().Seq) },
		"a disk hangs, and a server too":       func(c *cloud) { hung(c, 3, history.Fault{Kind: history.Cut, On: "s1", For: time.Second}) },
		"a certificate that names it":          func(c *cloud) { revoked(c, later, false) },
		"one that the log lists":               func(c *cloud) { revoked(c, listed, false) },
		"a server that began anew":             func(c *cloud) { revoked(c, old, true) },
		"a certificate that is not known": func(c *cloud) {
			revoked(c, func(*cloud, *log.Revocation) seen.Certificate { return seen.Certificate{} }, false)
		},
	} {
		c := good(t)
		do(c)
		for _, line := range Judge(c.records) {
			if strings.HasPrefix(line, "cache: ") || strings.HasPrefix(line, "severed: ") || strings.HasPrefix(line, "certified: ") {
				t.Errorf("%s: found %s", name, line)
			}
		}
	}
}

// nodeBreaches are wrong records of compute nodes and of what they were sent.
var nodeBreaches = []breach{
	{"cache", "an agent waits for its disk", func(c *cloud) { hung(c, 3) }},
	{"certified", "a folder was damaged", func(c *cloud) { ended(c, history.Fault{Kind: history.Spoil, On: "cn1", For: time.Second}) }},
	{"severed", "a server goes on to feed a node that was revoked", func(c *cloud) { revoked(c, old, false) }},
	{"severed", "one that was revoked again after it was granted", func(c *cloud) {
		revoked(c, func(c *cloud, r *log.Revocation) seen.Certificate {
			shown := later(c, r)
			c.now += time.Millisecond
			c.write("c1", `update revocation cn:`+changetest.UUID(11).String()+` {"reason":"stolen again"}`)
			return shown
		}, false)
	}},
	{"beyond", "an entry that is in a held scope", func(c *cloud) {
		edit(c, 0, func(e *seen.Scope) { e.AsOf = c.cursor().Seq })
		for i := 1; i < count[seen.Scope](c); i++ {
			edit(c, i, func(e *seen.Scope) { e.AsOf = c.cursor().Seq })
		}
	}},
	{"beyond", "an entry of a scope that a node with a certificate said to hold", func(c *cloud) {
		e := c.entries[4]
		event, err := e.Event()
		if err != nil {
			c.t.Fatal(err)
		}
		held := map[log.Scope]log.Seq{}
		for _, scope := range event.Scopes {
			held[scope] = 1
		}
		c.add("f4", seen.StreamBegun{Stream: "f4", Filter: "cn=" + changetest.UUID(11).String(), Held: held, Known: true})
		c.add("f4", seen.Item{Stream: "f4", Seq: e.Seq, Chain: e.Hash.Prefix(), Bytes: e.Bytes})
	}},
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
