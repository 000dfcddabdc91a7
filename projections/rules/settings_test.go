package rules

import (
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// TestTritonSettings: the settings of CNAPI's surface are checked, and there are none
// before log.FeatureTriton. Programs without a certificate write the boot record, and no
// other setting.
func TestTritonSettings(t *testing.T) {
	for _, c := range []struct {
		op, want string
		foreign  bool
		feature  uint32
	}{
		{op: `create setting {"name": "cnapi.allocation", "value": "filter_headnode=false,weight_unreserved_ram=-2.5"}`},
		{op: `create setting {"name": "cnapi.allocation", "value": "color=red"}`, want: `value: there is no "color"`},
		{op: `create setting {"name": "cnapi.allocation", "value": "overprovision_ratio_ram=0"}`, want: `value: overprovision_ratio_ram is "0"`},
		{op: `create setting {"name": "cnapi.allocation", "value": ""}`},
		{op: `create setting {"name": "cnapi.platforms", "value": "{\"20261101T000000Z\":{\"os\":\"smartos\"}}"}`},
		{op: `create setting {"name": "cnapi.platforms", "value": "[]"}`, want: `value: `},
		{op: `create setting {"name": "cnapi.boot_default", "value": "{}"}`},
		{op: `create setting {"name": "cnapi.boot_default", "value": "[]"}`, want: `value: it is not JSON`},
		{op: `create setting {"name": "cnapi.boot_default", "value": "{}"}`, foreign: true},
		{op: `create setting {"name": "cnapi.allocation", "value": ""}`, foreign: true, want: "a program without a certificate may not write a setting"},
		{op: `create setting {"name": "cnapi.boot_default", "value": "{}"}`, feature: log.FeatureTriton - 1, want: `there is no setting "cnapi.boot_default"`},
		{op: `create setting {"name": "cnapi.boot_default", "value": "{}"}`, foreign: true, feature: log.FeatureTriton - 1, want: "a program without a certificate may not write a setting"},
	} {
		w := worldtest.Settled(t, Decide)
		if c.feature != 0 {
			w.State.SetFeature(c.feature)
		}
		change := w.Change(changetest.Op(t, c.op))
		if c.foreign {
			change.By = log.Author{Role: log.RoleForeign}
		}
		r := w.Try(change).Refusal
		if c.want == "" && r != nil || c.want != "" && (r == nil || !strings.Contains(r.Error(), c.want)) {
			t.Errorf("%s (foreign %t, feature %d): %v, want %q", c.op, c.foreign, c.feature, r, c.want)
		}
	}
}
