package oracle

import (
	"slices"
	"testing"

	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/changetest"
)

// reports adds a NIC that compute node 11 reports, and what its agent was told of it. change may
// make the report wrong; actor is the author in the log.
func (c *cloud) reports(actor, text string, change func(*seen.Reported)) {
	c.t.Helper()
	w := c.write(actor, text)
	if w.Outcome != seen.Accepted {
		c.t.Fatal(w.Refusal)
	}
	drop[seen.Write](c, count[seen.Write](c)-1) // it was no client's
	drop[seen.WriteBegun](c, count[seen.WriteBegun](c)-1)
	e := seen.Reported{CN: changetest.UUID(11), Change: w.Change, Outcome: seen.Accepted, Last: w.Result.Last}
	change(&e)
	c.add("cn1", e)
	for i := range 3 {
		edit(c, i, func(e *seen.Entries) { e.Entries = slices.Clone(c.entries) })
	}
	c.look()
}

// ownNIC is a NIC on node 11, and otherNIC one on node 12.
const (
	ownNIC   = `create nic {"mac":"02:00:00:00:00:03","belongs_to_type":"other","belongs_to_uuid":"#31#","owner_uuid":"#5#","cn_uuid":"#11#","state":"running"}`
	otherNIC = `create nic {"mac":"02:00:00:00:00:04","belongs_to_type":"other","belongs_to_uuid":"#32#","owner_uuid":"#5#","cn_uuid":"#12#","state":"running"}`
	author   = "cn:00000000-0000-0000-0000-00000000000b"
)

// reportBreaches are wrong reports.
var reportBreaches = []breach{
	{"report", "it is lost", func(c *cloud) {
		c.reports(author, ownNIC, func(e *seen.Reported) { e.Change.ID = changetest.UUID(98) })
	}},
	{"report", "it is elsewhere", func(c *cloud) { c.reports(author, ownNIC, func(e *seen.Reported) { e.Last-- }) }},
	{"report", "it was refused", func(c *cloud) {
		c.reports(author, ownNIC, func(e *seen.Reported) { e.Outcome = seen.Refused })
	}},
	{"report", "it is of another node", func(c *cloud) { c.reports(author, otherNIC, func(*seen.Reported) {}) }},
	{"report", "it takes the NIC of another node", func(c *cloud) {
		c.write("c1", otherNIC)
		c.reports(author, `update nic 02:00:00:00:00:04 {"cn_uuid":"#11#"}`, func(*seen.Reported) {})
	}},
	{"report", "it deletes the NIC of another node", func(c *cloud) {
		c.write("c1", otherNIC)
		c.reports(author, `delete nic 02:00:00:00:00:04`, func(*seen.Reported) {})
	}},
	{"report", "it is done twice", func(c *cloud) {
		c.reports(author, ownNIC, func(*seen.Reported) {})
		c.write("c1", `create nic_tag {"name":"between","mtu":1500}`)
		for i := range 3 {
			edit(c, i, func(e *seen.Entries) {
				again := c.entries[len(c.entries)-2]
				again.Seq = c.cursor().Seq + 1
				again.Hash = c.hash.Next(again.Seq, again.Bytes)
				e.Entries = append(slices.Clone(c.entries), again)
			})
		}
	}},
}

// TestReportsAllowed: reports that may be.
func TestReportsAllowed(t *testing.T) {
	for name, do := range map[string]func(c *cloud){
		"accepted": func(c *cloud) { c.reports(author, ownNIC, func(*seen.Reported) {}) },
		"unknown, and then refused": func(c *cloud) {
			c.reports(author, ownNIC, func(e *seen.Reported) { e.Outcome = seen.Unknown })
			var again seen.Reported
			edit(c, -1, func(e *seen.Reported) { again = *e })
			again.Outcome = seen.Refused
			c.add("cn1", again)
		},
		"changed nothing": func(c *cloud) {
			c.add("cn1", seen.Reported{Outcome: seen.Accepted, Last: 4, Change: log.Change{ID: changetest.UUID(98), Ops: []log.Op{{Action: log.Update}}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := good(t)
			do(c)
			if found := Judge(c.records); len(found) > 0 {
				t.Errorf("found %q", found)
			}
		})
	}
}
