package log_test

import (
	"encoding/json"
	"fmt"

	"rutter/log"
)

// tag is the state of a NIC tag after an update of its MTU.
func tag() (*log.NICTag, log.Entry) {
	before := &log.NICTag{Name: "external", UUID: log.UUID{15: 1}, MTU: 1500}
	after := log.Clone(before).(*log.NICTag)
	after.MTU = 9000
	event := &log.Event{
		Kind: log.KindNICTag, Action: log.Update, ID: after.ID(), Revision: 2, Time: 1795251600000000000, Actor: "operator:ada",
		Scopes: []log.Scope{log.AllScope()}, Object: after, Changed: log.Diff(before, after),
	}
	b, err := log.NewEncoder().Event(event)
	if err != nil {
		panic(err)
	}
	return before, log.Entry{Seq: 7, Hash: log.Hash{}.Next(7, b), Bytes: b}
}

// An entry has its event as the bytes that are stored, sent and hashed.
func ExampleEntry_Event() {
	_, entry := tag()
	event, err := entry.Event()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(entry.Seq, event.Time, event.Action, event.Kind, event.ID, "by", event.Actor)
	for _, change := range event.Changed {
		now, _ := log.Field(event.Object, change.Path)
		fmt.Println(change.Path, "changed:", change.Old, "->", now)
	}
	// Output:
	// 7 2026-11-21T09:00:00.000Z update nic_tag external by operator:ada
	// mtu changed: 1500 -> 9000
}

// An event can be folded backwards: what the object was before.
func ExampleRevert() {
	before, entry := tag()
	event, err := entry.Event()
	if err != nil {
		fmt.Println(err)
		return
	}
	was, err := log.Revert(event.Object, event.Changed)
	fmt.Println(log.Equal(was, before), err)
	// Output: true <nil>
}

// A fold of the log keeps each object as its last event left it.
func Example_fold() {
	_, entry := tag()
	state := map[string]log.Object{}
	for _, e := range []log.Entry{entry} {
		event, err := e.Event()
		if err != nil {
			fmt.Println(err)
			return
		}
		key := event.Kind.String() + " " + event.ID
		if event.Action == log.Delete {
			delete(state, key)
			continue
		}
		state[key] = event.Object
	}
	b, err := json.Marshal(state["nic_tag external"])
	fmt.Println(string(b), err)
	// Output: {"name":"external","uuid":"00000000-0000-0000-0000-000000000001","mtu":9000} <nil>
}

// ParseObject reads what a client sent, and says which fields it had.
func ExampleParseObject() {
	object, given, err := log.ParseObject(log.KindNICTag, []byte(`{"name": "external", "mtu": 9000}`))
	fmt.Println(object.ID(), given, err)
	_, _, err = log.ParseObject(log.KindNICTag, []byte(`{"name": "external", "mtu": "much"}`))
	fmt.Println(err)
	// Output:
	// external [mtu name] <nil>
	// InvalidParameters: Invalid parameters; mtu: got a JSON string (send a whole number of 0 or more)
}

// A change is what a client asks for. Its encoded form is what a server takes.
func ExampleEncoder_Change() {
	id, err := log.ParseUUID("0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6")
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := log.NewEncoder().Change(&log.Change{ID: id, Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: "external", MTU: 9000}, Set: []string{"mtu", "name"},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	change, err := log.DecodeChange(b)
	fmt.Println(change.ID, change.Ops[0].Action, change.Ops[0].Object.ID(), err)
	// Output: 0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6 create external <nil>
}

// The table of kinds says what there is.
func ExampleKinds() {
	for _, kind := range log.Kinds()[:3] {
		d := kind.Describe()
		fmt.Println(d.Noun, d.IDField, log.FieldNames(kind)[:2])
	}
	// Output:
	// nic tag name [name uuid]
	// network uuid [uuid name]
	// nic mac [mac belongs_to_type]
}
