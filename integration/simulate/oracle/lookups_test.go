package oracle

import (
	"slices"
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/changetest"
)

// asks adds entries, and an answer of its SVP about an address of vnet 7, of which its VM has a NIC.
func (c *cloud) asks(answer string, change func(*seen.Lookup)) {
	c.t.Helper()
	for _, text := range []string{
		`create nic_tag {"name":"under","mtu":1600}`, `create nic_tag {"name":"over","mtu":1500}`,
		`create network {"uuid":"#21#","name":"under","nic_tag":"under","vlan_id":0,"subnet":"192.168.0.0/24","provision_start_ip":"192.168.0.5","provision_end_ip":"192.168.0.250","mtu":1600}`,
		`create network {"uuid":"#22#","name":"f","fabric":true,"vnet_id":7,"vlan_id":4,"nic_tag":"over","subnet":"10.7.0.0/24","provision_start_ip":"10.7.0.5","provision_end_ip":"10.7.0.250","mtu":1400,"owner_uuids":["#5#"]}`,
		`create nic {"mac":"02:00:00:00:00:01","belongs_to_type":"server","belongs_to_uuid":"#11#","owner_uuid":"#5#","cn_uuid":"#11#","network_uuid":"#21#","ip":"192.168.0.5","underlay":true,"state":"running"}`,
		`create vm {"uuid":"#31#","alias":"vm","owner_uuid":"#5#","brand":"joyent","state":"running","server_uuid":"#11#"}`,
		`create nic {"mac":"02:00:00:00:00:02","belongs_to_type":"zone","belongs_to_uuid":"#31#","owner_uuid":"#5#","cn_uuid":"#11#","network_uuid":"#22#","ip":"10.7.0.5","state":"running"}`,
	} {
		if w := c.write("c1", text); w.Outcome != seen.Accepted {
			c.t.Fatal(w.Refusal)
		}
	}
	for i := range 3 {
		edit(c, i, func(e *seen.Entries) { e.Entries = slices.Clone(c.entries) })
	}
	c.look()
	e := seen.Lookup{Node: "cn1", CN: changetest.UUID(11), VNet: 7, Key: "10.7.0.5", Answer: answer, From: c.now, Until: c.now + time.Millisecond, After: c.cursor(), Whole: true}
	change(&e)
	c.add("l1", e)
}

const there = "02:00:00:00:00:02 192.168.0.5:4789"

// lookupBreaches are wrong answers of SVP.
var lookupBreaches = []breach{
	{"lookup", "what there is is not found", func(c *cloud) { c.asks("", func(*seen.Lookup) {}) }},
	{"lookup", "another underlay address", func(c *cloud) {
		c.asks("02:00:00:00:00:02 192.168.0.6:4789", func(*seen.Lookup) {})
	}},
	{"lookup", "of another vnet", func(c *cloud) { c.asks(there, func(e *seen.Lookup) { e.VNet = 8 }) }},
	{"lookup", "to a node without a right", func(c *cloud) {
		c.asks(there, func(e *seen.Lookup) { e.CN = changetest.UUID(12) })
	}},
	{"lookup", "a MAC where it is not", func(c *cloud) {
		c.asks("192.168.0.6:4789", func(e *seen.Lookup) { e.Key = "02:00:00:00:00:02" })
	}},
	{"lookup", "of before the bookmark", func(c *cloud) {
		c.asks("", func(e *seen.Lookup) { e.Key = "02:00:00:00:00:02" })
	}},
	{"lookup", "of the future", func(c *cloud) {
		c.asks(there, func(e *seen.Lookup) {
			e.Node, e.After.Seq = "cn2", 9 // it was sent nothing
		})
	}},
	{"lookup", "no answer", func(c *cloud) { c.asks("", func(e *seen.Lookup) { e.Err = "varp: no server answered" }) }},
}

// TestLookupsAllowed: answers that may be.
func TestLookupsAllowed(t *testing.T) {
	for name, do := range map[string]func(c *cloud){
		"as the log has it": func(c *cloud) { c.asks(there, func(*seen.Lookup) {}) },
		"older, and the bookmark as well": func(c *cloud) {
			c.asks("", func(e *seen.Lookup) { e.After = log.Cursor{Cluster: c.cluster, Seq: 9} })
		},
		"a part is held": func(c *cloud) { c.asks("", func(e *seen.Lookup) { e.Whole = false }) },
		"no right":       func(c *cloud) { c.asks("", func(e *seen.Lookup) { e.CN = changetest.UUID(12) }) },
		"a MAC":          func(c *cloud) { c.asks("192.168.0.5:4789", func(e *seen.Lookup) { e.Key = "02:00:00:00:00:02" }) },
		"it was paused": func(c *cloud) {
			c.add("cn1", seen.Fault{Fault: history.Fault{Kind: history.Pause, On: "cn1", For: time.Second}})
			c.asks("", func(e *seen.Lookup) { e.Err = "varp: no server answered" })
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
