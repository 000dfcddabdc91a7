package vmm

import (
	"fmt"
	"testing"
	"testing/synctest"

	"rutter/log"
	"rutter/log/feed"
)

// A VMM whose VM the log does not have yet is recorded as soon as the CN's inventory has
// brought the VM, without another ring.
func TestInventoryBringsVMMsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := alone(t, func(cfg *Config) { cfg.Bound = true })
		defer run(s)()
		state := fmt.Sprintf(`{"instance_id":%q,"vmm_state":{"state":"running","gen":2,"time_updated":"2026-11-21T09:00:00Z"}}`, testVM)
		cn := connect(s, testCN, map[string]answer{"GET " + statePath: {200, state}})
		cn.line.Ring(&feed.Ring{VMMs: []log.UUID{testVMM}})
		settle()
		if held := c.vmm(testVMM); held != nil {
			t.Fatalf("recorded before its VM: %+v", held)
		}
		whole(cn.line, vm(4, "running"))
		settle()
		if n := cn.asked("GET"); n != 1 {
			t.Errorf("another VM came, and %d states were asked for, want 1", n)
		}
		mine := vm(0, "running")
		mine.UUID = testVM
		cn.line.Report(&feed.Inventory{Number: 2, VMs: []feed.InventoryVM{inventoryVM(mine)}})
		settle()
		if held := c.vmm(testVMM); held == nil || held.State != "running" || held.InstanceID != testVM {
			t.Errorf("recorded %+v, events %d", held, c.count())
		}
		if len(cn.line.unplaced) != 0 {
			t.Errorf("%d VMMs still wait", len(cn.line.unplaced))
		}
	})
}

func TestVMMsThatWaitAreBounded(t *testing.T) {
	s, _ := alone(t, nil)
	line := s.Connect(testCN, true, nil)
	defer line.Close()
	for n := range maxUnplaced + 10 {
		s.waitForVM(claim{vmm: testUUID(1000 + n), cn: testCN, state: State{InstanceID: testVM}})
	}
	if n := len(line.unplaced); n != maxUnplaced {
		t.Errorf("%d VMMs wait, want %d", n, maxUnplaced)
	}
}
