package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/confine"
	"rutter/cmd/rutter/node"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
)

// TestHelperOfAnAgent: an agent whose VMs a helper runs has no right to run them, and does with
// them what others do. VMs outlive both processes. A helper that stands still, or is gone, is
// named; the VMs that run, the links of the fabric, the status and `rutter vm` go on.
func TestHelperOfAnAgent(t *testing.T) {
	t.Parallel()
	if !enterVMLab(t) {
		return
	}
	w := newVMWorld(t)
	n, other := w.nodes[0], w.nodes[1]
	n.stopAgent()
	h := n.startHelper()
	n.startAgentWith("--servers", strings.Join(n.c.Client.Servers(), ","), "--vm-helper", n.helperSocket())
	n.until("the helper answers", func() bool { s := n.status(); return s.VMs.Helper != nil && s.VMs.Helper.Answers })
	want := fmt.Sprintf("CapPrm:\t%016x\nCapEff:\t%016x\n", uint64(agentRights), uint64(agentRights))
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.agent.PID())); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the agent has other rights than %s: %v\n%s", want, err, text)
	}
	vm := n.create("web0")
	w.rebooted(n, vm)
	pid := n.pid(vm)
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil || !strings.Contains(string(text), fmt.Sprintf("PPid:\t%d\n", h.PID())) {
		t.Errorf("the helper %d did not start the VM: %v\n%s", h.PID(), err, text)
	}
	n.must("vm", "update", vm.String(), "max_physical_memory=96")

	w.standsStill(n, other, h, vm)

	// Both processes end. The VM is found again, with its VMM.
	vmm := w.active(vm)
	n.stopAgent()
	if err := h.Stop(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	n.startAgentWith("--servers", strings.Join(n.c.Client.Servers(), ","), "--vm-helper", n.helperSocket())
	n.until("no helper is named", func() bool { return strings.Contains(n.troubles(), "none can be started") })
	if now := w.active(vm); now != vmm || n.pid(vm) != pid {
		t.Errorf("VMM %s, process %d; were %s, %d", now, n.pid(vm), vmm, pid)
	}
	n.startHelper()
	n.until("a helper answers", func() bool {
		return n.status().VMs.Helper.Answers && !strings.Contains(n.troubles(), "none can be started")
	})
	w.rebooted(n, vm)
	n.must("vm", "stop", vm.String(), "--wait=cluster")
	n.must("vm", "delete", vm.String(), "--wait=fabric")
}

// agentRights are the capabilities of an agent that has a helper.
const agentRights = confine.NetAdmin | confine.NetBroadcast | confine.NetRaw | confine.SysAdmin

// standsStill stops the process of the helper of node n for a while, and shows what goes on.
func (w *vmWorld) standsStill(n, other *vmNode, h *subprocess.Process, vm log.UUID) {
	w.t.Helper()
	pid := n.pid(vm)
	if err := syscall.Kill(h.PID(), syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	vmm := w.active(vm)
	if status, _ := w.ask(w.c.Servers[0], http.MethodPut, "/vmms/"+vmm+"/state", `{"state":{"type":"reboot"}}`); status != http.StatusOK {
		w.t.Errorf("reboot: %d", status)
	}
	began := time.Now()
	far := other.create("web1") // it is done when the kernels of all nodes have it, so that of n
	near := n.create("web2")    // by root's command itself
	w.t.Logf("two VMs were made in %v", time.Since(began))
	n.until("it is named", func() bool { return strings.Contains(n.troubles(), "none can be started") })
	n.until("the reboot is given up", func() bool { return w.value("/vmms/"+vmm, "state") == "running" })
	if n.pid(vm) != pid {
		w.t.Errorf("process %d of the VM is %d", pid, n.pid(vm))
	}
	if out, err := n.rutter("agent", "status", "--listen", "off"); err != nil || !strings.Contains(out, "VM helper     does not answer since") {
		w.t.Errorf("%v\n%s", err, out)
	}
	if err := syscall.Kill(h.PID(), syscall.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
	n.until("it answers", func() bool { return n.status().VMs.Helper.Answers })
	if n.pid(vm) != pid {
		w.t.Errorf("the reboot that was given up was made: process %d is %d", pid, n.pid(vm))
	}
	w.rebooted(n, near)
	other.must("vm", "delete", far.String(), "--wait=fabric")
	n.must("vm", "delete", near.String(), "--wait=fabric")
	w.visibleEverywhere(vm, "running")
}

// rebooted reboots a VM by a server, so by the agent.
func (w *vmWorld) rebooted(n *vmNode, vm log.UUID) {
	w.t.Helper()
	vmm, before := w.active(vm), n.pid(vm)
	if status, _ := w.ask(w.c.Servers[0], http.MethodPut, "/vmms/"+vmm+"/state", `{"state":{"type":"reboot"}}`); status != http.StatusOK {
		w.t.Fatalf("reboot: %d", status)
	}
	w.until("it runs again, as another process", func() bool {
		return w.value("/vmms/"+vmm, "state") == "running" && n.pid(vm) != before
	})
}

func (n *vmNode) helperSocket() string { return "/run/cns/" + n.ns.Name + "-vms/vms.sock" }

// startHelper starts the helper of this compute node, with the capabilities of its unit.
func (n *vmNode) startHelper() *subprocess.Process {
	n.t.Helper()
	cmd := n.command()
	h := &subprocess.Process{
		Name: "the helper of " + n.cn.String(), Program: cmd.Path, Args: []string{"vms", "--socket", n.helperSocket()}, Env: cmd.Env, LogFile: filepath.Join(n.dir, "vms.log"),
		Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
	}
	rig.Start(n.t, h)
	return h
}

// status is what the agent of this compute node says of itself.
func (n *vmNode) status() (s node.Status) {
	n.t.Helper()
	out, err := n.rutter("agent", "status", "-o", "json", "--listen", "off")
	if err == nil {
		err = json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &s) // warnings stand before it
	}
	if err == nil && s.VMs == nil {
		err = errors.New("it says nothing of VMs")
	}
	if err != nil {
		n.t.Fatalf("%v\n%s", err, out)
	}
	return s
}

func (n *vmNode) troubles() string {
	s := n.status()
	return strings.Join(s.Trouble, "\n")
}
