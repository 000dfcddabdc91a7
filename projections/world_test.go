package projections

import (
	"bytes"
	"fmt"
	"strings"

	"rutter/log"
)

// world is a state with the log that made it.
type world struct {
	t      tester
	s      *State
	events []*log.Event
	now    log.Time
	n      uint64 // changes so far
	// seen, if not nil, is told of each event after it was applied.
	seen func(log.Seq, *log.Event, Delta)
}

func newWorld(t tester) *world { return &world{t: t, s: NewState(), now: 1e9} }

// id returns the UUID whose last bytes are n.
func id(n uint64) log.UUID {
	var u log.UUID
	for i := range 8 {
		u[15-i] = byte(n >> (8 * i))
	}
	return u
}

// parse reads an operation: "create network {...}", "update network ID {...}",
// "update nic ID @3 {...}", "delete nic ID". In it #7 stands for the UUID id(7).
func parse(t tester, text string) log.Op {
	t.Helper()
	for n := range uint64(100) {
		text = strings.ReplaceAll(text, fmt.Sprintf("#%d#", n), id(n).String())
	}
	head, body, hasBody := strings.Cut(text, "{")
	words := strings.Fields(head)
	action, err := log.ParseAction(words[0])
	if err != nil {
		t.Fatal(err)
	}
	kind, err := log.ParseKind(words[1])
	if err != nil {
		t.Fatal(err)
	}
	op := log.Op{Action: action, Kind: kind}
	for _, word := range words[2:] {
		if strings.HasPrefix(word, "@") {
			fmt.Sscanf(word, "@%d-%d", &op.IfMatch, &op.IfSeq) // or the revision alone
		} else {
			op.ID = word
		}
	}
	if hasBody {
		if op.Object, op.Set, err = log.ParseObject(kind, []byte("{"+body)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return op
}

func (w *world) change(ops ...log.Op) *log.Change {
	w.n++
	w.now += 1e6
	changeID := id(w.n)
	changeID[0] = 0xc0
	return &log.Change{ID: changeID, Actor: "tester", Time: w.now, Seed: w.n, Ops: ops}
}

// try decides a change, checks what must hold of every decision, and applies
// its events.
func (w *world) try(c *log.Change) log.Result {
	w.t.Helper()
	before := w.s.Dump()
	events, result := w.s.Decide(c)
	again, second := w.s.Decide(c)
	if !bytes.Equal(encoded(w.t, events, result), encoded(w.t, again, second)) {
		w.t.Fatalf("decided twice, %+v came to\n%+v\n%+v", c, result, second)
	}
	if after := w.s.Dump(); !bytes.Equal(before, after) {
		w.t.Fatalf("Decide changed the state from\n%s\nto\n%s", before, after)
	}
	if (result.Refusal != nil) == (result.IDs != nil) || result.Refusal != nil && events != nil {
		w.t.Fatalf("result %+v has %d events", result, len(events))
	}
	for i, e := range events {
		w.apply(c, e, len(events)-1-i)
	}
	return result
}

// encoded returns the bytes that servers compare.
func encoded(t tester, events []*log.Event, result log.Result) []byte {
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

func (w *world) apply(c *log.Change, e *log.Event, more int) {
	w.t.Helper()
	if e.ChangeID != c.ID || e.Actor != c.Actor || int(e.More) != more || e.Time != w.s.Time() && e.Time < c.Time {
		w.t.Fatalf("event %+v does not fit its change %+v, %d more", e, c, more)
	}
	raw, err := log.NewEncoder().Event(e)
	if err != nil {
		w.t.Fatal(err)
	}
	if e, err = log.DecodeEvent(raw); err != nil {
		w.t.Fatal(err)
	}
	before, held := w.s.Get(e.Kind, e.ID)
	if e.Action == log.Update {
		was, err := log.Revert(e.Object, e.Changed)
		if err != nil || !held || !log.Equal(was, before.Object) {
			w.t.Fatalf("event %+v reverts to %+v, %v; want %+v", e, was, err, before.Object)
		}
	}
	if e.Revision != before.Revision+1 {
		w.t.Fatalf("event %+v follows revision %d", e, before.Revision)
	}
	w.events = append(w.events, e)
	delta, err := w.s.Apply(log.Seq(len(w.events)), e)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.seen != nil {
		w.seen(log.Seq(len(w.events)), e, delta)
	}
}

// must makes one change of the operations, which must be accepted.
func (w *world) must(texts ...string) log.Result {
	w.t.Helper()
	ops := make([]log.Op, len(texts))
	for i, text := range texts {
		ops[i] = parse(w.t, text)
	}
	result := w.try(w.change(ops...))
	if result.Refusal != nil {
		w.t.Fatalf("%s: %v", texts, result.Refusal)
	}
	return result
}

// settled is a small cloud: #1# and #2# own fabrics on vnets 10 and 20 with one
// subnet, #11# and #12# are CNs with underlay addresses, #21# is a VM on #11#
// and #22# one on #12#, both with a NIC on the first fabric.
func settled(t tester) *world {
	w := newWorld(t)
	w.must(`create nic_tag {"name": "external", "uuid": "#90#"}`)
	w.must(`create nic_tag {"name": "overlay", "uuid": "#91#", "mtu": 9000}`)
	w.must(`create network {"uuid": "#30#", "name": "underlay", "nic_tag": "external", "vlan_id": 4, "subnet": "192.168.0.0/24", "gateway": "192.168.0.1"}`)
	w.must(`create network {"uuid": "#31#", "name": "one", "nic_tag": "overlay", "vlan_id": 2, "subnet": "10.0.0.0/24", "gateway": "10.0.0.1",
		"resolvers": ["10.0.0.2", "8.8.8.8"], "routes": {"10.9.0.0/16": "10.0.0.9"}, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`)
	w.must(`create network {"uuid": "#32#", "name": "two", "nic_tag": "overlay", "subnet": "10.0.0.0/24", "provision_start_ip": "10.0.0.10",
		"provision_end_ip": "10.0.0.11", "owner_uuids": ["#2#"], "fabric": true, "vnet_id": 20}`)
	for n := range 2 {
		w.must(fmt.Sprintf(`create server {"uuid": "#%d#", "hostname": "cn%d"}`, 11+n, n+1),
			fmt.Sprintf(`create nic {"mac": "00:00:00:00:01:0%d", "belongs_to_type": "server", "belongs_to_uuid": "#%d#", "owner_uuid": "#1#",
				"network_uuid": "#30#", "underlay": true, "nic_tags_provided": ["external"]}`, n, 11+n))
		w.must(fmt.Sprintf(`create vm {"uuid": "#%d#", "owner_uuid": "#1#", "server_uuid": "#%d#", "state": "running"}`, 21+n, 11+n),
			fmt.Sprintf(`create nic {"mac": "00:00:00:00:02:0%d", "belongs_to_type": "zone", "belongs_to_uuid": "#%d#", "owner_uuid": "#1#",
				"network_uuid": "#31#", "primary": true}`, n, 21+n))
	}
	return w
}
