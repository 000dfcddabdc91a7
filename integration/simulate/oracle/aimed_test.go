package oracle

import (
	"strings"
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/changetest"
)

// quiet lets a time pass without an accepted write, with faults that begin now and last as long.
func quiet(c *cloud, d time.Duration, faults ...history.Fault) {
	for _, f := range faults {
		c.add(f.On, seen.Fault{Fault: f})
	}
	c.now += d
	for _, f := range faults {
		c.add(f.On, seen.Fault{Fault: f, Over: true})
	}
	c.now += settling
	c.add("world", seen.Process{State: "the faults are over"})
}

// forgotten sends the first change again after a time, and it is refused as too old.
func forgotten(c *cloud, after time.Duration, count int) {
	var first seen.Write
	edit(c, 0, func(e *seen.Write) { first = *e })
	c.add("world", seen.Remembered{Age: history.WindowAge, Count: count})
	first.Outcome, first.Refusal, first.Result = seen.Refused, &log.Refusal{Code: log.CodeTooOld}, log.Result{}
	first.From = first.From + after
	first.Until = first.From
	c.add("c1", first)
}

var (
	hangsFirst  = history.Fault{Kind: history.Hang, On: "s1", For: time.Second}
	hangsSecond = history.Fault{Kind: history.Hang, On: "s2", For: time.Second}
	cutPair     = history.Fault{Kind: history.Cut, On: "s1", To: "s2", For: time.Second}
	cutOther    = history.Fault{Kind: history.Cut, On: "s3", To: "s1", For: time.Second}
	killsFirst  = history.Fault{Kind: history.Kill, On: "s1", For: time.Second}
	killsAgent  = history.Fault{Kind: history.Kill, On: "cn1", For: time.Second}
)

// reused sends another change under the id of the first one, which is accepted.
func reused(c *cloud) {
	var first seen.Write
	edit(c, 0, func(e *seen.Write) { first = *e })
	c.add("c1", seen.Write{Surface: SurfaceReused, Change: log.Change{ID: first.Change.ID}, From: c.now, Until: c.now, Outcome: seen.Accepted, Result: log.Result{First: 3, Last: 3, Events: 1}})
}

// aimedBreaches are those of the oracles that aimed histories need.
var aimedBreaches = []breach{
	{"window", "too many ids", func(c *cloud) {
		c.add("s1", seen.Remembered{Age: history.WindowAge, Count: 3, IDs: 4, Looked: true})
	}},
	{"window", "old ids", func(c *cloud) {
		c.now += time.Minute
		c.add("s1", seen.Remembered{Age: history.WindowAge, Count: 1000, IDs: 40, Looked: true})
	}},
	{"window", "another change's id", func(c *cloud) {
		reused(c)
	}},
	{"window", "an id from ahead", func(c *cloud) {
		edit(c, 0, func(e *seen.Write) { e.Surface = SurfaceAhead })
	}},
	{"window", "forgotten early", func(c *cloud) { forgotten(c, history.WindowAge/2, 1000) }},
	{"cursor", "followed", func(c *cloud) {
		c.add("p1", seen.Probe{Server: "s1", What: "beyond the end", Cursor: c.cursor(), Followed: true})
	}},
	{"available", "no trouble", func(c *cloud) { quiet(c, 2*Outage) }},
	{"available", "one disk", func(c *cloud) { quiet(c, 2*Outage, hangsFirst) }},
	{"available", "two ways of one server", func(c *cloud) { quiet(c, 2*Outage, cutPair, cutOther) }},
	{"available", "an agent", func(c *cloud) { quiet(c, 2*Outage, killsAgent) }},
	{"election", "late", func(c *cloud) {
		c.now += 2*Replaced + settling
		c.add("s1", seen.Succession{By: "s2", Took: Replaced + 1})
	}},
	{"election", "a process", func(c *cloud) {
		c.now += settling
		c.add("s1", seen.Fault{Fault: killsFirst})
		c.now += 2 * ReplacedAtOnce
		c.add("s1", seen.Succession{How: history.Kill, By: "s2", Took: 2 * ReplacedAtOnce})
		c.add("s1", seen.Fault{Fault: killsFirst, Over: true})
	}},
	{"election", "never", func(c *cloud) {
		c.now += 2*Replaced + settling
		c.add("s1", seen.Succession{Took: 2 * Replaced})
	}},
}

// TestAllowedAimed: what may be, and looks like a breach of these oracles.
func TestAllowedAimed(t *testing.T) {
	for name, do := range map[string]func(c *cloud){
		"as many ids as are young": func(c *cloud) {
			c.add("s1", seen.Remembered{Age: history.WindowAge, Count: 1000, IDs: 5, Looked: true})
		},
		"a change that was forgotten in time":          func(c *cloud) { forgotten(c, 2*history.WindowAge, 1000) },
		"a change that was forgotten for lack of room": func(c *cloud) { forgotten(c, history.WindowAge/2, 3) },
		"a client's own second try is forgotten already, and the first is done": func(c *cloud) {
			edit(c, 2, func(e *seen.Write) { e.Outcome, e.Refusal = seen.Refused, &log.Refusal{Code: log.CodeTooOld} })
		},
		"an id of a change that a restore took away": func(c *cloud) {
			c.now += time.Second
			c.add("s1", seen.Restored{To: c.cursor()})
			c.now += time.Second
			reused(c)
		},
		"another change's id is refused": func(c *cloud) {
			c.add("c1", seen.WriteBegun{Surface: SurfaceReused, Change: log.Change{ID: changetest.UUID(1)}})
			c.add("c1", seen.Write{Surface: SurfaceReused, Outcome: seen.Refused, Refusal: &log.Refusal{Code: log.CodeIDReused}, Change: log.Change{ID: changetest.UUID(1)}})
		},
		"a place that was refused": func(c *cloud) { c.add("p1", seen.Probe{Server: "s1", What: "beyond the end", Err: "it is"}) },
		"an agent is reset": func(c *cloud) {
			c.add("cn1", seen.Reset{Stream: "cn1", Reason: "compacted"})
			c.add("cn1", seen.Agent{Head: log.Cursor{Cluster: c.cluster}})
			c.add("cn1", seen.Agent{Head: c.cursor(), Programmed: c.cursor(), Complete: true})
		},
		"no writes for a while": func(c *cloud) { quiet(c, Outage/10) },
		"two disks":             func(c *cloud) { quiet(c, 2*Outage, hangsFirst, hangsSecond) },
		"a way between two others": func(c *cloud) {
			quiet(c, 2*Outage, history.Fault{Kind: history.Cut, On: "s2", To: "s3", For: 1}, hangsFirst)
		},
		"a restore":                 func(c *cloud) { quiet(c, 2*Outage, history.Fault{Kind: history.Restore, On: "s1"}) },
		"a client that is cut off":  func(c *cloud) { quiet(c, 2*Outage, history.Fault{Kind: history.Cut, On: "c1", For: 1}) },
		"a leader replaced in time": func(c *cloud) { c.add("s1", seen.Succession{By: "s2", Took: Replaced}) },
		"a leader replaced late, in trouble": func(c *cloud) {
			c.add("s2", seen.Fault{Fault: hangsSecond})
			c.now += 2 * Replaced
			c.add("s1", seen.Succession{By: "s2", Took: 2 * Replaced})
			c.add("s2", seen.Fault{Fault: hangsSecond, Over: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := good(t)
			do(c)
			if found := Judge(c.records); len(found) > 0 {
				t.Errorf("found %s", strings.Join(found, "\n"))
			}
		})
	}
}
