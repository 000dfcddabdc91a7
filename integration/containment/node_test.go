package containment

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
	"rutter/projections/desired"
	"rutter/varp"
)

// nodeNICs are those of the VM that has many: more than a view may take away.
const nodeNICs = 12

const nodeVNet = 7

// Underlay and overlay addresses of the world: the node, and another one that the
// test programs by hand.
var (
	nodeUnderlay  = netip.MustParseAddr("192.0.2.1")
	otherUnderlay = netip.MustParseAddr("192.0.2.2")
	pingedIP      = netip.MustParseAddr("10.0.0.20")
	otherIP       = netip.MustParseAddr("10.0.0.21")
	otherMAC      = log.MAC{0x90, 0xb8, 0xd0, 0, 2, 2}
)

// node is a compute node with an agent as a process, beside three servers and
// another node, all of them in networks of the test's own.
type node struct {
	t       *testing.T // of the part that runs
	whole   *testing.T // whose end the agent lives to see
	c       *bench.Cluster
	dir     string
	data    string // of the agent: a file system of its own
	pki     string
	cn      log.UUID
	other   log.UUID
	owner   log.UUID
	network log.UUID
	vms     []log.UUID // that is pinged, and that has many NICs
	ports   []int      // of status, SVP and vminfod
	remote  netlab.Namespace
	agent   *subprocess.Process
}

// inLab runs the test again in a process with networks and mounts of its own,
// and reports whether this one is that.
func inLab(t *testing.T) bool {
	t.Helper()
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		return true
	}
	if testing.Short() {
		t.Skip("starts servers and an agent as processes: skipped with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the agent's disk is a file system of its own")
	}
	cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if netlab.Forbidden(err) {
		t.Skip(netlab.ErrForbidden)
	}
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// newNode starts servers and makes the world; the agent does not run yet.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		t: t, whole: t, c: cluster(t, bench.Options{TLS: true}), dir: t.TempDir(),
		cn: client.NewChangeID(), other: client.NewChangeID(), owner: client.NewChangeID(), network: client.NewChangeID(),
		vms: []log.UUID{client.NewChangeID(), client.NewChangeID()},
	}
	n.pki = filepath.Join(filepath.Dir(n.c.Servers[0].LogFile), "pki")
	n.data, n.ports = filepath.Join(n.dir, "agent"), rig.Ports(t, 3)
	var err error
	for _, name := range []string{"agent", "netns", "vms", "run"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(n.dir, name), 0o700))
	}
	if err = errors.Join(err, unix.Mount("rutter-test", n.data, "tmpfs", 0, "size=8m,mode=700")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(n.data, unix.MNT_DETACH) })
	if err := errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", netip.PrefixFrom(nodeUnderlay, 24))); err != nil {
		t.Fatal(err)
	}
	for _, vm := range n.vms {
		n.namespace(vm.String())
	}
	n.remote = n.namespace("remote")
	err = errors.Join(netlab.AddVeth("toremote", "eth0", n.remote, 1600), netlab.SetMaster("toremote", "underlay"), netlab.SetUp("toremote", true),
		n.remote.Do(func() error {
			return errors.Join(netlab.AddAddress("eth0", netip.PrefixFrom(otherUnderlay, 24)), netlab.SetUp("eth0", true))
		}))
	if err != nil {
		t.Fatal(err)
	}
	n.found()
	n.submit(n.crowd()...)
	n.programOther()
	return n
}

func (n *node) namespace(name string) netlab.Namespace {
	n.t.Helper()
	zone, err := netlab.Create(filepath.Join(n.dir, "netns"), name)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := zone.Delete(); err != nil {
			n.t.Error(err)
		}
	})
	return zone
}

func createOp(set string, o log.Object) log.Op {
	return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
}

// found writes what the nodes need into an empty log. The servers may have the node's
// object already: an agent tells what its node is when it begins and when that changes,
// until a server takes it, and the first such report makes the object.
func (n *node) found() {
	n.t.Helper()
	for i, cn := range []log.UUID{n.cn, n.other} {
		change := log.Change{ID: client.NewChangeID(), Ops: []log.Op{createOp("hostname uuid", &log.Server{UUID: cn, Hostname: fmt.Sprintf("cn%d", i)})}}
		_, err := n.c.Client.Submit(patience(n.t), &change)
		var refusal *log.Refusal
		if errors.As(err, &refusal) && cn == n.cn && len(refusal.Errors) == 1 && refusal.Errors[0].Code == log.ElementDuplicate {
			continue
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	n.submit(n.base()...)
}

// base is what two nodes need in a log beside their servers.
func (n *node) base() []log.Op {
	underlay := client.NewChangeID()
	ops := []log.Op{
		createOp("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		createOp("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: underlay, Name: "u", NICTag: "u", MTU: 1600, Subnet: netip.MustParsePrefix("192.0.2.0/24"), ProvisionStart: nodeUnderlay, ProvisionEnd: netip.MustParseAddr("192.0.2.250")}),
		createOp("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id", &log.Network{UUID: n.network, Name: "f", NICTag: "u", Fabric: true, VNetID: nodeVNet, MTU: 1400, OwnerUUIDs: []log.UUID{n.owner}, Subnet: netip.MustParsePrefix("10.0.0.0/24"), ProvisionStart: netip.MustParseAddr("10.0.0.5"), ProvisionEnd: netip.MustParseAddr("10.0.0.250")}),
	}
	for i, cn := range []log.UUID{n.cn, n.other} {
		ops = append(ops, createOp("belongs_to_type belongs_to_uuid cn_uuid ip network_uuid owner_uuid underlay", &log.NIC{BelongsToType: "server", BelongsToUUID: cn, CNUUID: cn, OwnerUUID: n.owner, NetworkUUID: underlay, Underlay: true, IP: []netip.Addr{nodeUnderlay, otherUnderlay}[i]}))
	}
	for _, vm := range n.vms {
		ops = append(ops, createOp("owner_uuid server_uuid uuid", &log.VM{UUID: vm, OwnerUUID: n.owner, ServerUUID: n.cn}))
	}
	return ops
}

// crowd are the NICs: one to ping, one of the other node, and many.
func (n *node) crowd() []log.Op {
	ops := []log.Op{n.nic(n.cn, n.vms[0], pingedMAC, pingedIP), n.nic(n.other, client.NewChangeID(), otherMAC, otherIP)}
	for i := range nodeNICs {
		ops = append(ops, n.nic(n.cn, n.vms[1], crowdMAC(i), netip.AddrFrom4([4]byte{10, 0, 0, byte(30 + i)})))
	}
	return ops
}

var pingedMAC = log.MAC{0x90, 0xb8, 0xd0, 0, 2, 1}

func crowdMAC(i int) log.MAC { return log.MAC{0x90, 0xb8, 0xd0, 0, 3, byte(i)} }

func (n *node) nic(cn, vm log.UUID, mac log.MAC, ip netip.Addr) log.Op {
	return createOp("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid", &log.NIC{
		MAC: mac, IP: ip, BelongsToType: "zone", BelongsToUUID: vm, CNUUID: cn, OwnerUUID: n.owner, NetworkUUID: n.network,
	})
}

func (n *node) submit(ops ...log.Op) log.Seq {
	n.t.Helper()
	result, err := n.c.Client.Submit(patience(n.t), &log.Change{ID: client.NewChangeID(), Ops: ops})
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return result.Last
}

func (n *node) deleteNIC(mac log.MAC) log.Seq {
	return n.submit(log.Op{Action: log.Delete, Kind: log.KindNIC, ID: mac.String()})
}

// programOther makes the other node's side of the vnet, as its agent would.
func (n *node) programOther() {
	n.t.Helper()
	err := n.remote.Do(func() error {
		kernel, err := link.Open(link.Config{NetNSDir: filepath.Join(n.dir, "netns"), EtcNetNSDir: filepath.Join(n.dir, "etc")})
		if err != nil {
			return err
		}
		result, err := link.NewManager(link.ManagerConfig{Kernel: kernel}).Pass(n.t.Context(), desired.Links{
			VXLANs:  []desired.VXLAN{{VNet: nodeVNet, Local: otherUnderlay, Port: 4789, MTU: 1550}},
			Fabrics: []desired.Fabric{{MAC: otherMAC, VNet: nodeVNet, MTU: 1400, Addresses: []netip.Prefix{netip.PrefixFrom(otherIP, 24)}}},
			Neighs:  []desired.Neigh{{Link: otherMAC, IP: pingedIP, MAC: pingedMAC}},
			FDB:     []desired.FDB{{VNet: nodeVNet, MAC: pingedMAC, Dst: nodeUnderlay}},
		}, true)
		if err == nil && !result.Matched {
			err = fmt.Errorf("the other node: %+v", result)
		}
		return errors.Join(err, kernel.Close())
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// certify gives the agent a certificate of that life.
func (n *node) certify(life time.Duration) {
	n.t.Helper()
	if _, err := (tlsgate.Issuer{Folder: n.pki}).Issue(n.tls(), tlsgate.Grant{Identity: matrix.Identity{Role: matrix.CN, UUID: n.cn}, Life: life}); err != nil {
		n.t.Fatal(err)
	}
}

// certifyLongAgo gives the node a certificate that ended too long ago to be renewed.
func (n *node) certifyLongAgo() {
	n.t.Helper()
	fatal := func(err error) {
		n.t.Helper()
		if err != nil {
			n.t.Fatal(err)
		}
	}
	authorities, err := tlsgate.ReadCertificates(filepath.Join(n.pki, tlsgate.CAFile))
	fatal(err)
	keys, err := tlsgate.ReadKeys(filepath.Join(n.pki, tlsgate.CAKeyFile), "")
	fatal(err)
	paths := tlsgate.ClientPaths(n.tls())
	key, err := paths.NextKey()
	fatal(err)
	order := pki.Order{Identity: matrix.Identity{Role: matrix.CN, UUID: n.cn}, Key: key.Public(), Life: time.Hour}
	authority := &pki.Authority{Certificate: authorities[0], Key: keys[0]}
	leaf, err := authority.Issue(order, time.Now().Add(-time.Duration(log.RenewalGrace)-2*time.Hour), rand.Reader)
	fatal(err)
	fatal(paths.Install(leaf))
}

func (n *node) tls() string { return filepath.Join(n.dir, "tls") }

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// start starts the agent.
func (n *node) start(flags ...string) {
	n.t.Helper()
	path := func(name string) string { return filepath.Join(n.dir, name) }
	n.agent = &subprocess.Process{Name: "the agent", Program: program, LogFile: path("agent.log"), Args: append([]string{
		"agent", "--cn", n.cn.String(), "--data", n.data, "--servers", strings.Join(n.c.Client.Servers(), ","), "--tls-dir", n.tls(),
		"--listen", loopback(n.ports[0]), "--svp", loopback(n.ports[1]), "--vminfod", loopback(n.ports[2]),
		"--manifests", path("vms"), "--vm-run", path("run"), "--nic-sync=false", "--netns", path("netns"), "--etc-netns", path("etc"),
	}, flags...)}
	rig.Start(n.whole, n.agent)
}

// stop ends the agent; it must have run until now.
func (n *node) stop() {
	n.t.Helper()
	if !n.agent.Runs() {
		n.t.Fatalf("the agent has ended by itself:\n%s", n.agent.Tail())
	}
	if err := n.agent.Stop(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
}

// status is what the agent says of itself; Incarnation is 0 if it does not answer.
func (n *node) status() (s agent.Status) {
	response, err := http.Get("http://" + loopback(n.ports[0]) + "/status")
	if err != nil {
		return s
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&s)
	return s
}

// until waits until the agent says so.
func (n *node) until(what string, is func(s agent.Status) bool) agent.Status {
	n.t.Helper()
	ctx := patience(n.t)
	for {
		if s := n.status(); is(s) {
			return s
		}
		select {
		case <-n.agent.Ended():
			n.t.Fatalf("%s: the agent has ended:\n%s", what, n.agent.Tail())
		case <-ctx.Done():
			n.t.Fatalf("%s: in vain; %+v", what, n.status())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// programmed waits until the kernel matches the log there.
func (n *node) programmed(seq log.Seq) {
	n.t.Helper()
	n.until(fmt.Sprintf("the kernel at seq %d", seq), func(s agent.Status) bool { return s.Programmed >= seq })
}

// kernel is what there is of links of ours by their MAC and name, with all that hangs on them.
func (n *node) kernel() string {
	n.t.Helper()
	h, err := link.Open(link.Config{NetNSDir: filepath.Join(n.dir, "netns")})
	if err != nil {
		n.t.Fatal(err)
	}
	defer h.Close()
	snapshot, err := h.Dump(n.t.Context(), []string{n.vms[0].String(), n.vms[1].String()})
	if err != nil {
		n.t.Fatal(err)
	}
	var b strings.Builder
	for _, l := range snapshot.Links {
		if l.Kind == "vxlan" {
			l.MAC = log.MAC{} // the kernel draws it
		}
		if l.Kind == "vxlan" || l.Namespace != "" && l.IsFabric() {
			fmt.Fprintf(&b, "%s %s %s up=%v addresses=%v neighbours=%v fdb=%v\n", l.Namespace, l.Name, l.MAC, l.Up, l.Addresses, l.Neighs, l.FDB)
		}
	}
	return b.String()
}

// forwards fails unless a packet goes to the other node and back, and SVP knows it.
func (n *node) forwards(when string) {
	n.t.Helper()
	if _, err := n.remote.Ping(pingedIP, 64, 10*time.Second); err != nil {
		n.t.Fatalf("%s: %v", when, err)
	}
	n.resolves(when, true)
}

// resolves fails unless the agent's SVP answers as it should.
func (n *node) resolves(when string, want bool) {
	n.t.Helper()
	svp, err := varp.NewClient(varp.ClientConfig{Servers: []string{loopback(n.ports[1])}})
	if err != nil {
		n.t.Fatal(err)
	}
	defer svp.Close()
	mac, at, err := svp.VL3(patience(n.t), nodeVNet, otherIP)
	if is := err == nil && mac == otherMAC && at.Addr == otherUnderlay; is != want {
		n.t.Fatalf("%s: SVP answers %s at %v, %v; want an answer %v", when, mac, at, err, want)
	}
}

// run runs rutter as an operator.
func (n *node) run(args ...string) (string, error) {
	folder := filepath.Join(n.dir, "operator")
	if _, err := os.Stat(folder); err != nil {
		if _, err := (tlsgate.Issuer{Folder: n.pki}).Issue(folder, tlsgate.Grant{Identity: matrix.Identity{Role: matrix.Operator, Name: "test"}, Life: time.Hour}); err != nil {
			n.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "RUTTER_TLS_DIR="+folder)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
