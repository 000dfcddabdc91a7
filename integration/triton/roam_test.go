package triton

import (
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

// clusterOf starts three servers, which end with the test.
func clusterOf(t *testing.T) *bench.Cluster {
	t.Helper()
	return rig.Cluster(t, bench.Options{Program: rutter, Flags: []string{"--log-level=warn"}})
}

// servedElsewhere is how long listeners of a killed server may be without one
// (issue 8). Where the tests share processors with others, it is seen in the
// bench, and here only that it is not a matter of time-outs.
const servedElsewhere = 15 * time.Second

// Every server is killed under load, one after the other: no listener loses an
// item or gets one twice, those elsewhere notice nothing, and the killed one's
// are served elsewhere.
func TestKillAnyServer(t *testing.T) {
	o, err := Roam(t.Context(), clusterOf(t), 12, 10_000)
	t.Logf("%+v", o)
	switch {
	case err != nil:
		t.Error(err)
	case o.Lost > 0 || o.Doubled > 0:
		t.Errorf("%d items lost, %d doubled", o.Lost, o.Doubled)
	case o.Noticed > 0:
		t.Errorf("%d listeners of other servers noticed a kill", o.Noticed)
	case o.Gap > servedElsewhere:
		t.Errorf("a listener was served by nobody for %v", o.Gap)
	}
}
