package disk

import (
	"testing"
	"time"
)

// TestDiskOps: ages are counted by looks, each operation by its own measure.
func TestDiskOps(t *testing.T) {
	var ops Ops
	quick, slow := ops.Begin("quick", 1), ops.Begin("slow", 4)
	ops.Look(time.Second)
	if what, weighed, age := ops.Look(time.Second); what != "quick" || weighed != 2*time.Second || age != 2*time.Second {
		t.Errorf("%q %v %v", what, weighed, age)
	}
	ops.End(quick)
	if what, weighed, age := ops.Look(2 * time.Second); what != "slow" || weighed != time.Second || age != 4*time.Second {
		t.Errorf("%q %v %v", what, weighed, age)
	}
	ops.End(slow)
	if what, _, _ := ops.Look(time.Second); what != "" {
		t.Errorf("%q is under way", what)
	}
}
