package operate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/agent"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
)

// upgradeWorld is three servers and two compute nodes with agents, each node in a network of
// its own on one bridge, and a VM with a NIC of one fabric on each.
type upgradeWorld struct {
	t       *testing.T
	c       *bench.Cluster
	old     string // the program of the release before
	dir     string
	network log.UUID
	owner   log.UUID
	nodes   []*upgradeNode
	asked   int // commands, of the programs of both releases in turn
}

// upgradeNode is one compute node.
type upgradeNode struct {
	name   string
	cn     log.UUID
	ns     netlab.Namespace
	zones  string   // the folder of its VMs' network namespaces
	status string   // URL
	args   []string // of the agent
	agent  *subprocess.Process
	first  *upgradeVM // is pinged all along
	late   *upgradeVM // that the last step made
}

// upgradeVM is a VM with one NIC: a network namespace.
type upgradeVM struct {
	id  log.UUID
	ns  netlab.Namespace
	mac log.MAC
	ip  netip.Addr
}

// Agents and servers of the release before and of this one in each pair: a node's kernel keeps
// each link while its agent or its server is replaced, in both directions, and VMs reach each
// other all the time; a new NIC is in both kernels when the barrier answers, whichever
// server is asked; what is deleted goes. Writers and tails go on. Agents do not count when the
// cluster is finalized, and the old ones go on afterwards.
func TestUpgradeWithAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers and agents as processes: skipped with -short")
	}
	t.Parallel()
	built := os.Getenv(builtEnv)
	if !netlab.Inside() {
		if built = oldProgram(t); built == program {
			built = ""
		}
	}
	if !inSpaces(t, built) {
		return
	}
	// The old program does not know the setting, and ignores the variable.
	if err := os.Setenv("RUTTER_FINALIZE", "manual"); err != nil {
		t.Fatal(err)
	}
	w := newUpgradeWorld(t, cmp.Or(built, program))
	writing := startWriters(t, w.c.Client, 2)
	tails := []*tail{startTail(t, "the tail of the release before", w.old, w.c.Client), startTail(t, "the tail of this release", program, w.c.Client)}
	pings := []*pings{startPings(t, w.nodes[0], w.nodes[1]), startPings(t, w.nodes[1], w.nodes[0])}
	begun := features(t, w.c.Client)
	w.grows("at the begin")

	w.agents(program)
	w.servers(program)
	if w.old != program { // the short form has restarted each process once
		w.servers(w.old)
		w.agents(w.old)
		w.servers(program)
		w.agents(program)
		w.agents(w.old)
	}
	if now := features(t, w.c.Client); fmt.Sprint(now) != fmt.Sprint(begun) {
		t.Errorf("feature versions %v before they were finalized, and they began with %v", now, begun)
	}
	if w.old != program {
		tails[0].check(t, w.head(), writing.sofar())
		w.finalized()
		tails = tails[1:]
	}
	for _, p := range pings {
		p.check(t)
	}
	if w.old != program {
		w.secured()
	}
	writing.awaitMore(20)
	acked := writing.stop()
	checkLogs(t, w.c.Client, acked)
	for _, f := range tails {
		f.check(t, w.head(), acked)
	}
}

// finalized is what agents of the release before do when the cluster has been finalized, before
// and after agents of this release have written what the others do not know.
func (w *upgradeWorld) finalized() {
	w.t.Helper()
	w.t.Log(w.rutter(program, "cluster", "finalize"))
	w.await("the feature version to rise", func() (string, bool) {
		now := features(w.t, w.c.Client)
		return fmt.Sprint(now), now[0] == log.FeatureVersion && now[1] == now[0] && now[2] == now[0]
	})
	w.grows("finalized, with agents of the release before")
	w.agents(program)
	for _, n := range w.nodes {
		w.await("what the underlay of "+n.name+" carries, in the log", func() (string, bool) {
			s, err := w.c.Client.Get(w.t.Context(), "/servers/"+n.cn.String(), nil)
			return fmt.Sprint(s, err), err == nil && s["underlay_mtu"] != nil
		})
	}
	w.agents(w.old)
	w.agents(program)
}

// secured is the way back of a node with port security, which the release before does not know:
// this release takes it off, and the links are those of the release before.
func (w *upgradeWorld) secured() {
	w.t.Helper()
	n := w.nodes[1]
	for _, choice := range []string{"on", "off"} {
		w.restart(n, program, "--port-security", choice)
		w.grows("port security is " + choice)
	}
	w.agents(w.old)
	w.agents(program)
}

func (w *upgradeWorld) head() log.Seq {
	w.t.Helper()
	head, err := w.c.Client.Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return head
}

func newUpgradeWorld(t *testing.T, old string) *upgradeWorld {
	t.Helper()
	w := &upgradeWorld{t: t, old: old, dir: t.TempDir(), network: client.NewChangeID(), owner: client.NewChangeID()}
	if err := errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", netip.MustParsePrefix("192.0.2.254/24"))); err != nil {
		t.Fatal(err)
	}
	w.c = rig.Cluster(t, bench.Options{Program: old, Host: "192.0.2.254", Flags: []string{"--insecure"}, Client: client.Config{AttemptTimeout: 2 * time.Second}})
	underlay := client.NewChangeID()
	ops := []log.Op{
		creates("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		creates("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: underlay, Name: "u", NICTag: "u", MTU: 1600, Subnet: netip.MustParsePrefix("192.0.2.0/24"), ProvisionStart: netip.MustParseAddr("192.0.2.1"), ProvisionEnd: netip.MustParseAddr("192.0.2.250")}),
		creates("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id", &log.Network{UUID: w.network, Name: "f", NICTag: "u", Fabric: true, VNetID: 7, MTU: 1400, OwnerUUIDs: []log.UUID{w.owner}, Subnet: netip.MustParsePrefix("10.7.0.0/24"), ProvisionStart: netip.MustParseAddr("10.7.0.5"), ProvisionEnd: netip.MustParseAddr("10.7.0.200")}),
	}
	for i := range 2 {
		n := w.newUpgradeNode(byte(i + 1))
		ops = append(ops,
			creates("hostname uuid", &log.Server{UUID: n.cn, Hostname: n.name}),
			creates("belongs_to_type belongs_to_uuid cn_uuid ip network_uuid owner_uuid underlay", &log.NIC{BelongsToType: "server", BelongsToUUID: n.cn, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: underlay, Underlay: true, IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}))
		w.nodes = append(w.nodes, n)
	}
	w.submit(ops...)
	var nics []log.Op
	for _, n := range w.nodes {
		rig.Start(t, n.agent)
		n.first = w.newVM(n)
		nics = append(nics, w.nicOf(n, n.first))
	}
	w.barrier(w.submit(nics...).Last)
	for _, n := range w.nodes {
		w.reads(n.first)
	}
	return w
}

func creates(set string, o log.Object) log.Op {
	return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
}

// newUpgradeNode makes the network of a compute node, whose agent is not started.
func (w *upgradeWorld) newUpgradeNode(i byte) *upgradeNode {
	w.t.Helper()
	n := &upgradeNode{name: fmt.Sprintf("cn%d", i), cn: client.NewChangeID(), status: fmt.Sprintf("http://192.0.2.%d:5309/status", i)}
	n.zones = filepath.Join(w.dir, n.name+"-zones")
	if err := os.Mkdir(n.zones, 0o755); err != nil {
		w.t.Fatal(err)
	}
	n.ns = w.namespace(w.dir, n.name)
	out := "to" + n.name
	err := errors.Join(netlab.AddVeth(out, "e0", n.ns, 1600), netlab.SetMaster(out, "underlay"), netlab.SetUp(out, true), n.ns.Do(func() error {
		return errors.Join(netlab.SetUp("e0", true), netlab.AddAddress("e0", netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 24)))
	}))
	if err != nil {
		w.t.Fatal(err)
	}
	n.args = []string{
		"agent", "--cn", n.cn.String(), "--data", filepath.Join(w.dir, n.name+"-data"), "--servers", strings.Join(w.c.Client.Servers(), ","),
		"--listen", fmt.Sprintf("192.0.2.%d:5309", i), "--insecure", "--svp", "off", "--manifests", "off", "--vminfod", "off",
		"--netns", n.zones, "--etc-netns", filepath.Join(w.dir, n.name+"-etc"),
	}
	n.agent = &subprocess.Process{
		Name: "the agent of " + n.name, Program: w.old, Args: n.args, LogFile: filepath.Join(w.dir, n.name+".log"),
		Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
	}
	return n
}

// namespace makes a network namespace that ends with the test.
func (w *upgradeWorld) namespace(dir, name string) netlab.Namespace {
	w.t.Helper()
	ns, err := netlab.Create(dir, name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			w.t.Error(err)
		}
	})
	return ns
}

// newVM makes the namespace of a VM on a node, and the VM in the log.
func (w *upgradeWorld) newVM(n *upgradeNode) *upgradeVM {
	w.t.Helper()
	vm := &upgradeVM{id: client.NewChangeID()}
	vm.ns = w.namespace(n.zones, vm.id.String())
	w.submit(creates("owner_uuid server_uuid uuid", &log.VM{UUID: vm.id, OwnerUUID: w.owner, ServerUUID: n.cn}))
	return vm
}

func (w *upgradeWorld) nicOf(n *upgradeNode, vm *upgradeVM) log.Op {
	return creates("belongs_to_type belongs_to_uuid cn_uuid network_uuid owner_uuid", &log.NIC{BelongsToType: "zone", BelongsToUUID: vm.id, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: w.network})
}

func (w *upgradeWorld) submit(ops ...log.Op) log.Result {
	w.t.Helper()
	result, err := w.c.Client.Submit(w.t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// barrier asks each server to say when both kernels have a change.
func (w *upgradeWorld) barrier(seq log.Seq) {
	w.t.Helper()
	for _, s := range w.c.Servers {
		one, err := client.New(client.Config{Servers: []string{s.URL}})
		if err != nil {
			w.t.Fatal(err)
		}
		v, err := one.Wait(w.t.Context(), client.Barrier{Seq: seq, Timeout: nodePatience})
		one.Close()
		if err != nil || !v.Done || v.CNs != len(w.nodes) {
			w.t.Fatalf("%s says that seq %d is in the kernels: %+v, %v", s.ID, seq, v, err)
		}
	}
}

// reads takes the NIC of a VM from the log.
func (w *upgradeWorld) reads(vm *upgradeVM) {
	w.t.Helper()
	nics, err := w.c.Client.List(w.t.Context(), "/nics", map[string][]string{"belongs_to_uuid": {vm.id.String()}})
	if err != nil || len(nics) != 1 {
		w.t.Fatalf("NICs of VM %s: %v, %v", vm.id, nics, err)
	}
	if vm.mac, err = log.ParseMAC(fmt.Sprint(nics[0]["mac"])); err == nil {
		vm.ip, err = netip.ParseAddr(fmt.Sprint(nics[0]["ip"]))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// rutter runs a command of a program, and fails if that does.
func (w *upgradeWorld) rutter(binary string, args ...string) string {
	w.t.Helper()
	out, err := output(exec.Command(binary, append(args, "-s", strings.Join(w.c.Client.Servers(), ","))...))
	if err != nil {
		w.t.Fatalf("%s %s: %v\n%s", filepath.Base(binary), strings.Join(args, " "), err, out)
	}
	return out
}

// next is the program for the next command.
func (w *upgradeWorld) next() string {
	w.asked++
	return []string{program, w.old}[w.asked%2]
}

// grows makes a VM with a NIC on each node, by the API and by a command, and deletes those of the
// last time. When the barrier answers, the kernel of the node has the link or has it no
// more, and that of the other node reaches it with the first packet.
func (w *upgradeWorld) grows(when string) {
	w.t.Helper()
	began := time.Now()
	for i, n := range w.nodes {
		if n.late != nil {
			w.rutter(w.next(), "nic", "delete", n.late.mac.String(), "--wait", "fabric", "--timeout", nodePatience.String())
			if _, there := w.linkOf(n.late); there {
				w.t.Errorf("%s: %s has a link of a NIC that was deleted", when, n.name)
			}
		}
		n.late = w.newVM(n)
		if i == 0 {
			w.barrier(w.submit(w.nicOf(n, n.late)).Last)
		} else {
			w.rutter(w.next(), "nic", "create", "belongs_to_type=zone", "belongs_to_uuid="+n.late.id.String(), "cn_uuid="+n.cn.String(),
				"network_uuid="+w.network.String(), "owner_uuid="+w.owner.String(), "--wait", "fabric", "--timeout", nodePatience.String())
		}
		w.reads(n.late)
		if _, there := w.linkOf(n.late); !there {
			w.t.Errorf("%s: %s has no link of the new NIC", when, n.name)
		}
		if _, err := w.nodes[1-i].first.ns.Ping(n.late.ip, 56, pingPatience); err != nil {
			w.t.Errorf("%s: %s does not reach the new NIC on %s: %v", when, w.nodes[1-i].name, n.name, err)
		}
	}
	w.t.Logf("%s: a new NIC on each node, and one deleted, in %v", when, time.Since(began).Round(time.Millisecond))
}

// linkOf is the index of a VM's link.
func (w *upgradeWorld) linkOf(vm *upgradeVM) (index int, there bool) {
	w.t.Helper()
	for _, l := range w.linksIn(vm.ns) {
		if l.HardwareAddr.String() == vm.mac.String() {
			return l.Index, true
		}
	}
	return 0, false
}

func (w *upgradeWorld) linksIn(ns netlab.Namespace) (all []net.Interface) {
	w.t.Helper()
	err := ns.Do(func() (err error) {
		all, err = net.Interfaces()
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// links are the indexes of all links of the nodes and their VMs. A link that was deleted and made
// again has another one.
func (w *upgradeWorld) links() map[string]int {
	w.t.Helper()
	all := make(map[string]int)
	for _, n := range w.nodes {
		for where, ns := range map[string]netlab.Namespace{n.name: n.ns, n.name + "'s first VM": n.first.ns, n.name + "'s late VM": n.late.ns} {
			for _, l := range w.linksIn(ns) {
				all[fmt.Sprintf("%s: %s %s", where, l.Name, l.Flags&net.FlagUp)] = l.Index
			}
		}
	}
	return all
}

// keeps runs a restart, which must change no link.
func (w *upgradeWorld) keeps(what string, restart func()) {
	w.t.Helper()
	before := w.links()
	began := time.Now()
	restart()
	took := time.Since(began)
	if after := w.links(); !maps.Equal(before, after) {
		w.t.Errorf("%s: links and their indexes were %v, and are %v", what, before, after)
	}
	w.t.Logf("%s: done in %v, %d links are the same", what, took.Round(time.Millisecond), len(before))
	w.grows(what)
}

func (w *upgradeWorld) release(binary string) string {
	if binary == w.old {
		return "the release before"
	}
	return "this release"
}

// servers replaces the program of each server.
func (w *upgradeWorld) servers(binary string) {
	w.t.Helper()
	for _, s := range w.c.Servers {
		w.keeps(s.ID+" becomes "+w.release(binary), func() {
			began := time.Now()
			if err := s.Stop(syscall.SIGTERM); err != nil {
				w.t.Fatal(err)
			}
			w.t.Logf("%s stopped in %v", s.ID, time.Since(began).Round(time.Millisecond))
			s.Program = binary
			if err := errors.Join(s.Start(), w.c.AwaitReady(w.t.Context(), s)); err != nil {
				w.t.Fatal(err)
			}
		})
	}
}

// agents replaces the program of each agent.
func (w *upgradeWorld) agents(binary string) {
	w.t.Helper()
	for _, n := range w.nodes {
		w.keeps("the agent of "+n.name+" becomes "+w.release(binary), func() { w.restart(n, binary) })
	}
}

// restart runs a node's agent by a program with more flags, until it has found its kernel as
// the log has it.
func (w *upgradeWorld) restart(n *upgradeNode, binary string, flags ...string) {
	w.t.Helper()
	if err := n.agent.Stop(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	n.agent.Program, n.agent.Args = binary, append(slices.Clone(n.args), flags...)
	if err := n.agent.Start(); err != nil {
		w.t.Fatal(err)
	}
	var s agent.Status
	w.await("the agent of "+n.name+" to find its kernel as the log has it", func() (string, bool) {
		s = n.says()
		return fmt.Sprintf("%+v\n%s", s, n.agent.Tail()), s.Programmed > 0
	})
	w.t.Logf("the agent of %s made %d steps at its kernel until then, and read its folder with %d resets (%s)", n.name, s.Kernel.Steps, s.Resets, s.ResetReason)
}

// says is what the node's agent says of itself; nothing while it does not answer.
func (n *upgradeNode) says() (s agent.Status) {
	response, err := http.Get(n.status)
	if err != nil {
		return agent.Status{}
	}
	defer response.Body.Close()
	if json.NewDecoder(response.Body).Decode(&s) != nil {
		return agent.Status{}
	}
	return s
}

func (w *upgradeWorld) await(what string, ok func() (string, bool)) {
	w.t.Helper()
	for end := time.Now().Add(nodePatience); ; time.Sleep(10 * time.Millisecond) {
		said, done := ok()
		if done {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("waited %v for %s:\n%s", nodePatience, what, said)
		}
	}
}
