package cutover

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
)

// newNodeID is the compute node that changes to Rutter's agent.
const newNodeID = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"

// enter runs the test again with networks, mounts and a /run of its own, and reports
// whether this process is to run it. An ordinary user runs it without a node with
// Rutter's agent.
func enter(t *testing.T) (here, agents bool) {
	t.Helper()
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		if err := unix.Mount("rutter-test", "/run", "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		return true, true
	}
	if os.Geteuid() != 0 {
		return true, false
	}
	err := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v").Run()
	switch {
	case netlab.Forbidden(err):
		return true, false
	case err != nil:
		t.Fatal(err)
	}
	return false, false
}

// agentNode is a node with Rutter's agent, whose VMs are in a folder of manifests.
type agentNode struct {
	dir, cgroup string
	agent       *subprocess.Process
}

func (in *installation) startAgent() *agentNode {
	in.t.Helper()
	n := &agentNode{dir: in.t.TempDir()}
	n.cgroup = filepath.Join(filepath.Dir(system.DefaultCgroup()), "rutter-cutover-"+filepath.Base(n.dir)+"-"+strconv.Itoa(os.Getpid()))
	if err := errors.Join(os.Mkdir(filepath.Join(n.dir, "vms"), 0o755), os.Mkdir(n.cgroup, 0o755)); err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { n.sweep(in.t) })
	var servers []string
	for _, s := range in.cluster.Servers {
		servers = append(servers, s.URL)
	}
	n.agent = &subprocess.Process{
		Name: "the agent", Program: rutter, LogFile: filepath.Join(n.dir, "agent.log"),
		Args: []string{"agent", "--cn", newNodeID, "--data", filepath.Join(n.dir, "agent"), "--svp", "off", "--listen", "off", "--servers", strings.Join(servers, ","), "--vm-store", n.dir},
		Env: append(os.Environ(), "RUTTER_MANIFESTS="+filepath.Join(n.dir, "vms"), "RUTTER_VM_RUN="+filepath.Join(n.dir, "run"), "RUTTER_VM_CGROUP="+n.cgroup,
			"RUTTER_AGENT_SOCKET="+filepath.Join(n.dir, "agent.sock")),
	}
	rig.Start(in.t, n.agent)
	return n
}

// sweep removes what the kernel does not end with the test's namespaces: cgroups.
func (n *agentNode) sweep(t *testing.T) {
	_ = filepath.WalkDir(n.cgroup, func(path string, _ fs.DirEntry, _ error) error {
		if filepath.Base(path) == "cgroup.procs" {
			b, _ := os.ReadFile(path)
			for _, line := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		return nil
	})
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		vms, _ := filepath.Glob(filepath.Join(n.cgroup, "*-*"))
		others, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(n.cgroup) + "-*") // of other controllers, in version 1
		for _, path := range append(vms, others...) {
			_ = os.Remove(path)
		}
		if err := os.Remove(n.cgroup); err == nil || errors.Is(err, fs.ErrNotExist) {
			if others, _ = filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(n.cgroup) + "-*"); len(others) == 0 {
				return
			}
		}
	}
	t.Errorf("%s is left", n.cgroup)
}

// lives runs a VM's life on the new node: provision, stop, start, delete.
func (in *installation) lives(ctx context.Context, with string) {
	in.t.Helper()
	c := &caller{names: in.public, network: external, owner: theOwner, server: newNodeID, eachCall: func(name string) { in.counted(with + " " + name) }}
	id, err := c.create(ctx, "on-"+with)
	for _, step := range []struct{ action, state string }{{"stop", "stopped"}, {"start", "running"}} {
		if err == nil {
			err = c.act(ctx, id, step.action, nil, "state", step.state)
		}
		if err == nil {
			c.eachCall(step.action)
			in.sameInventory(in.public.of("vmapi"), id)
		}
	}
	if err == nil {
		err = c.remove(ctx, id)
		c.eachCall("delete")
	}
	if err != nil {
		in.t.Fatalf("%s: a VM on the node with %s: %v", in.step, with, err)
	}
}

// oldAgents runs the stand-in of cn-agent and vm-agent on the new node until the caller
// ends them, as soon as the log has the node with them.
func (in *installation) oldAgents(ctx context.Context) (end func()) {
	in.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	n := newNode(newNodeID, in.public, "reserved0") // no NIC tag of the callers' VMs: only VMs that name it come to it
	in.cnapi.setNode(n)
	var running sync.WaitGroup
	running.Go(func() { n.run(ctx) })
	in.hasAgent(false)
	in.await("the old CNAPI has the node", func() bool { return in.cnapi.running(newNodeID) })
	return func() { cancel(); running.Wait(); in.cnapi.forget(newNodeID) }
}

// hasAgent waits until the log has the new node's sysinfo, of Rutter's agent or another's.
func (in *installation) hasAgent(want bool) {
	in.t.Helper()
	in.await("the node's sysinfo, and its status", func() bool {
		var server struct {
			Status  string
			Sysinfo map[string]any
		}
		err := call(in.t.Context(), http.MethodGet, in.public.of("cnapi")+"/servers/"+newNodeID+"?extras=sysinfo,status", nil, &server)
		return err == nil && server.Status == "running" && (server.Sysinfo["Rutter Agent"] != nil) == want
	})
}

// newAgent changes a node from the old agents to Rutter's, and back; VMs live on it with
// either, beside the old node and its callers.
func (in *installation) newAgent(ctx context.Context) {
	in.t.Helper()
	var end func()
	in.during("7 a node with the old agents", func() {
		end = in.oldAgents(ctx)
		in.lives(ctx, "cn-agent")
	})
	in.during("7 the same node with Rutter's agent", func() {
		end()
		n := in.startAgent()
		in.hasAgent(true)
		in.lives(ctx, "rutter-agent")
		if err := n.agent.Stop(syscall.SIGTERM); err != nil {
			in.t.Fatal(err)
		}
	})
	in.during("7 back: the old agents", func() {
		end = in.oldAgents(ctx)
		in.lives(ctx, "cn-agent")
		end()
	})
}
