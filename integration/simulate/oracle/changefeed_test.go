package oracle

import (
	"testing"

	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/changetest"
)

// place is the cursor of an entry.
func (c *cloud) place(seq log.Seq) log.Cursor {
	return log.Cursor{Cluster: c.cluster, Seq: seq, Chain: c.entries[seq-1].Hash.Prefix()}
}

// listens tells a listener of what was written to the network behind its creation, the third
// entry; cut is after how many items it registers again.
func (c *cloud) listens(cut int) {
	wants := map[string][]string{"network": {"description"}}
	c.add("t1", seen.Registered{Server: "s1", Wants: wants, At: c.place(3)})
	items, at := 0, log.Seq(3)
	for _, e := range c.entries[3:] {
		event, err := e.Event()
		if err != nil {
			c.t.Fatal(err)
		}
		if event.Kind != log.KindNetwork {
			continue
		}
		if items == cut {
			c.add("t1", seen.Registered{Server: "s2", Wants: wants, At: c.place(at), Resumed: true})
		}
		items, at = items+1, e.Seq
		c.add("t1", seen.Told{Resource: "network", ID: net, Subs: seen.Happened(event), At: c.place(e.Seq)})
	}
}

// changefeedBreaches are wrong items of the change feed: a listener is told of three
// changes, and registers again after two.
var changefeedBreaches = []breach{
	{"changefeed", "a change is not told", func(c *cloud) { drop[seen.Told](c, 1) }},
	{"changefeed", "the last change is not told", func(c *cloud) { drop[seen.Told](c, 2) }},
	{"changefeed", "goes on too late", func(c *cloud) {
		edit(c, 1, func(e *seen.Registered) { e.At = c.place(c.cursor().Seq) })
	}},
	{"changefeed", "goes on too early", func(c *cloud) { edit(c, 1, func(e *seen.Registered) { e.At = c.place(1) }) }},
	{"changefeed", "goes on in another timeline", func(c *cloud) {
		edit(c, 1, func(e *seen.Registered) { e.At.Cluster = changetest.UUID(96) })
	}},
	{"changefeed", "begins anew without a reason", func(c *cloud) {
		edit(c, 1, func(e *seen.Registered) { e.Resumed = false })
	}},
	{"changefeed", "a new one goes on", func(c *cloud) { edit(c, 0, func(e *seen.Registered) { e.Resumed = true }) }},
	{"changefeed", "before it registered", func(c *cloud) { drop[seen.Registered](c, 0) }},
	{"changefeed", "twice", func(c *cloud) {
		var again seen.Told
		edit(c, 2, func(e *seen.Told) { again = *e })
		c.add("t1", again)
	}},
	{"changefeed", "of another log", func(c *cloud) { edit(c, 1, func(e *seen.Told) { e.At.Chain[0] ^= 1 }) }},
	{"changefeed", "of another object", func(c *cloud) { edit(c, 1, func(e *seen.Told) { e.ID = "x" }) }},
	{"changefeed", "something else happened", func(c *cloud) { edit(c, 1, func(e *seen.Told) { e.Subs = []string{"mtu"} }) }},
	{"changefeed", "it is not wanted", func(c *cloud) {
		edit(c, 0, func(e *seen.Registered) { e.Wants = map[string][]string{"network": {"mtu"}} })
	}},
	{"changefeed", "of an entry that there is not", func(c *cloud) {
		edit(c, 2, func(e *seen.Told) { e.At.Seq = c.cursor().Seq + 9 })
	}},
}

// TestChangefeedAllowed: a listener is told why it begins anew, and misses what was before.
func TestChangefeedAllowed(t *testing.T) {
	c := good(t)
	edit(c, 1, func(e *seen.Registered) { e.Resumed, e.Reason = false, "the log no longer keeps it" })
	drop[seen.Told](c, 1)
	if found := Judge(c.records); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}
