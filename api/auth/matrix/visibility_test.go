package matrix

import (
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// TestVisibility: what an identity sees of objects and events whose rows say Own.
func TestVisibility(t *testing.T) {
	mine, theirs := log.UUID{1}, log.UUID{2}
	here, there := log.UUID{3}, log.UUID{4}
	vm := func(id byte, owner, cn log.UUID) *log.VM {
		return &log.VM{UUID: log.UUID{9, id}, OwnerUUID: owner, ServerUUID: cn, Properties: `{"internal_metadata":{"secret":"x"},"tags":{"a":"b"}}`}
	}
	state := projections.NewState()
	own, other := vm(1, mine, here), vm(2, theirs, there)
	for seq, o := range []log.Object{own, other} {
		if err := state.Load(projections.Record{Object: o, Revision: 1, Seq: log.Seq(seq + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	node, tenant := Identity{Role: CN, UUID: here}, Identity{Role: Reader, Name: "r", Owners: []log.UUID{mine}}
	for _, c := range []struct {
		name string
		who  Identity
		a    Decision
		o    log.Object
		want bool
	}{
		{"a node its VM", node, Own, own, true},
		{"a node another's VM", node, Own, other, false},
		{"a tenant its VM", tenant, Own, own, true},
		{"a tenant another's VM", tenant, Own, other, false},
		{"a tenant what has no owner", tenant, Own, &log.Server{UUID: here}, false},
		{"a reader of all", Identity{Role: Reader, Name: "r"}, Allow, other, true},
		{"who is denied", tenant, Deny, own, false},
	} {
		if got := Sees(c.who, c.a, state, c.o); got != c.want {
			t.Errorf("%s: sees %v, want %v", c.name, got, c.want)
		}
	}
	gave, took := *own, *other
	gave.OwnerUUID, took.OwnerUUID = theirs, mine
	event := func(before, after log.Object) *log.Event {
		return &log.Event{Action: log.Update, Kind: log.KindVM, ID: after.ID(), Object: after, Changed: log.Diff(before, after)}
	}
	for name, c := range map[string]struct {
		e    *log.Event
		want bool
	}{
		"what it gave away":      {event(own, &gave), true},
		"what it was given":      {event(other, &took), true},
		"what it has":            {event(&took, own), true},
		"what is another's":      {event(other, &gave), false},
		"a node and its servers": {&log.Event{Action: log.Update, Kind: log.KindServer, ID: here.String(), Object: &log.Server{UUID: here}}, false},
	} {
		if got := SeesEvent(tenant, Own, c.e); got != c.want {
			t.Errorf("a tenant sees the event of %s: %v, want %v", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		who  Identity
		a    Decision
		want bool
	}{"an operator": {Identity{Role: Operator}, Allow, true}, "a reader of all": {Identity{Role: Reader}, Allow, true}, "a node": {node, Own, true}, "a tenant": {tenant, Own, false}} {
		o, e := Shown(c.who, c.a, own).(*log.VM), ShownEvent(c.who, c.a, event(own, &gave))
		if got := strings.Contains(o.Properties, "secret"); got != c.want || !strings.Contains(o.Properties, "tags") {
			t.Errorf("%s sees the internal_metadata of a VM: %v, want %v: %s", name, got, c.want, o.Properties)
		}
		if got := strings.Contains(e.Object.(*log.VM).Properties, "secret"); got != c.want {
			t.Errorf("%s sees the internal_metadata in an event of a VM: %v, want %v", name, got, c.want)
		}
	}
	if SeesEvent(node, Own, event(other, &took)) {
		t.Error("a node sees an event outside of its feed")
	}
}

// TestNoRowAllowsNothing: what the matrix does not have is denied, except on the machine itself;
// and a program of an address writes only if its listener says so.
func TestNoRowAllowsNothing(t *testing.T) {
	for _, role := range append(Roles(), None) {
		if a, refusal := Decide(Identity{Role: role, Name: "x"}, "GET /new", nil); (a == Allow) != (role == Local) || (refusal == nil) != (role == Local) {
			t.Errorf("%s: what has no row: %s, %v", role, a, refusal)
		}
	}
	row := &Row{What: "POST /x", Decisions: writes}
	for _, write := range []bool{false, true} {
		if got := row.For(Identity{Role: Foreign, Name: "10.0.0.1", Write: write}) == Allow; got != write {
			t.Errorf("a program whose listener lets it write: %v; allowed: %v", write, got)
		}
	}
}
