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
