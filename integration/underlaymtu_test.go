package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"rutter/agent/underlay"
	"rutter/api/client"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/node"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
	"rutter/projections/desired"
)

// underlayWait bounds each wait for a condition.
const underlayWait = 60 * time.Second

// underlayWorld is two compute nodes with an agent each on an underlay of MTU 1500, of
// which the log says 9000; the second receives VXLAN packets at port 4790.
type underlayWorld struct {
	t       *testing.T
	c       *cluster
	owner   log.UUID
	network log.UUID
	warned  []string // by the servers, of what was written
	nodes   []*underlayNode
}

type underlayNode struct {
	cn, vm log.UUID
	ns     netlab.Namespace // of the node
	zone   netlab.Namespace // of its VM
	ip     netip.Addr       // of the VM
	status string           // where the agent serves it
}

// A network that the underlay does not carry is named with the reason, refused or clamped,
// and its packets arrive whole with what fits; the same with one end that carries less;
// between nodes with different VXLAN ports.
func TestUnderlayMTUAndPort(t *testing.T) {
	if !netlab.Inside() {
		skipUnlessNamespaces(t)
		if testing.Short() || os.Geteuid() != 0 {
			t.Skip("starts servers and agents in namespaces, as root")
		}
		cmd := netlab.Enter("-test.run=^TestUnderlayMTUAndPort$", "-test.v")
		out, err := cmdOutput(cmd)
		if t.Log(out); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	w := newUnderlayWorld(t)
	w.fits(1450)
	w.writes()
	w.oneEndDiffers()
	w.portChanges()
}

func cmdOutput(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func newUnderlayWorld(t *testing.T) *underlayWorld {
	w := &underlayWorld{t: t, owner: client.NewChangeID(), network: client.NewChangeID()}
	if err := errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", netip.MustParsePrefix("192.0.2.254/24"))); err != nil {
		t.Fatal(err)
	}
	w.c = startClusterAt(t, "192.0.2.254", "--insecure")
	api, err := client.New(client.Config{Servers: w.c.Client.Servers(), Warn: func(text string) { w.warned = append(w.warned, text) }})
	if err != nil {
		t.Fatal(err)
	}
	w.c.Client = api
	create := func(set string, o log.Object) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
	}
	under := client.NewChangeID()
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 9000}),
		create("mtu name nic_tag subnet uuid", &log.Network{UUID: under, Name: "u", NICTag: "u", MTU: 9000, Subnet: netip.MustParsePrefix("192.0.2.0/24")}),
		create("fabric mtu name nic_tag owner_uuids subnet uuid vnet_id", &log.Network{UUID: w.network, Name: "blue", NICTag: "u", Fabric: true, VNetID: 7, MTU: 1500, OwnerUUIDs: []log.UUID{w.owner}, Subnet: netip.MustParsePrefix("10.0.0.0/24")}),
	}
	dir := t.TempDir()
	for i := range 2 {
		n := &underlayNode{cn: client.NewChangeID(), vm: client.NewChangeID(), ip: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 10)})}
		at := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		n.ns, n.zone = w.namespace(dir, fmt.Sprintf("cn%d", i+1)), w.namespace(dir, n.vm.String())
		port := fmt.Sprintf("tocn%d", i+1)
		if err := errors.Join(netlab.AddVeth(port, "eth0", n.ns, 1500), netlab.SetMaster(port, "underlay"), netlab.SetUp(port, true),
			n.ns.Do(func() error {
				return errors.Join(netlab.AddAddress("eth0", netip.PrefixFrom(at, 24)), netlab.SetUp("eth0", true))
			})); err != nil {
			t.Fatal(err)
		}
		ops = append(ops,
			create("hostname uuid vxlan_port", &log.Server{UUID: n.cn, Hostname: fmt.Sprintf("cn%d", i+1), VXLANPort: uint32(4789 + i)}),
			create("belongs_to_type belongs_to_uuid ip network_uuid owner_uuid underlay", &log.NIC{BelongsToType: "server", BelongsToUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: under, Underlay: true, IP: at}),
			create("owner_uuid server_uuid state uuid", &log.VM{UUID: n.vm, OwnerUUID: w.owner, ServerUUID: n.cn, State: "stopped"}),
			create("belongs_to_type belongs_to_uuid cn_uuid ip network_uuid owner_uuid", &log.NIC{BelongsToType: "zone", BelongsToUUID: n.vm, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: w.network, IP: n.ip}))
		w.nodes = append(w.nodes, n)
	}
	w.submit(ops...)
	for _, n := range w.nodes {
		w.startAgent(dir, n)
	}
	return w
}

func (w *underlayWorld) namespace(dir, name string) netlab.Namespace {
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

func (w *underlayWorld) startAgent(dir string, n *underlayNode) {
	n.status = filepath.Join(dir, n.cn.String()+".sock")
	rig.Start(w.t, &subprocess.Process{
		Name: n.ns.Name, Program: program, LogFile: filepath.Join(dir, n.ns.Name+".log"), Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
		Args: []string{
			"agent", "--cn", n.cn.String(), "--data", filepath.Join(dir, n.ns.Name+".data"), "--svp", "off", "--listen", "off", "--socket", n.status,
			"--servers", strings.Join(w.c.Client.Servers(), ","), "--netns", dir, "--etc-netns", filepath.Join(dir, "etc"), "--manifests", "off", "--vminfod", "off", "--insecure",
		},
	})
}

func (w *underlayWorld) submit(ops ...log.Op) {
	w.t.Helper()
	if _, err := w.c.Client.Submit(w.t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		w.t.Fatal(err)
	}
}

// until waits until what is true, and returns why not when it did not become so.
func (w *underlayWorld) until(what string, is func() error) {
	w.t.Helper()
	var err error
	for end := time.Now().Add(underlayWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	w.t.Fatalf("%s: %v", what, err)
}

func (n *underlayNode) read() (s node.Status, err error) {
	base, transport := localhttp.Reach(n.status)
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(base + "/status")
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	return s, json.NewDecoder(response.Body).Decode(&s)
}

// names waits until an agent's status names a problem.
func (w *underlayWorld) names(n *underlayNode, text string) {
	w.t.Helper()
	w.until(n.ns.Name+" names "+text, func() error {
		s, err := n.read()
		if err == nil && !slices.ContainsFunc(s.Kernel.Problems, func(line string) bool { return strings.Contains(line, text) }) {
			err = fmt.Errorf("its problems are %q, underlay %+v", s.Kernel.Problems, s.Underlay)
		}
		return err
	})
}

// reported waits until the log has what a node found.
func (w *underlayWorld) reported(n *underlayNode, mtu uint32) {
	w.t.Helper()
	w.until(n.ns.Name+" reports", func() error {
		o, err := w.c.Client.Get(w.t.Context(), "/servers/"+n.cn.String(), nil)
		if err == nil && o["underlay_mtu"] != float64(mtu) {
			err = fmt.Errorf("the log has %v, want %d", o["underlay_mtu"], mtu)
		}
		return err
	})
}

// largest waits until the largest packet that one VM can send the other whole has a size.
func (w *underlayWorld) largest(from, to int, size uint32) {
	w.t.Helper()
	a, b := w.nodes[from], w.nodes[to]
	w.until(fmt.Sprintf("packets of %d bytes from %s to %s", size, a.ns.Name, b.ns.Name), func() error {
		var found uint32
		err := a.zone.Do(func() error {
			p, err := underlay.OpenProber()
			if err != nil {
				return err
			}
			defer p.Close()
			found, err = p.Path(w.t.Context(), a.ip, b.ip, 1500)
			return err
		})
		if err == nil && found != size {
			err = fmt.Errorf("%d bytes arrive", found)
		}
		return err
	})
}

// fragments counts the fragments that the kernel of a node made.
func (w *underlayWorld) fragments(n *underlayNode) (count string) {
	if err := n.ns.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/snmp")
		lines := strings.Split(string(b), "\n")
		names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
		count = values[slices.Index(names, "FragCreates")]
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return count
}

// fits: the links have what the underlay carries, packets of that size arrive whole both
// ways, and no packet is cut on the way.
func (w *underlayWorld) fits(mtu uint32) {
	for _, n := range w.nodes {
		w.reported(n, 1500)
		w.names(n, "its MTU 1500 does not fit the underlay of this node, which carries 1450 (its underlay interface has MTU 1500)")
	}
	w.largest(0, 1, mtu)
	w.largest(1, 0, mtu)
	for _, n := range w.nodes {
		if count := w.fragments(n); count != "0" {
			w.t.Errorf("%s made %s fragments", n.ns.Name, count)
		}
	}
}

func (w *underlayWorld) fabric(name string, mtu uint32) (client.Object, error) {
	body := fmt.Sprintf(`{"name":%q,"nic_tag":"u","fabric":true,"vnet_id":7,"mtu":%d,"owner_uuids":[%q],"subnet":"10.%d.0.0/24"}`, name, mtu, w.owner, len(name))
	return w.c.Client.Create(w.t.Context(), "/networks", []byte(body))
}

// writes: what is written is warned of, refused or clamped, and the answer says why.
func (w *underlayWorld) writes() {
	w.warned = nil
	if o, err := w.fabric("aa", 1500); err != nil || o["mtu"] != 1500.0 || len(w.warned) != 1 || !strings.Contains(w.warned[0], "mtu 1500 does not fit the underlay of 2 compute nodes, whose links get less: compute node cn1 (") {
		w.t.Errorf("by default: %v, %v, warned with %q", o["mtu"], err, w.warned)
	}
	w.submit(log.Op{Action: log.Create, Kind: log.KindSetting, Set: []string{"name", "value"}, Object: &log.Setting{Name: "fabric.mtu", Value: log.FabricMTURefuse}})
	if _, err := w.fabric("aaa", 1500); err == nil || !strings.Contains(err.Error(), "mtu 1500 does not fit the underlay of 2 compute nodes") {
		w.t.Errorf("to refuse: %v", err)
	}
	w.submit(log.Op{Action: log.Update, Kind: log.KindSetting, ID: "fabric.mtu", Set: []string{"value"}, Object: &log.Setting{Value: log.FabricMTUClamp}})
	w.warned = nil
	if o, err := w.fabric("aaaa", 1500); err != nil || o["mtu"] != 1450.0 || len(w.warned) != 1 || !strings.Contains(w.warned[0], "mtu 1500 does not fit the underlay, so it is 1450") {
		w.t.Errorf("to clamp: %v, %v, warned with %q", o["mtu"], err, w.warned)
	}
	w.submit(log.Op{Action: log.Update, Kind: log.KindNetwork, ID: w.network.String(), Set: []string{"mtu"}, Object: &log.Network{MTU: 1500}})
	if o, err := w.c.Client.Get(w.t.Context(), "/networks/"+w.network.String(), nil); err != nil || o["mtu"] != 1450.0 {
		w.t.Errorf("sent again: %v, %v", o["mtu"], err)
	}
}

// oneEndDiffers: a node that carries less later is named by its own agent, by the other's,
// by a trace and by the servers.
func (w *underlayWorld) oneEndDiffers() {
	far := w.nodes[1]
	if err := far.ns.Do(func() error { return netlab.SetMTU("eth0", 1400) }); err != nil {
		w.t.Fatal(err)
	}
	w.reported(far, 1400)
	w.names(far, "its MTU 1450 does not fit the underlay of this node, which carries 1350 (its underlay interface has MTU 1400)")
	w.names(w.nodes[0], far.cn.String()+": its underlay interface has MTU 1400")
	raw, err := w.c.Client.Raw(w.t.Context(), http.MethodGet, "/trace?from="+w.nodes[0].vm.String()+"&to="+far.vm.String(), nil)
	var trace desired.Trace
	if err = errors.Join(err, json.Unmarshal(raw, &trace)); err != nil || !slices.ContainsFunc(trace.Findings, func(f desired.Finding) bool { return f.Code == "underlay-differs" }) {
		w.t.Errorf("the trace finds %+v, %v", trace.Findings, err)
	}
	w.until("the servers warn", func() error {
		response, err := http.Get(w.c.Client.Servers()[0] + "/readyz?verbose")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		if err == nil && !strings.Contains(string(raw), "warning compute node cn2 ("+far.cn.String()+"): its underlay interface has MTU 1400, which does not carry 1 networks there, such as blue with mtu 1450") {
			err = errors.New(string(raw))
		}
		return err
	})
	w.submit(log.Op{Action: log.Update, Kind: log.KindNetwork, ID: w.network.String(), Set: []string{"mtu"}, Object: &log.Network{MTU: 1450}})
	w.largest(0, 1, 1350)
	w.largest(1, 0, 1350)
}

// portChanges: a node gets another VXLAN port while its VM does not run, and packets go
// both ways again.
func (w *underlayWorld) portChanges() {
	w.submit(log.Op{Action: log.Update, Kind: log.KindServer, ID: w.nodes[1].cn.String(), Set: []string{"vxlan_port"}, Object: &log.Server{VXLANPort: 4791}})
	w.largest(0, 1, 1350)
	w.largest(1, 0, 1350)
}
