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

// TestDelayIsTimeOfTheOperation: what Delay waits counts as age, and ends with it.
func TestDelayIsTimeOfTheOperation(t *testing.T) {
	var ops Ops
	ops.Before("no delay", 1)
	ops.Delay = func(what string) {
		if under, _, age := ops.Look(time.Second); under != what || age != time.Second {
			t.Errorf("during the delay %q is under way for %v", under, age)
		}
	}
	ops.Before("slow", 1)
	if what, _, _ := ops.Look(time.Second); what != "" {
		t.Errorf("%q is under way", what)
	}
}
