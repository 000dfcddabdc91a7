package vmmstate

import (
	"context"
	"errors"
	"testing"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmsource"
	"rutter/log"
)

// TestVMMOfOtherSources: VMs of each source that runs VMs here get VMMs. One that its own
// program stopped is destroyed, not failed, and is not adopted again before it is seen to be
// stopped. What its source does not do is refused with the source's words.
func TestVMMOfOtherSources(t *testing.T) {
	t.Parallel()
	store := vmstore.New(vmstore.Config{})
	store.GoLive()
	put := func(source string, id log.UUID, state string) {
		t.Helper()
		v, err := vmdoc.ParseValue([]byte(`{"uuid":"` + id.String() + `","state":"` + state + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		vm, err := vmdoc.ParseVM(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.Put(source, vm); err != nil {
			t.Fatal(err)
		}
	}
	first, second, third := vmmID(1), vmmID(2), vmmID(3)
	put("folder", first, "running")
	put("cni", second, "running")
	put("vminfod", third, "running")
	refusal := vmsource.NoControl("cni", "use podman")
	vmms, err := New(Config{
		Folder: t.TempDir(), Store: store, Starter: &fakeStarter{store: store}, Adopts: []string{"folder", "cni"},
		Refuses: func(vm log.UUID) error {
			if vm == second {
				return refusal
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- vmms.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not in time: %+v", what, vmms.List())
			}
		}
	}
	until("both run", func() bool { return len(vmms.List()) == 2 })
	if _, is := vmms.Active(third); is {
		t.Error("a VM that another program runs has a VMM")
	}
	vmm, _ := vmms.Active(second)
	if _, _, err := vmms.SetState(vmm.ID, "stopped", log.UUID{}); !errors.Is(err, vmsource.ErrNoControl) {
		t.Errorf("stopped: %v", err)
	}
	if _, err := vmms.Unregister(vmm.ID); !errors.Is(err, vmsource.ErrNoControl) {
		t.Errorf("ended: %v", err)
	}
	vmms.Ended(second, "")
	if got, err := vmms.Get(vmm.ID); err != nil || got.State != VMMDestroyed || got.Reason != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, is := vmms.Active(second); is {
		t.Error("it is adopted again while the store shows it running")
	}
	put("cni", second, "stopped")
	put("cni", second, "running")
	until("it runs again", func() bool { _, is := vmms.Active(second); return is })
	again, _ := vmms.Active(second)
	vmms.Ended(second, "it ended with status 3")
	if got, err := vmms.Get(again.ID); err != nil || got.State != VMMFailed || got.Reason != "it ended with status 3" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestPlaced: a VM that runs without a VMM takes the one into use that an operator has placed
// here for it, once; its first state has the generation of what was placed.
func TestPlaced(t *testing.T) {
	t.Parallel()
	s := newVMMSite(t.TempDir())
	s.adopts = []string{"fake"}
	vm, placed := vmmID(1), vmmID(100)
	s.placed = func(of log.UUID) (log.UUID, uint64, bool) { return placed, 3, of == vm }
	s.run(t)
	defer func() { s.stop() }()
	s.starter.set(vm, "running", 1000)
	if got := s.wait(t, placed, VMMRunning); got.Gen != 3 || got.VM != vm || got.PID != 1000 {
		t.Errorf("got %+v", got)
	}
	s.vmms.Ended(vm, "")
	if got := s.wait(t, placed, VMMDestroyed); got.Gen != 4 {
		t.Errorf("got %+v", got)
	}
	// The log may have the state that was placed still; the VMM has ended all the same.
	s.starter.set(vm, "stopped", 0)
	s.starter.set(vm, "running", 1001)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if again, is := s.vmms.Active(vm); is {
			if again.ID == placed || again.Gen != 1 {
				t.Errorf("got %+v", again)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("the VM that runs again has no VMM")
		}
	}
	other := vmmID(2)
	s.starter.set(other, "running", 1002)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, is := s.vmms.Active(other); is {
			return
		}
	}
	t.Fatal("a VM for which none is placed has no VMM")
}
