package vmsource

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/agent/vmsource/registered"
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

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &program)) }

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
		cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v="+fmt.Sprint(testing.Verbose()))
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
	return true
}

// world is a cluster of one server and two compute nodes, with two fabric networks.
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
	ops := w.networks()
	for i := range w.nodes {
		n, more := w.newNode(i)
		w.nodes[i] = n
		ops = append(ops, more...)
	}
	if _, err := w.cluster.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.start()
	}
	for _, n := range w.nodes {
		n.until("the socket", func() error { _, err := n.client().List(t.Context()); return err })
	}
	return w
}

func create(set string, o log.Object) log.Op {
	return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
}

var (
	underlayNetwork = client.NewChangeID()
	networks        = [2]log.UUID{client.NewChangeID(), client.NewChangeID()} // web, which is open to nodes, and db
)

// networks are the operations that make the networks: the underlay, web and db.
func (w *world) networks() []log.Op {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: underlayNetwork, Name: "u", NICTag: "u", MTU: 1600, Subnet: prefix("192.0.2.0/24"), ProvisionStart: addr("192.0.2.1"), ProvisionEnd: addr("192.0.2.250")}),
	}
	for i, name := range []string{"web", "db"} {
		open := []string{log.SelfProvisionAny, log.SelfProvisionOff}[i]
		ip := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i), 0, last}) }
		ops = append(ops, create("fabric gateway mtu name nic_tag owner_uuids provision_end_ip provision_start_ip resolvers routes self_provision subnet uuid vnet_id", &log.Network{
			UUID: networks[i], Name: name, NICTag: "u", Fabric: true, VNetID: 7 + uint32(i), MTU: 1400, OwnerUUIDs: []log.UUID{w.owner}, SelfProvision: open,
			Subnet: netip.PrefixFrom(ip(0), 24), ProvisionStart: ip(5), ProvisionEnd: ip(200), Gateway: ip(1), Resolvers: []netip.Addr{ip(2)},
			Routes: []log.Route{{Dst: fmt.Sprintf("10.20%d.0.0/16", i), Gateway: ip(3).String()}},
		}))
	}
	return ops
}

// newNode makes node i's namespace, and returns the operations that put it into the log.
func (w *world) newNode(i int) (*node, []log.Op) {
	name := fmt.Sprintf("cn%d", i)
	n := &node{w: w, i: i, cn: client.NewChangeID(), dir: filepath.Join(w.dir, name)}
	n.zones, n.socket = filepath.Join(n.dir, "netns"), filepath.Join(n.dir, "agent.sock")
	if err := errors.Join(os.MkdirAll(n.zones, 0o755), os.MkdirAll(filepath.Join(n.dir, "manifests"), 0o700)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := (tlsgate.Issuer{Folder: filepath.Join(w.dir, "cluster", "pki")}).Issue(filepath.Join(n.dir, "tls"), tlsgate.Grant{Identity: matrix.Identity{Role: matrix.CN, UUID: n.cn}, Life: pki.Life}); err != nil {
		w.t.Fatal(err)
	}
	n.ns = w.space(n.dir, name)
	mac, out, addr := [6]byte{0, 0, 0x5e, 0, 0x53, byte(i + 1)}, fmt.Sprintf("v%d", i), netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
	err := errors.Join(netlab.AddVeth(out, "e0", n.ns, 1600), netlab.SetMaster(out, "underlay"), netlab.SetUp(out, true), n.ns.Do(func() error {
		return errors.Join(netlab.SetMAC("e0", mac), netlab.SetUp("e0", true), netlab.AddAddress("e0", netip.PrefixFrom(addr, 24)))
	}))
	if err != nil {
		w.t.Fatal(err)
	}
	return n, []log.Op{
		create("hostname uuid", &log.Server{UUID: n.cn, Hostname: name}),
		create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid underlay", &log.NIC{MAC: mac, BelongsToType: "server", BelongsToUUID: n.cn, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: underlayNetwork, Underlay: true, IP: addr}),
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
			"agent", "--cn", n.cn.String(), "--data", filepath.Join(n.dir, "data"), "--svp", "off", "--listen", "off", "--socket", n.socket, "--tls-dir", filepath.Join(n.dir, "tls"), "--vm-run", filepath.Join(n.dir, "run"),
			"--servers", strings.Join(n.w.cluster.Client.Servers(), ","), "--netns", n.zones, "--etc-netns", filepath.Join(n.dir, "etc"),
			"--manifests", filepath.Join(n.dir, "manifests"), "--vminfod", "127.0.0.1:9090",
			"--port-security", "on", "--require-port-security", "--underlay-interface", "e0",
		},
	}
	rig.Start(n.w.t, n.agent)
}

// client registers VMs at the node's agent.
func (n *node) client() *registered.Client {
	return &registered.Client{Source: "local", Socket: n.socket}
}

// rutter runs a command on the node.
func (n *node) rutter(args ...string) (string, error) {
	cmd := exec.CommandContext(n.w.t.Context(), program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "RUTTER_AGENT_SOCKET=" + n.socket, "RUTTER_MANIFESTS=" + filepath.Join(n.dir, "manifests"), "RUTTER_VM_RUN=" + filepath.Join(n.dir, "run"), "RUTTER_NETNS=" + n.zones}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.ns.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("rutter %s: %w: %s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), err
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
