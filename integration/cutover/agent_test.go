package cutover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
)

// movedNode is a compute node of SmartOS that changes over to `rutter agent`, and back.
const movedNode = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"

// Addresses of the lab: of the servers, and of the node's underlay.
const (
	labServers  = "192.0.2.254"
	labUnderlay = "192.0.2.1"
)

// theTrait is what the operator gives the node, and packages whose VMs may be on it.
var theTrait = object{"rutter": true}

// enterLab runs a test again in a process with networks, mounts and a /run of its own, if
// this may be done here, and reports whether the caller is that process.
func enterLab(t *testing.T) (inside, done bool) {
	t.Helper()
	if !netlab.Inside() {
		if os.Geteuid() != 0 {
			return false, false
		}
		cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if netlab.Forbidden(err) {
			return false, false
		}
		t.Log(out.String())
		if err != nil {
			t.Fatal(err)
		}
		return false, true
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	err := errors.Join(unix.Mount("rutter-test", "/run", "tmpfs", 0, ""), netlab.AddBridge("underlay"), netlab.AddAddress("underlay", netip.MustParsePrefix(labServers+"/24")))
	if err != nil {
		t.Fatal(err)
	}
	return true, false
}

// agentNode is movedNode while `rutter agent` runs on it, with a network and VMs of its
// own.
type agentNode struct {
	in     *installation
	ns     netlab.Namespace
	dir    string
	cgroup string
	agent  *subprocess.Process
}

// newAgentNode makes the network of the node: one link, to the bridge of the underlay.
func newAgentNode(in *installation) *agentNode {
	in.t.Helper()
	n := &agentNode{in: in, dir: in.t.TempDir(), cgroup: filepath.Join(filepath.Dir(system.DefaultCgroup()), fmt.Sprintf("rutter-cutover-%d", os.Getpid()))}
	err := errors.Join(os.MkdirAll("/run/cns", 0o755), os.Mkdir(filepath.Join(n.dir, "vms"), 0o700), os.Mkdir(n.cgroup, 0o755),
		os.WriteFile(filepath.Join(n.dir, "nic_tags"), []byte("external_nic=e0\nadmin_nic=e0\nsdc_overlay_nic=e0\n"), 0o600))
	if err == nil {
		n.ns, err = netlab.Create("/run/cns", "moved")
	}
	if err == nil {
		err = errors.Join(netlab.AddVeth("v1", "e0", n.ns, 1600), netlab.SetMaster("v1", "underlay"), netlab.SetUp("v1", true), n.ns.Do(func() error {
			return errors.Join(netlab.SetMAC("e0", [6]byte{0, 0, 0x5e, 0, 0x53, 1}), netlab.SetUp("e0", true), netlab.AddAddress("e0", netip.MustParsePrefix(labUnderlay+"/24")))
		}))
	}
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(n.sweep)
	return n
}

// sweep removes what the kernel does not end with the test's namespaces: processes of
// VMs, and their cgroups.
func (n *agentNode) sweep() {
	_ = filepath.WalkDir(n.cgroup, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "cgroup.procs" {
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
			return
		}
	}
	n.in.t.Errorf("%s is left", n.cgroup)
}

// command is rutter on the node.
func (n *agentNode) command(args ...string) *exec.Cmd {
	cmd := exec.Command(rutter, args...)
	cmd.Env = append(os.Environ(), "RUTTER_MANIFESTS="+filepath.Join(n.dir, "vms"), "RUTTER_VM_RUN="+filepath.Join(n.dir, "run"), "RUTTER_VM_CGROUP="+n.cgroup,
		"RUTTER_AGENT_SOCKET=/run/cns/moved.sock", "RUTTER_SERVER="+n.servers())
	return cmd
}

func (n *agentNode) servers() string {
	var urls []string
	for _, s := range n.in.cluster.Servers {
		urls = append(urls, s.URL)
	}
	return strings.Join(urls, ",")
}

// start starts the agent, and waits until the log says that the node runs and may get VMs.
func (n *agentNode) start() {
	in := n.in
	in.t.Helper()
	cmd := n.command("agent", "--cn", movedNode, "--data", filepath.Join(n.dir, "agent"), "--svp", "off", "--servers", n.servers(),
		"--nic-tags", filepath.Join(n.dir, "nic_tags"), "--vm-store", n.dir)
	n.agent = &subprocess.Process{
		Name: "rutter agent", Program: cmd.Path, Args: cmd.Args[1:], Env: cmd.Env, LogFile: filepath.Join(n.dir, "agent.log"),
		Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
	}
	rig.Start(in.t, n.agent)
	in.await("the log has the sysinfo of the agent, and it runs", func() bool {
		var server struct {
			Status  string
			Sysinfo object
		}
		err := call(in.t.Context(), http.MethodGet, in.public.of("cnapi")+"/servers/"+movedNode, nil, &server)
		return err == nil && server.Status == "running" && text(server.Sysinfo, "Rutter Agent") != ""
	})
}

// here is a VM as vminfod on the node shows it; nil: it has none.
func (n *agentNode) here(id string) (vm object) {
	cmd := n.command("vm", "get", id)
	var out []byte
	err := n.ns.Do(func() (err error) {
		out, err = cmd.Output()
		return err
	})
	if err != nil || json.Unmarshal(out, &vm) != nil {
		return nil
	}
	return vm
}

// macsOf are the MACs of a VM's NICs, sorted.
func macsOf(vm object) (macs []string) {
	nics, _ := vm["nics"].([]any)
	for _, nic := range nics {
		macs = append(macs, text(nic.(object), "mac"))
	}
	slices.Sort(macs)
	return macs
}

// same waits until every reader says the same of a VM of the node: VMAPI and CNAPI at each
// server, the old VMAPI, NAPI (its NICs), and the node itself.
func (n *agentNode) same(id, state string, ram float64, nics int) {
	in := n.in
	in.t.Helper()
	var why string
	differs := func(door string, vm object) bool {
		switch {
		case vm == nil:
			why = door + " does not have it"
		case vm["state"] != state || vm["ram"] != ram || text(vm, "server_uuid") != movedNode || len(macsOf(vm)) != nics:
			why = fmt.Sprintf("%s: %v, %v MiB, on %v, NICs %v", door, vm["state"], vm["ram"], vm["server_uuid"], macsOf(vm))
		default:
			return false
		}
		return true
	}
	get := func(url string) (vm object) {
		if call(in.t.Context(), http.MethodGet, url, nil, &vm) != nil {
			return nil
		}
		return vm
	}
	until := time.Now().Add(patience)
	for ; ; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			in.t.Fatalf("%s: VM %s is not %s with %v MiB and %d NICs: %s", in.step, id, state, ram, nics, why)
		}
		theirs := get(in.old.vmapi + "/vms/" + id)
		bad := differs("the node", n.here(id)) || differs("the old VMAPI", theirs)
		for i := range in.cluster.Servers {
			ours := get(in.listener("vmapi", i+1) + "/vms/" + id)
			bad = bad || differs(fmt.Sprint("VMAPI of server ", i+1), ours)
			if !bad && (ours["last_modified"] != theirs["last_modified"] || !slices.Equal(macsOf(ours), macsOf(theirs))) {
				bad, why = true, fmt.Sprintf("server %d has it of %v, and the old VMAPI of %v", i+1, ours["last_modified"], theirs["last_modified"])
			}
			if vm := get(in.listener("cnapi", i+1) + "/servers/" + movedNode + "/vms/" + id); !bad && (vm["state"] != state || vm["max_physical_memory"] != ram) {
				bad, why = true, fmt.Sprintf("CNAPI of server %d: %v, %v MiB", i+1, vm["state"], vm["max_physical_memory"])
			}
		}
		var list []object
		if err := call(in.t.Context(), http.MethodGet, in.public.of("napi")+"/nics?belongs_to_type=zone&belongs_to_uuid="+id, nil, &list); err != nil || len(list) != nics {
			bad, why = true, fmt.Sprintf("NAPI has %d NICs (%v)", len(list), err)
		}
		if !bad {
			return
		}
	}
}

// gone waits until no reader has a VM any more: it is destroyed for both VMAPIs, and its
// manifest, its namespace and its NICs are away.
func (n *agentNode) gone(id string) {
	in := n.in
	in.t.Helper()
	in.await("both inventories have VM "+id+" destroyed, and the node nothing of it", func() bool {
		for _, door := range []string{in.old.vmapi, in.listener("vmapi", 1), in.listener("vmapi", 2), in.listener("vmapi", 3)} {
			var vm object
			if err := call(in.t.Context(), http.MethodGet, door+"/vms/"+id, nil, &vm); err != nil || vm["state"] != "destroyed" {
				return false
			}
		}
		var list []object
		err := call(in.t.Context(), http.MethodGet, in.public.of("napi")+"/nics?belongs_to_uuid="+id+"&belongs_to_type=zone", nil, &list)
		_, manifest := os.Stat(filepath.Join(n.dir, "vms", id+".json"))
		_, namespace := os.Stat("/run/netns/" + id)
		return err == nil && len(list) == 0 && errors.Is(manifest, fs.ErrNotExist) && errors.Is(namespace, fs.ErrNotExist)
	})
}

// underlay gives the node an address on the underlay in NAPI, as each node has that is set
// up.
func (in *installation) underlay(napi string) {
	const network = "6f6b2a0e-0003-4c3e-8f3a-0242ac120003"
	in.must(http.MethodPost, napi+"/nic_tags", object{"name": "sdc_underlay", "mtu": 1600})
	in.must(http.MethodPost, napi+"/networks", object{
		"uuid": network, "name": "sdc_underlay", "nic_tag": "sdc_underlay", "vlan_id": 0, "mtu": 1600, "subnet": "192.0.2.0/24", "provision_start_ip": "192.0.2.1", "provision_end_ip": "192.0.2.200",
	})
	in.must(http.MethodPost, napi+"/nics", object{
		"mac": "00:00:5e:00:53:01", "belongs_to_type": "server", "belongs_to_uuid": movedNode, "owner_uuid": theOwner, "network_uuid": network, "ip": labUnderlay, "underlay": true,
	})
}

// linked checks that a VM of one NIC has its link in the kernel, with the NIC's address,
// if it is on a fabric; else the VM runs without one.
func (n *agentNode) linked(id string, want bool) {
	n.in.t.Helper()
	nics, _ := n.here(id)["nics"].([]any)
	if len(nics) != 1 {
		n.in.t.Fatalf("%s: NICs %v, want one", n.in.step, nics)
	}
	nic := nics[0].(object)
	ips, _ := nic["kernel_ips"].([]any)
	if has := len(ips) == 1 && strings.HasPrefix(fmt.Sprint(ips[0]), text(nic, "ip")+"/"); has != want || len(ips) > 1 {
		n.in.t.Errorf("%s: NIC %s %s on %s: the kernel has %v", n.in.step, text(nic, "mac"), text(nic, "ip"), text(nic, "nic_tag"), ips)
	}
}

// life is the life of a VM on the node by the documented calls, through the doors, and
// after each call every reader says the same.
func (n *agentNode) life(ctx context.Context, c *caller, onFabric bool) {
	in := n.in
	in.t.Helper()
	do := func(what string, err error) {
		in.t.Helper()
		if err != nil {
			in.t.Fatalf("%s: %s on a node with `rutter agent`: %v\nthe agent said last:\n%s", in.step, what, err, n.agent.LastLines(40))
		}
	}
	id, err := c.create(ctx, "moved")
	do("provision", err)
	n.same(id, "running", 1024, 1)
	n.linked(id, onFabric)
	do("stop", c.act(ctx, id, "stop", nil, "state", "stopped"))
	n.same(id, "stopped", 1024, 1)
	do("start", c.act(ctx, id, "start", nil, "state", "running"))
	n.same(id, "running", 1024, 1)
	n.linked(id, onFabric)
	do("kill", c.act(ctx, id, "kill", object{"signal": "SIGKILL"}, "state", "stopped"))
	n.same(id, "stopped", 1024, 1)
	do("start", c.act(ctx, id, "start", nil, "state", "running"))
	do("add_nics", c.addNIC(ctx, id))
	n.same(id, "running", 1024, 2)
	do("resize", c.act(ctx, id, "update", object{"ram": 2048, "billing_id": c.billing}, "ram", 2048.0))
	n.same(id, "running", 2048, 2)
	do("delete", c.remove(ctx, id))
	n.gone(id)
}

// nodes is step 7 for one node, and back. The VMs of it are placed by the trait of their
// package; those of all others are not.
func (in *installation) nodes(ctx context.Context) {
	in.t.Helper()
	stopOld := in.smartOS()
	in.await("the node of SmartOS runs", func() bool { return in.cnapi.running(movedNode) })
	n := newAgentNode(in)
	in.during("7 a node runs rutter agent", func() {
		in.must(http.MethodPost, in.public.of("cnapi")+"/servers/"+movedNode, object{"traits": theTrait})
		stopOld()
		n.start()
	})
	c := &caller{names: in.public, network: external, second: admin, owner: theOwner, billing: in.vmapi.sell(theTrait), eachCall: func(name string) { in.counted("agent " + name) }}
	in.during("7 a VM on external and admin networks", func() { n.life(ctx, c, false) })
	in.during("7 a VM on a fabric", func() {
		c.network = in.fabric(0) // not each kernel has VLANs
		n.life(ctx, c, true)
	})
	in.during("7 back: the node runs the old agents", func() {
		if err := n.agent.Stop(syscall.SIGTERM); err != nil {
			in.t.Fatal(err)
		}
		in.must(http.MethodPost, in.public.of("cnapi")+"/servers/"+movedNode, object{"traits": object{}})
		in.smartOS()
		in.await("the old CNAPI and the log have the node as SmartOS's", func() bool {
			var server struct{ Sysinfo object }
			err := call(in.t.Context(), http.MethodGet, in.public.of("cnapi")+"/servers/"+movedNode, nil, &server)
			return err == nil && in.cnapi.running(movedNode) && text(server.Sysinfo, "Rutter Agent") == "" && text(server.Sysinfo, "SDC Version") != ""
		})
	})
	in.during("7 back: a VM on it", func() {
		c.network, c.billing, c.server = external, "", movedNode
		if err := c.cycle(ctx); err != nil {
			in.t.Fatalf("%s: %v", in.step, err)
		}
	})
}
