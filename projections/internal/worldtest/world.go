// Package worldtest has what tests of this folder share: a small cloud that is built
// of operations written as text, each decided and applied, and random operations on
// few objects. How changes are decided is given by the test.
package worldtest

import (
	"bytes"
	"fmt"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
)

// World is a state with the log that made it.
type World struct {
	T      changetest.Tester
	State  *projections.State
	Events []*log.Event
	Now    log.Time
	// Seen, if not nil, is told of each event after it was applied.
	Seen func(log.Seq, *log.Event, projections.Delta)

	n      uint64 // changes so far
	decide Decide
}

// Decide decides a change against a state: rules.Decide.
type Decide func(*projections.State, *log.Change) ([]*log.Event, log.Result)

// New returns a world without objects.
func New(t changetest.Tester, decide Decide) *World {
	return &World{T: t, State: projections.NewState(), Now: 1e9, decide: decide}
}

func (w *World) Change(ops ...log.Op) *log.Change {
	w.n++
	w.Now += 1e6
	changeID := changetest.UUID(w.n)
	changeID[0] = 0xc0
	return &log.Change{ID: changeID, Actor: "changetest.Tester", Time: w.Now, Seed: w.n, Ops: ops}
}

// Try decides a change, checks what must hold of every decision, and applies
// its events.
func (w *World) Try(c *log.Change) log.Result {
	w.T.Helper()
	before := w.State.Dump()
	events, result := w.decide(w.State, c)
	again, second := w.decide(w.State, c)
	if !bytes.Equal(Encoded(w.T, events, result), Encoded(w.T, again, second)) {
		w.T.Fatalf("decided twice, %+v came to\n%+v\n%+v", c, result, second)
	}
	if after := w.State.Dump(); !bytes.Equal(before, after) {
		w.T.Fatalf("Decide changed the state from\n%s\nto\n%s", before, after)
	}
	if (result.Refusal != nil) == (result.IDs != nil) || result.Refusal != nil && events != nil {
		w.T.Fatalf("result %+v has %d events", result, len(events))
	}
	for i, e := range events {
		w.Apply(c, e, len(events)-1-i)
	}
	return result
}

// Encoded returns the bytes that servers compare.
func Encoded(t changetest.Tester, events []*log.Event, result log.Result) []byte {
	encoder := log.NewEncoder()
	out, err := encoder.Result(&result)
	if err != nil {
		t.Fatal(err)
	}
	out = bytes.Clone(out)
	for _, e := range events {
		b, err := encoder.Event(e)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

func (w *World) Apply(c *log.Change, e *log.Event, more int) {
	w.T.Helper()
	if e.ChangeID != c.ID || e.Actor != c.Actor || int(e.More) != more || e.Time != w.State.Time() && e.Time < c.Time {
		w.T.Fatalf("event %+v does not fit its change %+v, %d more", e, c, more)
	}
	raw, err := log.NewEncoder().Event(e)
	if err != nil {
		w.T.Fatal(err)
	}
	if e, err = log.DecodeEvent(raw); err != nil {
		w.T.Fatal(err)
	}
	before, held := w.State.Get(e.Kind, e.ID)
	if e.Action == log.Update {
		was, err := log.Revert(e.Object, e.Changed)
		if err != nil || !held || !log.Equal(was, before.Object) {
			w.T.Fatalf("event %+v reverts to %+v, %v; want %+v", e, was, err, before.Object)
		}
	}
	if e.Revision != before.Revision+1 {
		w.T.Fatalf("event %+v follows revision %d", e, before.Revision)
	}
	w.Events = append(w.Events, e)
	delta, err := w.State.Apply(log.Seq(len(w.Events)), e)
	if err != nil {
		w.T.Fatal(err)
	}
	if w.Seen != nil {
		w.Seen(log.Seq(len(w.Events)), e, delta)
	}
}

// Must makes one change of the operations, which must be accepted.
func (w *World) Must(texts ...string) log.Result {
	w.T.Helper()
	ops := make([]log.Op, len(texts))
	for i, text := range texts {
		ops[i] = changetest.Op(w.T, text)
	}
	result := w.Try(w.Change(ops...))
	if result.Refusal != nil {
		w.T.Fatalf("%s: %v", texts, result.Refusal)
	}
	return result
}

// Settled is a small cloud: #1# and #2# own fabrics on vnets 10 and 20 with one
// subnet, #11# and #12# are CNs with underlay addresses, #21# is a VM on #11#
// and #22# one on #12#, both with a NIC on the first fabric.
func Settled(t changetest.Tester, decide Decide) *World {
	w := New(t, decide)
	w.Must(`create nic_tag {"name": "external", "uuid": "#90#"}`)
	w.Must(`create nic_tag {"name": "overlay", "uuid": "#91#", "mtu": 9000}`)
	w.Must(`create network {"uuid": "#30#", "name": "underlay", "nic_tag": "external", "vlan_id": 4, "subnet": "192.168.0.0/24", "gateway": "192.168.0.1"}`)
	w.Must(`create network {"uuid": "#31#", "name": "one", "nic_tag": "overlay", "vlan_id": 2, "subnet": "10.0.0.0/24", "gateway": "10.0.0.1",
		"resolvers": ["10.0.0.2", "8.8.8.8"], "routes": {"10.9.0.0/16": "10.0.0.9"}, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`)
	w.Must(`create network {"uuid": "#32#", "name": "two", "nic_tag": "overlay", "subnet": "10.0.0.0/24", "provision_start_ip": "10.0.0.10",
		"provision_end_ip": "10.0.0.11", "owner_uuids": ["#2#"], "fabric": true, "vnet_id": 20}`)
	for n := range 2 {
		w.Must(fmt.Sprintf(`create server {"uuid": "#%d#", "hostname": "cn%d"}`, 11+n, n+1),
			fmt.Sprintf(`create nic {"mac": "00:00:00:00:01:0%d", "belongs_to_type": "server", "belongs_to_uuid": "#%d#", "owner_uuid": "#1#",
				"network_uuid": "#30#", "underlay": true, "nic_tags_provided": ["external"]}`, n, 11+n))
		w.Must(fmt.Sprintf(`create vm {"uuid": "#%d#", "owner_uuid": "#1#", "server_uuid": "#%d#", "state": "running"}`, 21+n, 11+n),
			fmt.Sprintf(`create nic {"mac": "00:00:00:00:02:0%d", "belongs_to_type": "zone", "belongs_to_uuid": "#%d#", "owner_uuid": "#1#",
				"network_uuid": "#31#", "primary": true}`, n, 21+n))
	}
	return w
}
