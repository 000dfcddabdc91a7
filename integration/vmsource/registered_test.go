package vmsource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource/registered"
	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// guest is a registered VM with its namespace.
type guest struct {
	netlab.Namespace
	id log.UUID
	ip netip.Addr
}

// register makes a namespace, and registers a VM in it.
func (n *node) register(name string) guest {
	n.w.t.Helper()
	g := guest{n.w.space(n.zones, name), client.NewChangeID(), netip.Addr{}}
	vm, err := n.client().Put(n.w.t.Context(), g.id, n.registration(name), registered.Wait{For: registered.WaitFabric, Within: patience})
	if err != nil {
		n.w.t.Fatal(err)
	}
	g.ip = vm.NICs[0].IPs[0].Addr()
	return g
}

func (n *node) registration(name string) registered.Registration {
	return registered.Registration{
		Alias: name, OwnerUUID: n.w.owner, Zonename: name,
		NICs: []registered.NIC{{Key: "eth0", Network: networks[0].String(), Attach: &vmdoc.Attach{Kind: vmdoc.AttachNamespace, Device: "eth0"}}},
	}
}

// TestRegisteredVMs: VMs that programs register on two nodes, with the nodes' certificates
// only, reach each other when the answer comes, and keep on, whatever of ours ends and begins
// again.
func TestRegisteredVMs(t *testing.T) {
	t.Parallel()
	if !enter(t) {
		return
	}
	w := newWorld(t)
	first, second := w.nodes[0], w.nodes[1]
	a, b := first.register("a"), second.register("b")
	ping := func() {
		t.Helper()
		if _, err := a.Ping(b.ip, 56, patience); err != nil {
			t.Fatalf("ping of %s: %v", b.ip, err)
		}
	}
	ping()
	again := func(within time.Duration) (registered.VM, error) {
		return first.client().Put(t.Context(), a.id, first.registration("a"), registered.Wait{For: registered.WaitFabric, Within: within})
	}
	if vm, err := again(patience); err != nil || vm.NICs[0].IPs[0].Addr() != a.ip || vm.NICs[0].Device != "eth0" {
		t.Fatalf("again: %+v, %v", vm, err)
	}
	out, err := exec.Command("curl", "-sS", "--unix-socket", first.socket, "http://agent/vmsource/local/vms/"+a.id.String()).Output()
	if err == nil && !strings.Contains(string(out), a.ip.String()) {
		t.Errorf("curl: %s", out)
	}
	for n := range 2 { // the agent is killed
		if err := first.agent.Stop(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ping()
		first.start()
		first.until("known after a restart", func() error { _, err := again(patience); return err })
		if macs, err := first.macs(); err != nil || len(macs) != 1 {
			t.Fatalf("kill %d: the log has %v, %v", n, macs, err)
		}
		ping()
	}
	first.programs(a, ping)
	tap := first.registration("tapped")
	tap.NICs[0].Attach = &vmdoc.Attach{Kind: vmdoc.AttachTap, Device: "tap0"}
	if _, err := first.client().Put(t.Context(), client.NewChangeID(), tap, registered.Wait{For: registered.WaitNode, Within: patience}); err != nil {
		t.Fatal(err)
	}
	if noLink(first.ns, "tap0") == nil || noLink(a.Namespace, "eth0") == nil {
		t.Error("the links are not there, or not found")
	}
	w.serversDown(a, again, ping)
	refused(t, first)
	first.until("the log is told", func() error {
		macs, err := first.macs()
		if err == nil && len(macs) > 0 {
			err = fmt.Errorf("it has %v", macs)
		}
		return err
	})
}

// programs: the program that registered a VM is killed, which takes nothing away, and begins
// again: it registers the VM with another process, and that is the same VM and NIC.
func (n *node) programs(a guest, ping func()) {
	n.w.t.Helper()
	for range 2 {
		program := exec.CommandContext(n.w.t.Context(), "sleep", "1000")
		if err := program.Start(); err != nil {
			n.w.t.Fatal(err)
		}
		r := n.registration("a")
		r.PID = program.Process.Pid
		vm, err := n.client().Put(n.w.t.Context(), a.id, r, registered.Wait{For: registered.WaitFabric, Within: patience})
		if err != nil || vm.NICs[0].IPs[0].Addr() != a.ip || vm.State != "running" {
			n.w.t.Errorf("by its program's process %d: %+v, %v", r.PID, vm, err)
		}
		ping()
		if err := program.Process.Kill(); err != nil {
			n.w.t.Fatal(err)
		}
		_ = program.Wait() // it was killed
		ping()
	}
	if macs, err := n.macs(); err != nil || len(macs) != 1 {
		n.w.t.Errorf("the log has %v, %v, want its one NIC", macs, err)
	}
}

// serversDown kills the servers: packets flow on, what is known is answered, what is new fails
// in time, and what is deleted goes when they are back, after a restart of the agent too.
func (w *world) serversDown(a guest, again func(time.Duration) (registered.VM, error), ping func()) {
	w.t.Helper()
	first := w.nodes[0]
	if err := w.cluster.Servers[0].Stop(syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	ping()
	if _, err := again(patience); err != nil {
		w.t.Errorf("known: %v", err)
	}
	began := time.Now()
	_, err := first.client().Put(w.t.Context(), client.NewChangeID(), first.registration("new"), registered.Wait{Within: time.Second})
	if e, is := errors.AsType[*registered.Error](err); !is || e.Code != registered.CodeServers || time.Since(began) > patience/2 {
		w.t.Errorf("new: %v after %s", err, time.Since(began))
	}
	vms, err := first.client().List(w.t.Context())
	if err != nil || len(vms) != 3 {
		w.t.Fatalf("listed: %+v, %v", vms, err)
	}
	var deleting errgroup.Group // each waits a while for the log
	for _, vm := range vms {
		deleting.Go(func() error { return first.client().Delete(w.t.Context(), vm.UUID) })
	}
	if err := deleting.Wait(); err != nil {
		w.t.Error(err)
	}
	gone := func(what string) {
		w.t.Helper()
		first.until(what, func() error {
			return errors.Join(noLink(a.Namespace, "eth0"), noLink(first.ns, "tap0"))
		})
	}
	gone("the links of what was deleted are gone, while the log has the NICs")
	if err := first.agent.Stop(syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	first.start()
	first.until("the socket", func() error { _, err := first.client().Get(w.t.Context(), a.id); return isUnknown(err) })
	gone("after a restart")
	if err := w.cluster.Servers[0].Start(); err != nil {
		w.t.Fatal(err)
	}
	if err := w.cluster.AwaitReady(context.WithoutCancel(w.t.Context()), w.cluster.Servers[0]); err != nil {
		w.t.Fatal(err)
	}
}

// noLink is nil if a namespace has no link of that name.
func noLink(ns netlab.Namespace, name string) error {
	return ns.Do(func() error {
		if _, err := net.InterfaceByName(name); err == nil {
			return fmt.Errorf("%s is there", name)
		}
		return nil
	})
}

// isUnknown is nil for the error of a VM that is not registered.
func isUnknown(err error) error {
	if e, is := errors.AsType[*registered.Error](err); is && e.Code == registered.CodeUnknown {
		return nil
	}
	return fmt.Errorf("want %s: %w", registered.CodeUnknown, err)
}

// refused registers a VM on a network that is not open to the node.
func refused(t *testing.T, n *node) {
	t.Helper()
	r := n.registration("c")
	r.NICs[0].Network = networks[1].String()
	_, err := n.client().Put(t.Context(), client.NewChangeID(), r, registered.Wait{Within: patience})
	if e, is := errors.AsType[*registered.Error](err); !is || e.Code != registered.CodeRefused || !strings.Contains(e.Message, "rutter network update "+networks[1].String()+" self_provision=any") {
		t.Errorf("a network that is not open: %v", err)
	}
}

// TestFirstCommand: the first command of docs/vms.md works on a node that has its certificate
// only, and a refusal names what opens the network; a VM that was made and not started holds
// up no wait.
func TestFirstCommand(t *testing.T) {
	t.Parallel()
	if !enter(t) {
		return
	}
	w := newWorld(t)
	n := w.nodes[0]
	made := "alias=web0 owner_uuid=" + w.owner.String() + ` nics=[{"network_uuid":"%s"}] --wait=fabric`
	if _, err := n.rutter(append([]string{"vm", "create"}, strings.Fields(fmt.Sprintf(made, networks[1]))...)...); err == nil || !strings.Contains(err.Error(), "rutter network update "+networks[1].String()+" self_provision=any") {
		t.Errorf("a network that is not open: %v", err)
	}
	if out, err := n.rutter(append([]string{"vm", "create"}, strings.Fields(fmt.Sprintf(made, networks[0]))...)...); err != nil || !strings.Contains(out, "is created") {
		t.Fatalf("%s, %v", out, err)
	}
	if macs, err := n.macs(); err != nil || len(macs) != 1 {
		t.Fatalf("the log has %v, %v", macs, err)
	}
	n.register("after") // its wait for the fabric is not held up by the VM that does not run
	id := client.NewChangeID()
	if _, err := n.client().Put(t.Context(), id, registered.Registration{Alias: "x", OwnerUUID: w.owner}, registered.Wait{}); err != nil {
		t.Fatal(err)
	}
	n.until("its own source says who stops it", func() error {
		if _, err := n.rutter("vm", "stop", id.String()); err == nil || !strings.Contains(err.Error(), "registered it as local") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if _, err := n.rutter("vm", "delete", id.String()); err != nil {
		t.Error(err)
	}
}
