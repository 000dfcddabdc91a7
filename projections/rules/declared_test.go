package rules

import (
	"reflect"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// TestLabels: labels come into one order, are checked where they are set, and are those of
// operators: a compute node labels nothing, also not its own.
func TestLabels(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	nic := func() []string {
		r, _ := w.State.Get(log.KindNIC, "00:00:00:00:02:00")
		return r.Object.(*log.NIC).Labels
	}
	w.Must(`update nic 00:00:00:00:02:00 {"labels": ["tier=1", "set=web"]}`)
	if got := nic(); !reflect.DeepEqual(got, []string{"set=web", "tier=1"}) {
		t.Errorf("stored as %q", got)
	}
	n := len(w.Events)
	if w.Must(`update nic 00:00:00:00:02:00 {"labels": ["set=web", "tier=1"]}`); len(w.Events) > n {
		t.Error("the same in another order is a change")
	}
	w.Must(`create nic_tag {"name": "lab", "labels": ["b=1", "a=2"]}`, `update network #31# {"labels": ["a=1"]}`,
		`update vm #21# {"labels": ["a=1"]}`, `update server #11# {"labels": ["a=1"]}`)
	for text, want := range map[string]string{
		`update nic 00:00:00:00:02:00 {"labels": ["a=1", "a=2"]}`: "labels: the key of label",
		`create nic_tag {"name": "lac", "labels": ["X"]}`:         "is no label",
		`update ip #31#:10.0.0.77 {"labels": ["a=1"]}`:            "only while it is reserved",
	} {
		if r := w.Try(w.Change(changetest.Op(t, text))).Refusal; r == nil || !strings.Contains(r.Error(), want) {
			t.Errorf("%s: %v, want %s", text, r, want)
		}
	}
	w.Must(`update ip #31#:10.0.0.77 {"reserved": true, "labels": ["b=1", "a=1"]}`)
	if r, ok := w.State.Get(log.KindIP, changetest.Expand("#31#:10.0.0.77")); !ok || strings.Join(r.Object.(*log.IP).Labels, ",") != "a=1,b=1" {
		t.Errorf("the address is %+v", r.Object)
	}
	if w.Must(`update ip #31#:10.0.0.77 {"reserved": false}`); w.State.Count(log.KindIP) > 0 {
		if _, ok := w.State.Get(log.KindIP, changetest.Expand("#31#:10.0.0.77")); ok {
			t.Error("labels alone keep a free address")
		}
	}
	w.Must(`update ip #31#:10.0.0.78 {"reserved": true, "labels": ["a=1"]}`,
		`create nic {"mac": "00:00:00:00:02:78", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#31#", "ip": "10.0.0.78"}`)
	if r, _ := w.State.Get(log.KindIP, changetest.Expand("#31#:10.0.0.78")); !reflect.DeepEqual(r.Object.(*log.IP).Labels, []string{"a=1"}) {
		t.Errorf("an address that a NIC took has lost its labels: %+v", r.Object)
	}
	c := w.Change(changetest.Op(t, `update nic 00:00:00:00:02:00 {"labels": []}`))
	c.By = log.Author{Role: log.RoleCN, CN: changetest.UUID(11)}
	if w.Try(c).Refusal == nil {
		t.Error("a compute node takes labels away")
	}
}

// TestReverts: each event of a change says what the change takes back, ranges that cannot be
// are refused, and a compute node takes back nothing.
func TestReverts(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	change := func(r log.Reverts) *log.Change {
		c := w.Change(changetest.Op(t, `create nic_tag {"name": "one"}`), changetest.Op(t, `create nic_tag {"name": "two"}`))
		c.Reverts = r
		return c
	}
	for _, bad := range []log.Reverts{{{First: 5, Last: 4}}, {{First: 9, Last: 9}, {First: 3, Last: 3}}, {{}}, make(log.Reverts, log.MaxReverts+1)} {
		if r := w.Try(change(bad)).Refusal; r == nil || r.Errors[0].Field != "ops.0.reverts" && r.Errors[0].Field != "reverts" {
			t.Errorf("%v: %v", bad, r)
		}
	}
	good := log.Reverts{{First: 1, Last: 2}}
	c := change(good)
	if c.By = (log.Author{Role: log.RoleCN, CN: changetest.UUID(11)}); w.Try(c).Refusal == nil {
		t.Error("a compute node reverts")
	}
	for feature := uint32(log.FeatureFirst); feature <= log.FeatureVersion; feature++ {
		w.State.SetFeature(feature)
		events, result := Decide(w.State, change(good))
		if result.Refusal != nil || len(events) != 2 {
			t.Fatalf("version %d: %v", feature, result.Refusal)
		}
		for _, e := range events {
			if got := len(e.Reverts) > 0; got != (feature >= log.FeatureDeclared) {
				t.Errorf("version %d: an event has %v", feature, e.Reverts)
			}
		}
	}
}

// TestBeforeFeatureDeclared: below version 7 nothing has labels, and what a program of that
// version stores unread is neither looked at nor altered.
func TestBeforeFeatureDeclared(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.State.SetFeature(log.FeatureDeclared - 1)
	for op, want := range map[string]string{
		`update network #31# {"labels": ["a=1"]}`:                                                    `network has no field "labels"`,
		`update ip #31#:10.0.0.77 {"labels": ["a=1"]}`:                                               `ip has no field "labels"`,
		`create ip {"network_uuid": "#31#", "ip": "10.0.0.78", "reserved": true, "labels": ["a=1"]}`: `ip has no field "labels"`,
	} {
		if r := w.Try(w.Change(changetest.Op(t, op))).Refusal; r == nil || !strings.Contains(r.Error(), want) {
			t.Errorf("%s: %v, want %s", op, r, want)
		}
	}
	w.Must(`create nic_tag {"name": "old", "labels": ["b", "a"]}`)
	w.State.SetFeature(log.FeatureDeclared)
	w.Must(`update nic_tag old {"mtu": 1600}`)
	r, _ := w.State.Get(log.KindNICTag, "old")
	if got := strings.Join(r.Object.(*log.NICTag).Labels, " "); got != "b a" {
		t.Errorf("stored %s", got)
	}
	w.Must(`update nic_tag old {"labels": []}`)
}
