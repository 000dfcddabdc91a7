package rules

import (
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
