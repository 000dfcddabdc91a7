package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
)

// patience bounds each wait, of a machine that may be busy.
const patience = 3 * time.Minute

// mtu is that of the fabric.
const mtu = 1400

// enter runs the test in a process with networks, mounts and a /run of its own, and
// reports whether this one is that.
func enter(t *testing.T) bool {
	t.Helper()
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		if err := unix.Mount("rutter-test", "/run", "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if testing.Short() {
		t.Skip("boots a machine: skipped with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: VMs have cgroups and taps")
	}
	cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Log(out.String())
	if netlab.Forbidden(err) {
		t.Skipf("no namespaces here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "--- SKIP: ") {
		t.Skip("skipped inside: see above")
	}
	return false
}

// world is a cluster with two compute nodes and a fabric.
type world struct {
	t       *testing.T
	dir     string
	c       *bench.Cluster
	owner   log.UUID
	network log.UUID
	nodes   []*node
}

// node is a compute node.
type node struct {
	*world
	cn          log.UUID
	ns          netlab.Namespace
	dir, cgroup string
	agent       *subprocess.Process
}

func create(set string, o log.Object) log.Op {
	return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), owner: client.NewChangeID(), network: client.NewChangeID()}
	if err := errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", netip.MustParsePrefix("192.0.2.254/24"))); err != nil {
		t.Fatal(err)
	}
	w.c = rig.Cluster(t, bench.Options{Program: program, Host: "192.0.2.254", Flags: []string{"--insecure"}, Client: client.Config{AttemptTimeout: 2 * time.Second}})
	underlay, prefix, addr := client.NewChangeID(), netip.MustParsePrefix, netip.MustParseAddr
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: underlay, Name: "u", NICTag: "u", MTU: 1600, Subnet: prefix("192.0.2.0/24"), ProvisionStart: addr("192.0.2.1"), ProvisionEnd: addr("192.0.2.250")}),
		create("dhcp fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id", &log.Network{UUID: w.network, Name: "f", NICTag: "u", DHCP: true, Fabric: true, VNetID: 7, MTU: mtu, OwnerUUIDs: []log.UUID{w.owner}, Subnet: prefix("10.0.0.0/24"), ProvisionStart: addr("10.0.0.5"), ProvisionEnd: addr("10.0.0.200")}),
	}
	for i := range 2 {
		n := w.newNode(i + 1)
		mac := log.MAC{0, 0, 0x5e, 0, 0x53, byte(i + 1)}
		ops = append(ops,
			create("hostname uuid", &log.Server{UUID: n.cn, Hostname: n.ns.Name}),
			create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid underlay", &log.NIC{MAC: mac, BelongsToType: "server", BelongsToUUID: n.cn, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: underlay, Underlay: true, IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}))
		w.nodes = append(w.nodes, n)
	}
	if _, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.startAgent()
	}
	return w
}

func (w *world) newNode(i int) *node {
	w.t.Helper()
	n := &node{world: w, cn: client.NewChangeID(), dir: filepath.Join(w.dir, strconv.Itoa(i))}
	n.cgroup = filepath.Join(filepath.Dir(system.DefaultCgroup()), fmt.Sprintf("rutter-qemu-%d-%s", i, n.cn))
	if err := errors.Join(os.MkdirAll("/run/cns", 0o755), os.MkdirAll(filepath.Join(n.dir, "vms"), 0o700), os.Mkdir(n.cgroup, 0o755)); err != nil {
		w.t.Skip(err)
	}
	w.t.Cleanup(n.sweep)
	var err error
	if n.ns, err = netlab.Create("/run/cns", fmt.Sprintf("cn%d", i)); err != nil {
		w.t.Fatal(err)
	}
	out := fmt.Sprintf("v%d", i)
	err = errors.Join(netlab.AddVeth(out, "e0", n.ns, 1600), netlab.SetMaster(out, "underlay"), netlab.SetUp(out, true), n.ns.Do(func() error {
		return errors.Join(netlab.SetMAC("e0", [6]byte{0, 0, 0x5e, 0, 0x53, byte(i)}), netlab.SetUp("e0", true),
			netlab.AddAddress("e0", netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 24)))
	}))
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// sweep ends what is left in the node's cgroups, and removes them.
func (n *node) sweep() {
	_ = filepath.WalkDir(n.cgroup, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "cgroup.procs" {
			text, _ := os.ReadFile(path)
			for _, line := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		return nil
	})
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		vms, _ := filepath.Glob(filepath.Join(n.cgroup, "*-*"))
		others, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(n.cgroup) + "-*") // of other controllers, in version 1
		for _, path := range append(vms, others...) {
			_ = os.Remove(path)
		}
		if err := os.Remove(n.cgroup); (err == nil || errors.Is(err, fs.ErrNotExist)) && len(others) == 0 {
			return
		}
	}
	n.t.Errorf("%s is left", n.cgroup)
}

// command is the program on this compute node.
func (n *node) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "RUTTER_MANIFESTS="+filepath.Join(n.dir, "vms"), "RUTTER_VM_RUN="+filepath.Join(n.dir, "run"), "RUTTER_VM_CGROUP="+n.cgroup,
		"RUTTER_AGENT_SOCKET=/run/cns/"+n.ns.Name+".sock", "RUTTER_SERVER="+strings.Join(n.c.Client.Servers(), ","))
	return cmd
}

func (n *node) startAgent() {
	n.t.Helper()
	args := []string{"agent", "--cn", n.cn.String(), "--data", filepath.Join(n.dir, "agent"), "--svp", "off", "--servers", strings.Join(n.c.Client.Servers(), ",")}
	cmd := n.command(args...)
	n.agent = &subprocess.Process{
		Name: "the agent of " + n.ns.Name, Program: cmd.Path, Args: args, Env: cmd.Env, LogFile: filepath.Join(n.dir, "agent.log"),
		Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
	}
	rig.Start(n.t, n.agent)
	n.until("its vminfod answers", func() bool {
		_, err := n.rutter("vminfo", "ping")
		return err == nil
	})
}

// rutter runs a command on this compute node.
func (n *node) rutter(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := n.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.ns.Do(cmd.Run)
	return out.String(), err
}

func (n *node) must(args ...string) string {
	n.t.Helper()
	out, err := n.rutter(args...)
	if err != nil {
		n.t.Fatalf("rutter %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// vm is a VM that runs.
type vm struct {
	*node
	id  log.UUID
	mac log.MAC
	ip  netip.Addr
}

// create makes a VM with a NIC of the fabric and starts it.
func (n *node) create(fields ...string) *vm {
	n.t.Helper()
	args := append([]string{"vm", "create", "-o", "json", "owner_uuid=" + n.owner.String(), fmt.Sprintf(`nics=[{"network_uuid":%q}]`, n.network), "--start", "--wait=fabric"}, fields...)
	var made struct{ UUID log.UUID }
	if out := n.must(args...); json.Unmarshal([]byte(out), &made) != nil || made.UUID.IsZero() {
		n.t.Fatalf("vm create said %s", out)
	}
	v := &vm{node: n, id: made.UUID}
	nic := v.field("nics").([]any)[0].(map[string]any)
	var err error
	if v.mac, err = log.ParseMAC(nic["mac"].(string)); err != nil {
		n.t.Fatal(err)
	}
	v.ip = netip.MustParseAddr(nic["ip"].(string))
	return v
}

// field is a field of the VM as its node shows it.
func (v *vm) field(name string) any {
	v.t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(v.must("vminfo", "vm", v.id.String())), &fields); err != nil {
		v.t.Fatal(err)
	}
	return fields[name]
}

// pid is the VM's process, 0 if none.
func (v *vm) pid() int {
	number, _ := v.field("pid").(float64)
	return int(number)
}

// metrics are those of the node's agent.
func (n *node) metrics() string {
	n.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = n.ns.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://127.0.0.1:5309/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// at reads a field of an object at one server.
func (w *world) at(s *bench.Server, path, name string) string {
	one, err := client.New(client.Config{Servers: []string{s.URL}})
	if err != nil {
		w.t.Fatal(err)
	}
	defer one.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	object, err := one.Get(ctx, path, nil)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(object[name])
}

// everywhere waits until each server has the VM in a state.
func (v *vm) everywhere(state string) {
	v.t.Helper()
	for _, s := range v.c.Servers {
		v.until(fmt.Sprintf("%s has VM %s %s", s.ID, v.id, state), func() bool { return v.at(s, "/vms/"+v.id.String(), "state") == state })
	}
}
