package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// TestConditionOfSeq: a revision comes again when an object is deleted and made
// again, its tag does not; and within a change the tag is that of the object
// before the change.
func TestConditionOfSeq(t *testing.T) {
	const create = `create nic_tag {"name": "t", "mtu": 2000}`
	w := worldtest.New(t, Decide)
	w.Must(create)
	w.Must(`delete nic_tag t @1-1`)
	w.Must(create)
	for _, c := range []struct {
		ops     []string
		refusal string
	}{
		{[]string{`delete nic_tag t @1-1`}, "if-match '1-1' didn't match etag '1-3'"},
		{[]string{`update nic_tag t @1-1 {"mtu": 3000}`}, "if-match '1-1' didn't match etag '1-3'"},
		{[]string{`update nic_tag t @1-3 {"mtu": 3000}`, `update nic_tag t @1-3 {"mtu": 4000}`}, "if-match '1-3' didn't match etag '2-3'"},
		{[]string{`delete nic_tag t @1-3`, create, `delete nic_tag t @1-3`}, "if-match '1-3' didn't match etag '1-0'"},
		{[]string{`update nic_tag t @1-3 {"mtu": 3000}`, `update nic_tag t @2-3 {"mtu": 4000}`, `delete nic_tag t @3-3`}, ""},
		{[]string{create, `update nic_tag t @1-3 {"mtu": 3000}`}, "if-match '1-3' didn't match etag '1-0'"},
		{[]string{create, `update nic_tag t @1 {"mtu": 4000}`, `delete nic_tag t`, create, `delete nic_tag t @1`}, ""},
	} {
		ops := make([]log.Op, len(c.ops))
		for i, text := range c.ops {
			ops[i] = changetest.Op(t, text)
		}
		_, result := Decide(w.State, w.Change(ops...))
		if result.Refusal == nil && c.refusal != "" || result.Refusal != nil && (c.refusal == "" || !strings.Contains(result.Refusal.Error(), c.refusal)) {
			t.Errorf("%s: %v, want %q", c.ops, result.Refusal, c.refusal)
		}
		if result.Refusal == nil {
			w.Try(w.Change(ops...))
		}
	}
}

// TestNoNIC: an address that a program read without a NIC is not written over one that has
// taken it since. Programs before version 6 do not know the option.
func TestNoNIC(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	reserve := func(ip string) log.Op {
		op := changetest.Op(t, `update ip `+changetest.Expand("#31#")+`:`+ip+` {"reserved": true}`)
		op.Options = []log.Option{log.OptionNoNIC}
		return op
	}
	if r := w.Try(w.Change(reserve("10.0.0.77"))).Refusal; r != nil {
		t.Errorf("without a NIC: %v", r)
	}
	w.Must(`create nic {"mac": "00:00:00:00:02:77", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#", "ip": "10.0.0.78"}`)
	if r := w.Try(w.Change(reserve("10.0.0.78"))).Refusal; r == nil || r.Code != log.CodePreconditionFailed {
		t.Errorf("with one: %v, want %s", r, log.CodePreconditionFailed)
	}
	w.State.SetFeature(log.FeatureWire)
	if r := w.Try(w.Change(reserve("10.0.0.79"))).Refusal; r == nil || !strings.Contains(r.Error(), `"no_nic" does not fit`) {
		t.Errorf("before version 6: %v", r)
	}
}

// TestStrictOfNAPI: the setting is there from version 6 on.
func TestStrictOfNAPI(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	op := changetest.Op(t, `create setting {"name": "napi.strict", "value": "true"}`)
	w.State.SetFeature(log.FeatureWire)
	if r := w.Try(w.Change(op)).Refusal; r == nil || !strings.Contains(r.Error(), `there is no setting "napi.strict"`) || strings.Contains(r.Error(), "napi.strict,") {
		t.Errorf("before version 6: %v", r)
	}
	w.State.SetFeature(log.FeatureTriton)
	if r := w.Try(w.Change(op)).Refusal; r != nil {
		t.Error(r)
	}
}

// TestOverlapsAreNamed: each network that a subnet overlaps is named, by its UUID; before
// version 6 one was.
func TestOverlapsAreNamed(t *testing.T) {
	w := worldtest.New(t, Decide)
	w.Must(`create nic_tag {"name": "external"}`)
	for i, uuid := range []string{"#52#", "#51#", "#53#"} {
		w.Must(fmt.Sprintf(`create network {"uuid": "%s", "name": "n%d", "nic_tag": "external", "subnet": "198.51.100.%d/26"}`, uuid, i, i*64))
	}
	op := changetest.Op(t, `create network {"name": "wide", "nic_tag": "external", "subnet": "198.51.100.0/24"}`)
	named := func() (ids []string) {
		r := w.Try(w.Change(op)).Refusal
		if r == nil {
			t.Fatal("an overlap was taken")
		}
		for _, e := range r.Errors {
			ids = append(ids, e.ID)
		}
		return ids
	}
	want := []string{changetest.Expand("#51#"), changetest.Expand("#52#"), changetest.Expand("#53#")}
	if got := named(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w.State.SetFeature(log.FeatureWire)
	if got := named(); len(got) != 1 {
		t.Errorf("before version 6: %v, want one", got)
	}
}
