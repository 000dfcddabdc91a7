package cni

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
)

// program is the binary under test.
var program string

// toolEnv names cnitool, for a test that starts itself in namespaces.
const toolEnv = "RUTTER_CNITOOL"

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &program)) }

// pluginFolder has the plugins of Debian's package containernetworking-plugins. Variable CNI_PATH
// names another one.
const pluginFolder = "/usr/lib/cni"

// patience bounds each wait, of a machine that may be busy.
const patience = time.Minute

// enter runs the test again in namespaces of its own, unless it is there already, and reports
// whether it is.
func enter(t *testing.T) bool {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers as processes: skipped with -short")
	}
	if !netlab.Inside() {
		tool := buildTool(t)
		cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v="+fmt.Sprint(testing.Verbose()))
		cmd.Env = append(cmd.Env, toolEnv+"="+tool)
		err := cmd.Run()
		if netlab.Forbidden(err) {
			t.Skip(netlab.ErrForbidden)
		}
		if err != nil {
			t.Fatal(err)
		}
		return false
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	// Runtimes keep what they know in /var/lib, and look for namespaces in /run.
	for _, dir := range []string{"/var/lib", "/run"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// builtTool is cnitool, in the version of scripts/tools.mod, built once for the whole run.
var builtTool = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(program), "cnitool") // removed with the program
	cmd := exec.Command("go", "build", "-modfile=scripts/tools.mod", "-o", path, "github.com/containernetworking/cni/cnitool")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func buildTool(t *testing.T) string {
	t.Helper()
	path, err := builtTool()
	if err != nil {
		t.Skipf("cnitool cannot be built here (it needs the Go module proxy once): %v", err)
	}
	return path
}

// world is a cluster of one server and two compute nodes, with two fabric networks that are
// open to nodes. All connections have TLS: a node has its own certificate only.
type world struct {
	t       *testing.T
	dir     string
	cluster *bench.Cluster
	owner   log.UUID
	nodes   [2]*node
}

// node is one compute node.
type node struct {
	w      *world
	i      int
	cn     log.UUID
	ns     netlab.Namespace
	dir    string
	zones  string // of the network namespaces
	socket string
	agent  *subprocess.Process
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), owner: client.NewChangeID()}
	address := netip.MustParsePrefix("192.0.2.254/24")
	if err := errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", address)); err != nil {
		t.Fatal(err)
	}
	w.cluster = rig.Cluster(t, bench.Options{Program: program, Servers: 1, TLS: true, Dir: filepath.Join(w.dir, "cluster"), Host: address.Addr().String(), Flags: []string{"--log-level=error"}})
	var servers, nics []log.Op
	for i := range w.nodes {
		n, server, nic := w.newNode(i)
		w.nodes[i], servers, nics = n, append(servers, server), append(nics, nic)
	}
	ops := slices.Concat(servers, w.networks(), nics)
	if _, err := w.cluster.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.start()
	}
	for _, n := range w.nodes {
		n.until("STATUS", func() error { _, err := n.plugin("STATUS", n.conf("web", ""), nil); return err })
	}
	return w
}

func create(set string, o log.Object) log.Op {
	return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
}

// underlayNetwork is the network of the nodes, networks are those of containers, by name. That of
// web is the UUID in docs/vms.md.
var (
	underlayNetwork = client.NewChangeID()
	networks        = map[string]log.UUID{
		"web": {0x0e, 0x70, 0xde, 0x36, 0xa4, 0x0b, 0x4a, 0xc0, 0x94, 0x29, 0x81, 0x9f, 0x5f, 0xf8, 0x20, 0x11},
		"db":  client.NewChangeID(),
	}
)

// networks are the operations that make the networks: the underlay, web and db.
func (w *world) networks() []log.Op {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: underlayNetwork, Name: "u", NICTag: "u", MTU: 1600, Subnet: prefix("192.0.2.0/24"), ProvisionStart: addr("192.0.2.1"), ProvisionEnd: addr("192.0.2.250")}),
	}
	for i, name := range []string{"web", "db"} {
		ip := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i), 0, last}) }
		ops = append(ops, create("fabric gateway mtu name nic_tag owner_uuids provision_end_ip provision_start_ip resolvers routes self_provision subnet uuid vnet_id", &log.Network{
			UUID: networks[name], Name: name, NICTag: "u", Fabric: true, VNetID: 7 + uint32(i), MTU: 1400, OwnerUUIDs: []log.UUID{w.owner}, SelfProvision: log.SelfProvisionAny,
			Subnet: netip.PrefixFrom(ip(0), 24), ProvisionStart: ip(5), ProvisionEnd: ip(200), Gateway: ip(1), Resolvers: []netip.Addr{ip(2)},
			Routes: []log.Route{{Dst: fmt.Sprintf("10.20%d.0.0/16", i), Gateway: ip(3).String()}},
		}))
	}
	return ops
}

// newNode makes node i's namespace, and returns the operations that put it, and its address, into the log.
func (w *world) newNode(i int) (n *node, server, nic log.Op) {
	name := fmt.Sprintf("cn%d", i)
	n = &node{w: w, i: i, cn: client.NewChangeID(), dir: filepath.Join(w.dir, name)}
	n.zones, n.socket = filepath.Join(n.dir, "netns"), filepath.Join(n.dir, "agent.sock")
	if err := errors.Join(os.MkdirAll(n.zones, 0o755), os.MkdirAll(filepath.Join(n.dir, "conf"), 0o755), os.MkdirAll(filepath.Join(n.dir, "bin"), 0o755), os.Symlink(program, filepath.Join(n.dir, "bin", "rutter"))); err != nil {
		w.t.Fatal(err)
	}
	w.issue(filepath.Join(n.dir, "tls"), matrix.Identity{Role: matrix.CN, UUID: n.cn})
	n.ns = w.space(n.dir, name)
	mac, out, addr := [6]byte{0, 0, 0x5e, 0, 0x53, byte(i + 1)}, fmt.Sprintf("v%d", i), netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
	err := errors.Join(netlab.AddVeth(out, "e0", n.ns, 1600), netlab.SetMaster(out, "underlay"), netlab.SetUp(out, true), n.ns.Do(func() error {
		return errors.Join(netlab.SetMAC("e0", mac), netlab.SetUp("e0", true), netlab.AddAddress("e0", netip.PrefixFrom(addr, 24)))
	}))
	if err != nil {
		w.t.Fatal(err)
	}
	return n, create("hostname uuid", &log.Server{UUID: n.cn, Hostname: name}),
		create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid underlay", &log.NIC{MAC: mac, BelongsToType: "server", BelongsToUUID: n.cn, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: underlayNetwork, Underlay: true, IP: addr})
}

// issue writes a certificate with its key into a folder.
func (w *world) issue(folder string, who matrix.Identity) {
	w.t.Helper()
	if _, err := (tlsgate.Issuer{Folder: filepath.Join(w.dir, "cluster", "pki")}).Issue(folder, tlsgate.Grant{Identity: who, Life: pki.Life}); err != nil {
		w.t.Fatal(err)
	}
}

// space makes a network namespace.
func (w *world) space(dir, name string) netlab.Namespace {
	w.t.Helper()
	ns, err := netlab.Create(dir, name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = ns.Delete() }) // a test may have deleted it
	return ns
}

// start starts the agent of a node.
func (n *node) start() {
	n.w.t.Helper()
	n.agent = &subprocess.Process{
		Name: fmt.Sprintf("agent of cn%d", n.i), Program: program, LogFile: filepath.Join(n.dir, "agent.log"),
		Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
		Args: []string{
			"agent", "--cn", n.cn.String(), "--data", filepath.Join(n.dir, "data"), "--svp", "off", "--listen", "off", "--socket", n.socket, "--tls-dir", filepath.Join(n.dir, "tls"),
			"--servers", strings.Join(n.w.cluster.Client.Servers(), ","), "--netns", n.zones, "--etc-netns", filepath.Join(n.dir, "etc"),
			"--manifests", filepath.Join(n.dir, "manifests"), "--vminfod", "127.0.0.1:9090",
			"--port-security", "on", "--require-port-security", "--underlay-interface", "e0",
		},
	}
	rig.Start(n.w.t, n.agent)
}

// conf writes the node's configuration for a network of that name, with more members of the
// plugin, and returns the plugin's own. Its name is the network's. A node with a certificate finds
// a network on which it has no NIC by its UUID only.
func (n *node) conf(network, more string, after ...string) string {
	n.w.t.Helper()
	asked := network
	if id, has := networks[network]; has {
		asked = id.String()
	}
	plugins := append([]string{fmt.Sprintf(`{"type": "rutter", "network": %q, "owner_uuid": %q, "socket": %q, "netns": %q, "capabilities": {"ips": true, "mac": true}%s}`, asked, n.w.owner, n.socket, n.zones, more)}, after...)
	versions := `"1.0.0", "1.1.0"` // podman 4 knows the first, and reads cniVersion only
	if len(after) > 0 {
		versions = `"1.0.0"` // as the plugins of Debian 12
	}
	text := fmt.Sprintf(`{"cniVersion": "1.0.0", "cniVersions": [%s], "name": %q, "plugins": [%s]}`, versions, network, strings.Join(plugins, ", "))
	if err := os.WriteFile(filepath.Join(n.dir, "conf", network+".conflist"), []byte(text), 0o600); err != nil {
		n.w.t.Fatal(err)
	}
	return strings.Replace(strings.TrimSuffix(plugins[0], "}"), "{", fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, `, network), 1) + "}"
}

// run runs a program in the node's namespace.
func (n *node) run(ctx context.Context, env []string, input, name string, args ...string) (stdout string, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), "CNI_PATH="+filepath.Join(n.dir, "bin")+":"+cmp.Or(os.Getenv("CNI_PATH"), pluginFolder), "NETCONFPATH="+filepath.Join(n.dir, "conf")), env...)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err = n.ns.Do(cmd.Start); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s %v: %w: %s%s", filepath.Base(name), args, err, out.String(), errs.String())
	}
	return out.String(), err
}

// tool runs cnitool: add, check, del, gc or status of a network and a container.
func (n *node) tool(command, network string, c netlab.Namespace, env ...string) (result, error) {
	var r result
	out, err := n.run(n.w.t.Context(), env, "", os.Getenv(toolEnv), command, network, c.Path())
	if err == nil && command == "add" {
		err = json.Unmarshal([]byte(out), &r)
	}
	return r, err
}

// plugin runs the plugin itself, as a runtime does.
func (n *node) plugin(command, input string, env []string) (string, error) {
	return n.run(n.w.t.Context(), append(env, "CNI_COMMAND="+command), input, filepath.Join(n.dir, "bin", "rutter"))
}

// must fails the test at an error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// result is what ADD returned.
type result struct {
	Interfaces []struct {
		Name, Mac, Sandbox string
		MTU                int
	}
	IPs []struct {
		Address, Gateway string
		Interface        int
	}
	Routes []struct{ Dst, GW string }
	DNS    struct{ Nameservers []string }
}

// ip is the container's address.
func (r result) ip(t *testing.T) netip.Addr {
	t.Helper()
	if len(r.IPs) == 0 {
		t.Fatalf("no address in %+v", r)
	}
	return netip.MustParsePrefix(r.IPs[0].Address).Addr()
}

// until waits until something succeeds.
func (n *node) until(what string, try func() error) {
	n.w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			n.w.t.Fatalf("%s: %v", what, err)
		}
	}
}

// macs are the MACs of the NICs in the log that belong to VMs on a node.
func (n *node) macs() (macs []string, err error) {
	nics, err := n.w.cluster.Client.List(n.w.t.Context(), "/nics", map[string][]string{"cn_uuid": {n.cn.String()}, "belongs_to_type": {"zone"}})
	for _, nic := range nics {
		macs = append(macs, nic["mac"].(string))
	}
	return macs, err
}

// container makes a network namespace for a container.
func (n *node) container(name string) netlab.Namespace { return n.w.space(n.zones, name) }
