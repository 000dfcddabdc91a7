package rules

import (
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// TestOptionsOfLaterVersions: below the feature version that brought an option, it is
// refused as one that no program knows: each time that it stands, in its place among others.
// Servers of a cluster that is being upgraded compare what they refuse, byte for byte.
func TestOptionsOfLaterVersions(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	for _, c := range []struct {
		op      string
		options []log.Option
	}{
		{`create network {"name": "n", "nic_tag": "external", "subnet": "10.7.0.0/24"}`, []log.Option{log.OptionAllocateSubnet, log.OptionReserveIP, log.OptionAllocateSubnet}},
		{`update network #31# {"name": "n"}`, []log.Option{log.OptionReserveIP, log.OptionAllocateSubnet}},
		{`create ip {"network_uuid": "#31#", "ip": "10.0.0.9", "reserved": true}`, []log.Option{log.OptionNoNIC, log.OptionLockOut, log.OptionNoNIC}},
	} {
		var said [2]*log.Refusal
		for i := range said {
			op := changetest.Op(t, c.op)
			for _, o := range c.options {
				if o == log.OptionAllocateSubnet || o == log.OptionNoNIC {
					o = []log.Option{o, "not_known"}[i]
				}
				op.Options = append(op.Options, o)
			}
			for _, version := range []uint32{log.FeatureFirst, log.FeatureWire} {
				w.State.SetFeature(version)
				if said[i] = w.Try(w.Change(op)).Refusal; said[i] == nil {
					t.Fatalf("%s with %v is accepted under version %d", c.op, op.Options, version)
				}
			}
		}
		if len(said[0].Errors) != len(c.options) || len(said[1].Errors) != len(c.options) {
			t.Errorf("%s with %v: refused with %d problems, and with %d if no program knows the option", c.op, c.options, len(said[0].Errors), len(said[1].Errors))
		}
	}
}
