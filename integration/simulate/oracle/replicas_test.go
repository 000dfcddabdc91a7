package oracle

import (
	"strings"
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// lags is a history in which the replica n1, which feeds cn1, stays where it was while the log goes
// on. At the last look it says why it is not ready, and cn1 gets a bookmark of it later.
func lags(c *cloud, ready string, later time.Duration, other ...history.Fault) {
	c.look()
	at := c.cursor()
	show := func(at log.Cursor, ready string) { c.add("n1", seen.Server{Replica: true, Head: at, Ready: ready}) }
	show(at, "")
	c.add("cn1", seen.StreamBegun{Stream: "cn1", Kind: "feed", Filter: "cn=" + changetestCN, Held: map[log.Scope]log.Seq{}, Server: "n1", After: at})
	for _, f := range other {
		c.add(f.On, seen.Fault{Fault: f})
	}
	c.write("c1", `create nic_tag {"name":"late"}`)
	for i := range 3 {
		edit(c, i, func(e *seen.Entries) { e.Entries = c.entries })
	}
	c.look()
	c.now += Lagging + time.Second
	show(at, ready)
	c.now += later
	c.add("cn1", seen.Bookmark{Stream: "cn1", Seq: at.Seq, Chain: at.Chain})
	show(c.cursor(), "")
	c.look()
}

const changetestCN = "00000000-0000-0000-0000-00000000000b"

// replicaBreaches are wrong records of servers without a vote.
var replicaBreaches = []breach{
	{"replica", "it is behind and says that it is ready", func(c *cloud) { lags(c, "", 0) }},
	{"replica", "it is behind and feeds a node", func(c *cloud) { lags(c, "it lags", Left+time.Second) }},
	{"available", "a replica was killed", func(c *cloud) {
		quiet(c, 2*Outage, history.Fault{Kind: history.Kill, On: "n1", For: 1}, history.Fault{Kind: history.Lose, On: "n2", For: 1}, history.Fault{Kind: history.Remove, On: "n1", For: 1})
	}},
	{"available", "ways of replicas", func(c *cloud) {
		quiet(c, 2*Outage, history.Fault{Kind: history.Cut, On: "s1", To: "n1", For: 1}, history.Fault{Kind: history.Cut, On: "n2", To: "s2", For: 1})
	}},
	{"available", "a replica was killed, and a server", func(c *cloud) {
		quiet(c, 2*Outage, history.Fault{Kind: history.Kill, On: "n1", For: 1}, hangsFirst)
	}},
}

// TestReplicasAllowed: what may be of servers without a vote.
func TestReplicasAllowed(t *testing.T) {
	for name, do := range map[string]func(c *cloud){
		"it says that it lags, and what it sent comes late": func(c *cloud) { lags(c, "it lags", Left-time.Second) },
		"what it sent comes after a pause of the node": func(c *cloud) {
			lags(c, "it lags", Left+time.Second, history.Fault{Kind: history.Pause, On: "cn1", For: time.Second})
		},
		"it was given a vote": func(c *cloud) {
			quiet(c, 2*Outage, history.Fault{Kind: history.Promote, On: "n1", For: 1}, history.Fault{Kind: history.Kill, On: "n1", For: 1}, hangsFirst)
		},
	} {
		c := good(t)
		do(c)
		for _, line := range Judge(c.records) {
			if strings.HasPrefix(line, "replica: ") || strings.HasPrefix(line, "available: ") {
				t.Errorf("%s: found %s", name, line)
			}
		}
	}
}
