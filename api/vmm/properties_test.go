package vmm

import (
	"testing"

	"rutter/log"
	"rutter/projections"
)

// TestReportedProperties: a report's properties are the log's, except that it takes neither
// role tags nor metadata; a report without any, as of an agent of before, changes none; and
// below FeatureTriton nothing is written.
func TestReportedProperties(t *testing.T) {
	held := vm(1, "running")
	held.Properties = `{"customer_metadata":{"a":"b"},"role_tags":["r"],"tags":{"old":1},"zpool":"zones"}`
	rec := projections.Record{Object: held, Revision: 3}
	for _, c := range []struct {
		report, state string
		triton        bool
		want          string
	}{
		{`{"tags":{"new":1}}`, "running", true, `{"customer_metadata":{"a":"b"},"role_tags":["r"],"tags":{"new":1}}`},
		{`{"customer_metadata":{"c":"d"},"tags":{"new":1}}`, "running", true, `{"customer_metadata":{"c":"d"},"role_tags":["r"],"tags":{"new":1}}`},
		{`{"role_tags":["admin"],"tags":{"old":1},"zpool":"zones"}`, "running", true, ""},
		{`{"tags":{"old":1},"zpool":"zones"}`, "running", true, ""},
		{held.Properties, "running", true, ""},
		{"", "running", true, ""},
		{"", "stopped", true, held.Properties},
		{`{"tags":{"new":1}}`, "running", false, ""},
		{`{"tags":{"new":1}}`, "stopped", false, held.Properties},
	} {
		said := vm(1, c.state)
		said.Properties = c.report
		op, differs := has(said, testCN, rec, true, c.triton)
		if differs != (c.want != "") || differs && op.Object.(*log.VM).Properties != c.want {
			t.Errorf("%s, %s, %t: %t %+v, want %s", c.report, c.state, c.triton, differs, op.Object, c.want)
		}
	}
	said := vm(2, "running")
	said.Properties = `{"role_tags":["admin"],"tags":{"new":1}}`
	for triton, want := range map[bool]string{true: `{"tags":{"new":1}}`, false: ""} {
		if op, _ := has(said, testCN, projections.Record{}, false, triton); op.Object.(*log.VM).Properties != want {
			t.Errorf("a new VM, %t: %+v", triton, op.Object)
		}
	}
}
