package libvirt

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent/vmsource"
	"rutter/agent/vmsource/registered"
	"rutter/log"
)

// registry is a Registry that keeps what it is told.
type registry struct {
	mu      sync.Mutex
	vms     map[log.UUID]registered.VM
	puts    []registered.Registration
	removed []string // what was done to which VM
}

func (r *registry) Name() string { return SourceName }
func (r *registry) Scan()        {}
func (r *registry) Status() vmsource.Status {
	return vmsource.Status{Name: SourceName, Complete: true}
}

func (r *registry) Run(ctx context.Context, _ vmsource.Sink) error {
	<-ctx.Done()
	return ctx.Err()
}
func (r *registry) Control() (vmsource.Control, error) { return nil, nil }

func (r *registry) List() (all []registered.VM) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, vm := range r.vms {
		all = append(all, vm)
	}
	return all
}

func (r *registry) Put(_ context.Context, id log.UUID, put registered.Registration, _ registered.Wait) (registered.VM, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	vm, known := r.vms[id]
	if !known && put.OwnerUUID.IsZero() {
		return vm, &registered.Error{Code: registered.CodeInvalid, Message: "no owner"}
	}
	r.puts = append(r.puts, put)
	vm.UUID, vm.State, vm.RunState = id, put.State, put.RunState
	vm.Away = vm.Away && put.State != registered.StateRunning
	if put.Alias != "" {
		vm.Alias = put.Alias
	}
	for _, n := range put.NICs {
		if vm.NIC(n.Key) == nil {
			vm.NICs = append(vm.NICs, registered.Attached{Key: n.Key, MAC: n.MAC})
		}
	}
	r.vms[id] = vm
	return vm, nil
}

func (r *registry) Away(id log.UUID, away bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	vm := r.vms[id]
	vm.Away = away
	r.vms[id] = vm
	return nil
}

func (r *registry) remove(what string, id log.UUID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = append(r.removed, what+" "+id.String())
	delete(r.vms, id)
	return nil
}
func (r *registry) Delete(_ context.Context, id log.UUID) error { return r.remove("delete", id) }
func (r *registry) Forget(_ context.Context, id log.UUID) error { return r.remove("forget", id) }
func (r *registry) DeleteNIC(_ context.Context, id log.UUID, key string) error {
	return r.remove("nic "+key, id)
}

// vm returns the registration of a VM, and what was removed.
func (r *registry) vm(id log.UUID) (vm registered.VM, has bool, removed string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	vm, has = r.vms[id]
	return vm, has, strings.Join(r.removed, ", ")
}

// script stands in for virsh: what it prints are files of its folder.
const script = `#!/bin/sh
cd %s || exit 1
if [ -e hang ]; then exec sleep 1000; fi
if [ -e dead ]; then echo "error: no connection" >&2; exit 1; fi
case "$3" in
list*) cat list;;
dumpxml*) cat dump; echo qemu:///test;;
uri*)
	echo qemu:///test
	while [ ! -e dead ]; do
		if [ -e event ]; then cat event; rm event; fi
		sleep 0.02
	done;;
esac
`

const webUUID = "5f4ab3c8-9e8d-4f6c-8a0e-6a4f4c0a8d11"

var webOwner = log.UUID{6: 0x40, 8: 0x80, 15: 9}

// desk is a Source that runs, with its virsh.
type desk struct {
	*Source
	t    *testing.T
	reg  *registry
	dir  string
	id   log.UUID
	stop func() // of the Source that runs
}

func newDesk(t *testing.T, owner log.UUID) *desk {
	t.Helper()
	d := &desk{t: t, reg: &registry{vms: make(map[log.UUID]registered.VM)}, dir: t.TempDir(), id: must(log.ParseUUID(webUUID))}
	d.file("virsh", fmt.Sprintf(script, d.dir))
	d.file("dump", minimal(metadata(`<r:nic dev="web0" network="front"/>`), tap("52:54:00:00:00:01", "web0")))
	d.state(stateRunning, 1)
	d.run(owner)
	return d
}

// run begins a Source, as an agent that starts does.
func (d *desk) run(owner log.UUID) (stop func()) {
	if d.stop != nil {
		d.stop()
	}
	d.Source = New(Config{
		Registry: d.reg, Owner: owner, PIDs: d.dir, ScanEvery: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Virsh: Virsh{URI: "qemu:///test", Program: filepath.Join(d.dir, "virsh"), Within: 2 * time.Second},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func(s *Source) { _ = s.Run(ctx, nil); close(done) }(d.Source) // it returns ctx's error
	stop = func() { cancel(); <-done }
	d.stop = stop
	d.t.Cleanup(stop)
	return stop
}

// file writes a file at once, so that no reader sees a part of it.
func (d *desk) file(name, text string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o700); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) state(code, reason int) {
	d.t.Helper()
	d.file("list", fmt.Sprintf("%s a\n\nDomain: 'a'\n  state.state=%d\n  state.reason=%d\n\n", webUUID, code, reason))
}

func (d *desk) event(text string) {
	d.t.Helper()
	d.file("event", "event 'lifecycle' for domain 'a': "+text+"\n")
}

func (d *desk) until(what string, is func() bool) {
	d.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			vm, has, removed := d.reg.vm(d.id)
			d.t.Fatalf("%s: it is %+v %t, removed %q, status %+v", what, vm, has, removed, d.Status())
		}
	}
}

// shows waits until the domain is registered in a state, with libvirt's word for it.
func (d *desk) shows(state, word string) {
	d.t.Helper()
	d.until("it is "+state+" "+word, func() bool {
		vm, _, _ := d.reg.vm(d.id)
		return vm.State == state && vm.RunState == word
	})
}

// scansMore waits until libvirt was asked again.
func (d *desk) scansMore() {
	d.t.Helper()
	before := d.Status().Scans
	d.until("it is asked again", func() bool { return d.Status().Scans > before+1 })
}

// TestDomainByVirshAlone: a domain that runs, which no hook registered and whose metadata
// name no owner, is a VM of the owner that the agent's settings name. Without one it is put
// aside with the reason. Its states are shown as libvirt has them.
func TestDomainByVirshAlone(t *testing.T) {
	t.Parallel()
	none := newDesk(t, log.UUID{})
	none.until("it is put aside", func() bool {
		aside := none.Status().Aside
		return len(aside) == 1 && strings.Contains(aside[0].Reason, "owner")
	})
	d := newDesk(t, webOwner)
	d.shows(registered.StateRunning, "")
	if put := d.reg.puts[0]; put.OwnerUUID != webOwner || len(put.NICs) != 1 {
		t.Errorf("it was registered as %+v", put)
	}
	for _, s := range []struct {
		code, reason int
		state, word  string
	}{
		{statePaused, 1, registered.StateRunning, "paused"},
		{statePMSuspended, 0, registered.StateRunning, "pmsuspended"},
		{stateRunning, 1, registered.StateRunning, ""},
		{stateCrashed, 1, registered.StateStopped, "crashed"},
		{stateShutoff, 1, registered.StateStopped, ""},
		{stateShutoff, shutoffCrashed, registered.StateStopped, "crashed"},
	} {
		d.state(s.code, s.reason)
		d.shows(s.state, s.word)
	}
}

// TestLibvirtThatIsDead: while libvirt does not answer, or does not answer in time, the
// source is not complete, and nothing is taken away. Then all is as before.
func TestLibvirtThatIsDead(t *testing.T) {
	t.Parallel()
	d := newDesk(t, webOwner)
	d.shows(registered.StateRunning, "")
	for _, how := range []string{"dead", "hang"} {
		d.until("it answers", func() bool { return d.Status().Complete })
		d.file(how, "")
		d.until("it does not answer: "+how, func() bool { s := d.Status(); return !s.Complete && strings.Contains(s.State, "does not answer") })
		if vm, has, removed := d.reg.vm(d.id); !has || vm.State != registered.StateRunning || removed != "" {
			t.Errorf("%s: the VM is %+v, removed %q", how, vm, removed)
		}
		if err := os.Remove(filepath.Join(d.dir, how)); err != nil {
			t.Fatal(err)
		}
	}
	d.until("it answers again", func() bool { return d.Status().Complete })
}

// TestDomainThatIsGone: a domain that was undefined goes with its NICs, one that migrated is
// forgotten here and keeps them, and one that vanished while no agent saw why stays, stopped.
func TestDomainThatIsGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ event, want string }{
		{"Undefined Removed", "delete " + webUUID},
		{"Stopped Migrated", "forget " + webUUID},
	} {
		d := newDesk(t, webOwner)
		d.shows(registered.StateRunning, "")
		d.until("events are told", func() bool { return d.Status().Complete })
		d.event(c.event)
		d.until("the event", func() bool { return d.Status().Events > 0 })
		d.file("list", "\n")
		d.until(c.want, func() bool { _, _, removed := d.reg.vm(d.id); return removed == c.want })
	}
	d := newDesk(t, webOwner)
	d.shows(registered.StateRunning, "")
	d.state(stateShutoff, shutoffMigrated)
	d.scansMore() // it may have been shown stopped before, by its hook
	d.file("list", "\n")
	d.until("it is forgotten", func() bool { _, _, removed := d.reg.vm(d.id); return removed == "forget "+webUUID })
	d = newDesk(t, webOwner)
	d.shows(registered.StateRunning, "")
	d.file("list", "\n")
	d.shows(registered.StateStopped, "")
	d.until("an operator is told", func() bool { return len(d.Status().Aside) == 1 })
	if _, _, removed := d.reg.vm(d.id); removed != "" {
		t.Errorf("removed %q", removed)
	}
}

// TestMigratedBeforeARestart: a domain that migrated away and stays defined here is not taken
// for gone with its NICs when it is undefined later, although neither the agent nor libvirtd
// remembers the migration by itself. One that runs here again is registered anew.
func TestMigratedBeforeARestart(t *testing.T) {
	t.Parallel()
	d := newDesk(t, webOwner)
	d.shows(registered.StateRunning, "")
	d.state(stateShutoff, shutoffMigrated)
	d.until("it is kept", func() bool { vm, _, _ := d.reg.vm(d.id); return vm.Away })
	d.run(webOwner) // as after a restart of the agent: only the registry is what it was
	d.state(stateShutoff, 0)
	d.scansMore()
	d.until("events are told", func() bool { return d.Status().Complete })
	d.event("Undefined Removed")
	d.until("the event", func() bool { return d.Status().Events > 0 })
	d.file("list", "\n")
	d.until("it is forgotten", func() bool { _, _, removed := d.reg.vm(d.id); return removed != "" })
	if _, _, removed := d.reg.vm(d.id); removed != "forget "+webUUID {
		t.Errorf("removed %q", removed)
	}
	d = newDesk(t, webOwner)
	d.shows(registered.StateRunning, "")
	d.state(stateShutoff, shutoffMigrated)
	d.until("it is kept", func() bool { vm, _, _ := d.reg.vm(d.id); return vm.Away })
	d.state(stateRunning, 1)
	d.until("it is registered anew", func() bool { vm, _, _ := d.reg.vm(d.id); return !vm.Away && vm.State == registered.StateRunning })
}

// TestPauses: a libvirt that does not answer is asked after pauses that double to a bound.
func TestPauses(t *testing.T) {
	for pause, want := range map[time.Duration]time.Duration{firstPause: 2 * firstPause, 40 * time.Second: lastPause, lastPause: lastPause} {
		if got := longer(pause); got != want {
			t.Errorf("after %s: %s, want %s", pause, got, want)
		}
	}
}
