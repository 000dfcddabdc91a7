package vmmove

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/log"
)

// patience bounds each wait, of a machine that may be busy.
const patience = time.Minute

// nodeCount is the number of compute nodes. The VM moves between the first two.
const nodeCount = 3

// Fabric is a fabric with a VM that moves.
type Fabric struct {
	name    string
	vnet    uint32
	network log.UUID
	moving  log.UUID   // the VM that moves
	mac     log.MAC    // of its NIC
	ip      netip.Addr // of its NIC
	at      int        // the node that it is on
	// homes are the namespaces of the VM that moves, by node, and vms those of the others.
	homes [nodeCount]netlab.Namespace
	vms   map[int]netlab.Namespace
}

// newFabric returns fabric i, with VMs that ping on some nodes.
func newFabric(i byte, name string, nodes ...int) *Fabric {
	f := &Fabric{
		name: name, vnet: 7 + uint32(i), network: client.NewChangeID(), moving: client.NewChangeID(),
		mac: log.MAC{2, 0, 0, 0, i, 0x99}, ip: netip.AddrFrom4([4]byte{10, i, 0, 99}), vms: map[int]netlab.Namespace{},
	}
	for _, at := range nodes {
		f.vms[at] = netlab.Namespace{}
	}
	return f
}

func (f *Fabric) String() string { return f.name }

// device is the name of the fabric's VXLAN devices.
func (f *Fabric) device() string { return fmt.Sprintf("sdcvxl%d", f.vnet) }

// Options say what world to make. Program and Dir must be given.
type Options struct {
	Program string
	Dir     string // for data; made if missing, left behind
	Servers int    // 1 or 3
	Plain   bool   // VMs are attached without port security
}

// World is a cluster, three compute nodes with agents, and two fabrics, each with a VM that
// moves between the first two nodes. It is for one goroutine at a time.
type World struct {
	// Shared has a VM that pings on each node. Lone has one on the third node only, so that
	// the VM that moves is the fabric's first on the node that it comes to, and the last on
	// the one that it leaves.
	Shared, Lone *Fabric

	o       Options
	cluster *bench.Cluster
	api     *client.Client // waits for kernels
	owner   log.UUID
	nodes   []*node
	spaces  []netlab.Namespace
}

// node is one compute node.
type node struct {
	cn    log.UUID
	ns    netlab.Namespace
	addr  netip.Addr // on the underlay
	dir   string
	vms   string // the folder of its VMs' namespaces
	agent *subprocess.Process
}

// New makes a world, and waits until the VMs reach each other. The caller must call Close,
// also after an error.
func New(ctx context.Context, o Options) (*World, error) {
	w := &World{o: o, owner: client.NewChangeID(), Shared: newFabric(0, "shared", 0, 1, 2), Lone: newFabric(1, "lone", 2)}
	server := netip.MustParsePrefix("192.0.2.254/24")
	err := errors.Join(os.MkdirAll(o.Dir, 0o700), netlab.AddBridge("underlay"), netlab.AddAddress("underlay", server))
	if err != nil {
		return w, err
	}
	w.cluster, err = bench.StartCluster(ctx, bench.Options{Program: o.Program, Servers: o.Servers, Dir: filepath.Join(o.Dir, "cluster"), Host: server.Addr().String(), Flags: []string{"--insecure", "--log-level=error"}})
	if err != nil {
		return w, err
	}
	if w.api, err = client.New(client.Config{Servers: w.cluster.Client.Servers(), Await: patience}); err != nil {
		return w, err
	}
	ops := w.networks()
	for i := range nodeCount {
		n, more, err := w.newNode(i)
		if err != nil {
			return w, err
		}
		w.nodes = append(w.nodes, n)
		ops = append(ops, more...)
	}
	for _, f := range []*Fabric{w.Shared, w.Lone} {
		ops = append(ops, w.vmOn(f, w.nodes[0].cn, f.moving, f.mac, f.ip)...)
	}
	if _, err := w.cluster.Client.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		return w, err
	}
	for i, n := range w.nodes {
		if err := w.startAgent(i, n); err != nil {
			return w, err
		}
	}
	return w, w.reached(ctx)
}

func create(set string, o log.Object) log.Op {
	return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
}

var underlayNetwork = client.NewChangeID()

func (w *World) networks() []log.Op {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: underlayNetwork, Name: "u", NICTag: "u", MTU: 1600, Subnet: prefix("192.0.2.0/24"), ProvisionStart: addr("192.0.2.1"), ProvisionEnd: addr("192.0.2.250")}),
	}
	for i, f := range []*Fabric{w.Shared, w.Lone} {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 24)
		ops = append(ops, create("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id", &log.Network{
			UUID: f.network, Name: f.name, NICTag: "u", Fabric: true, VNetID: f.vnet, MTU: 1400, OwnerUUIDs: []log.UUID{w.owner},
			Subnet: subnet, ProvisionStart: netip.AddrFrom4([4]byte{10, byte(i), 0, 5}), ProvisionEnd: netip.AddrFrom4([4]byte{10, byte(i), 0, 200}),
		}))
	}
	return ops
}

// vmOn are the operations that make a VM with a NIC.
func (w *World) vmOn(f *Fabric, cn, vm log.UUID, mac log.MAC, ip netip.Addr) []log.Op {
	return []log.Op{
		create("owner_uuid server_uuid state uuid", &log.VM{UUID: vm, OwnerUUID: w.owner, ServerUUID: cn, State: "running"}),
		create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid", &log.NIC{MAC: mac, IP: ip, BelongsToType: "zone", BelongsToUUID: vm, CNUUID: cn, OwnerUUID: w.owner, NetworkUUID: f.network}),
	}
}

// newNode makes node i's namespaces, and returns the operations that put it and its VM into
// the log.
func (w *World) newNode(i int) (*node, []log.Op, error) {
	name := fmt.Sprintf("cn%d", i)
	n := &node{cn: client.NewChangeID(), addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), dir: filepath.Join(w.o.Dir, name)}
	n.vms = filepath.Join(n.dir, "netns")
	if err := os.MkdirAll(n.vms, 0o700); err != nil {
		return nil, nil, err
	}
	space := func(dir, name string) (netlab.Namespace, error) {
		ns, err := netlab.Create(dir, name)
		if err == nil {
			w.spaces = append(w.spaces, ns)
		}
		return ns, err
	}
	var err error
	if n.ns, err = space(n.dir, name); err != nil {
		return nil, nil, err
	}
	mac, out := [6]byte{0, 0, 0x5e, 0, 0x53, byte(i + 1)}, fmt.Sprintf("v%d", i)
	err = errors.Join(netlab.AddVeth(out, "e0", n.ns, 1600), netlab.SetMaster(out, "underlay"), netlab.SetUp(out, true), n.ns.Do(func() error {
		return errors.Join(netlab.SetMAC("e0", mac), netlab.SetUp("e0", true), netlab.AddAddress("e0", netip.PrefixFrom(n.addr, 24)))
	}))
	ops := []log.Op{
		create("hostname uuid", &log.Server{UUID: n.cn, Hostname: name}),
		create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid underlay", &log.NIC{MAC: mac, BelongsToType: "server", BelongsToUUID: n.cn, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: underlayNetwork, Underlay: true, IP: n.addr}),
	}
	for j, f := range []*Fabric{w.Shared, w.Lone} {
		home, homeErr := space(n.vms, f.moving.String())
		err = errors.Join(err, homeErr)
		f.homes[i] = home
		if _, is := f.vms[i]; !is {
			continue
		}
		vm := client.NewChangeID()
		zone, zoneErr := space(n.vms, vm.String())
		err = errors.Join(err, zoneErr)
		f.vms[i] = zone
		ops = append(ops, w.vmOn(f, n.cn, vm, log.MAC{2, 0, 0, 0, byte(j), byte(i + 1)}, netip.AddrFrom4([4]byte{10, byte(j), 0, byte(i + 10)}))...)
	}
	return n, ops, err
}

func (w *World) startAgent(i int, n *node) error {
	security := []string{"--port-security", "on", "--require-port-security", "--underlay-interface", "e0"}
	if w.o.Plain {
		security = []string{"--port-security", "off"}
	}
	n.agent = &subprocess.Process{
		Name: fmt.Sprintf("agent of cn%d", i), Program: w.o.Program, LogFile: filepath.Join(n.dir, "agent.log"),
		Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
		Args: append([]string{
			"agent", "--cn", n.cn.String(), "--data", filepath.Join(n.dir, "data"), "--svp", "off", "--listen", "off", "--socket", "off", "--insecure",
			"--servers", strings.Join(w.cluster.Client.Servers(), ","), "--netns", n.vms, "--etc-netns", filepath.Join(n.dir, "etc"),
		}, security...),
	}
	return n.agent.Start()
}

// reached waits until each VM reaches the one that moves.
func (w *World) reached(ctx context.Context) error {
	for end := time.Now().Add(patience); ; {
		var failed error
		for _, f := range []*Fabric{w.Shared, w.Lone} {
			for _, vm := range f.vms {
				if _, err := vm.Ping(f.ip, 56, time.Second); err != nil {
					failed = err
				}
			}
		}
		switch {
		case failed == nil:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the VMs do not reach each other: %w\n%s", failed, w.Tail())
		case ctx.Err() != nil:
			return ctx.Err()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Tail is what the agents said last.
func (w *World) Tail() string {
	var b strings.Builder
	for _, n := range w.nodes {
		if n.agent != nil {
			fmt.Fprintf(&b, "%s said last:\n%s\n", n.agent.Name, n.agent.Tail())
		}
	}
	return b.String()
}

// Close ends the processes and removes the namespaces' names.
func (w *World) Close() (err error) {
	for _, n := range w.nodes {
		if n.agent != nil {
			err = errors.Join(err, n.agent.Stop(syscall.SIGTERM))
		}
	}
	if w.api != nil {
		w.api.Close()
	}
	if w.cluster != nil {
		err = errors.Join(err, w.cluster.Stop())
	}
	for _, ns := range w.spaces {
		err = errors.Join(err, ns.Delete())
	}
	return errors.Join(err, netlab.DeleteLink("underlay"))
}
