package answer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/agent/filter"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/rules"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// cloud is a log, with a Log of its first node.
type cloud struct {
	t     testing.TB
	mu    sync.Mutex // protects what follows
	state *projections.State
	n     uint64 // changes
	head  log.Seq
}

// newCloud has three networks with two VMs each on node #11#, one of which has a gateway on
// node #12#: "four" and "six" on vnet 10, and "other", with the addresses of "four", on
// vnet 20, which asks for no DHCP.
func newCloud(t testing.TB) *cloud {
	c := &cloud{t: t, state: projections.NewState()}
	c.must(`create nic_tag {"name": "external", "uuid": "#90#"}`, `create nic_tag {"name": "overlay", "uuid": "#91#", "mtu": 1600}`,
		`create network {"uuid": "#30#", "name": "underlay", "nic_tag": "external", "subnet": "192.168.0.0/24"}`,
		`create network {"uuid": "#31#", "name": "four", "nic_tag": "overlay", "subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "resolvers": ["10.0.0.2"],
			"routes": {"10.9.0.0/16": "10.0.0.6"}, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10, "vlan_id": 2, "dhcp": true}`,
		`create network {"uuid": "#32#", "name": "other", "nic_tag": "overlay", "subnet": "10.0.0.0/24", "owner_uuids": ["#2#"], "fabric": true, "vnet_id": 20}`,
		`create network {"uuid": "#33#", "name": "six", "nic_tag": "overlay", "subnet": "fd00:1::/64", "gateway": "fd00:1::1", "resolvers": ["fd00:1::53"],
			"owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10, "vlan_id": 3, "dhcp": true}`)
	for _, n := range []int{11, 12} {
		c.must(fmt.Sprintf(`create server {"uuid": "#%d#", "hostname": "cn%d"}`, n, n),
			fmt.Sprintf(`create nic {"mac": "00:00:00:00:01:%d", "belongs_to_type": "server", "belongs_to_uuid": "#%d#", "owner_uuid": "#1#", "network_uuid": "#30#", "underlay": true, "nic_tags_provided": ["external"]}`, n, n))
	}
	for _, nic := range []struct {
		last, vm, cn, owner, network int
		ip                           string
	}{
		{5, 50, 11, 1, 31, "10.0.0.5"},
		{6, 51, 11, 1, 31, "10.0.0.6"},
		{1, 52, 12, 1, 31, "10.0.0.1"},
		{0x15, 53, 11, 2, 32, "10.0.0.5"},
		{0x16, 54, 11, 2, 32, "10.0.0.6"},
		{0x25, 55, 11, 1, 33, "fd00:1::5"},
		{0x26, 56, 11, 1, 33, "fd00:1::6"},
		{0x21, 57, 12, 1, 33, "fd00:1::1"},
	} {
		c.must(fmt.Sprintf(`create vm {"uuid": "#%d#", "owner_uuid": "#%d#", "server_uuid": "#%d#", "alias": "vm%d", "state": "running"}`, nic.vm, nic.owner, nic.cn, nic.vm),
			fmt.Sprintf(`create nic {"mac": "%s", "belongs_to_type": "zone", "belongs_to_uuid": "#%d#", "owner_uuid": "#%d#", "cn_uuid": "#%d#", "network_uuid": "#%d#", "ip": "%s", "primary": true}`,
				mac(nic.last), nic.vm, nic.owner, nic.cn, nic.network, nic.ip))
	}
	return c
}

// mac is that of a NIC of the cloud.
func mac(last int) log.MAC { return log.MAC{2, 5: byte(last)} }

// must makes a change of operations.
func (c *cloud) must(ops ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	change := &log.Change{ID: changetest.UUID(1<<32 + c.n), Actor: "test", Time: log.Time(1e9 * c.n), Seed: c.n}
	for _, op := range ops {
		change.Ops = append(change.Ops, changetest.Op(c.t, op))
	}
	events, result := rules.Decide(c.state, change)
	if result.Refusal != nil {
		c.t.Fatalf("%s: %v", ops, result.Refusal)
	}
	for _, e := range events {
		c.head++
		if _, err := c.state.Apply(c.head, e); err != nil {
			c.t.Fatal(err)
		}
	}
}

// log is what node #11# answers from.
func (c *cloud) log() Log {
	return View{CN: changetest.UUID(11), Read: func(fn func(*projections.State)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		fn(c.state)
	}}
}

// inside runs the test again in namespaces of its own. It is true there.
func inside(t *testing.T) bool {
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: networks of its own")
	}
	t.Parallel()
	cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if netlab.Forbidden(err) {
		t.Skip(netlab.ErrForbidden)
	}
	if t.Logf("%s", out.String()); err != nil {
		t.Error(err)
	}
	return false
}

// node is a node's network: bridges, and the VMs behind their ports.
type node struct {
	t        *testing.T
	cloud    *cloud
	dir      string
	answerer *Answerer
	segments []Segment
	ports    []Port
}

// newNode starts an answerer for the cloud's first node, with its three segments and six
// VMs. vm5 and vm6 have the NICs whose MACs end in 5 and 6, and so on.
func newNode(t *testing.T) *node {
	n := &node{t: t, cloud: newCloud(t), dir: t.TempDir()}
	n.answerer = New(Config{Log: n.cloud.log()})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- n.answerer.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the answerer ended: %v", err)
		}
	})
	n.segment("br10v2", 10, 2, 0x05, 0x06)
	n.segment("br20v0", 20, 0, 0x15, 0x16)
	n.segment("br10v3", 10, 3, 0x25, 0x26)
	n.update()
	return n
}

// segment makes a bridge as agent/link makes it, with a VM for each MAC.
func (n *node) segment(name string, vnet uint32, vlan uint16, macs ...int) {
	n.t.Helper()
	n.sh("", "ip link add "+name+" type bridge stp_state 0 mcast_snooping 0; ip link set "+name+" addrgenmode none; ip link set "+name+" up")
	s := Segment{Index: n.index(name), Name: name, VNet: vnet, VLAN: vlan}
	n.segments = append(n.segments, s)
	for _, last := range macs {
		vm, port := fmt.Sprintf("vm%x", last), fmt.Sprintf("port%x", last)
		space, err := netlab.Create(n.dir, vm)
		n.t.Cleanup(func() { _ = space.Delete() })
		if err == nil {
			err = netlab.AddVeth(port, "eth0", space, 1500)
		}
		if err != nil {
			n.t.Fatal(err)
		}
		n.sh("", fmt.Sprintf(`ip link set %[1]s addrgenmode none; ip link set %[1]s master %[2]s
			ip link set %[1]s type bridge_slave learning off flood off mcast_flood off bcast_flood off
			bridge fdb replace %[3]s dev %[1]s master static; ip link set %[1]s up`, port, name, mac(last)))
		// A VM's kernel that gets no answer tries again soon.
		n.sh(vm, fmt.Sprintf("cd /proc/sys/net; echo 200 > ipv4/neigh/eth0/retrans_time_ms; echo 200 > ipv6/neigh/eth0/retrans_time_ms; echo 0 > ipv6/conf/eth0/accept_dad; ip link set eth0 address %s; ip link set eth0 up", mac(last)))
		n.ports = append(n.ports, Port{Index: n.index(port), Segment: s.Index, MAC: mac(last)})
	}
}

func (n *node) index(name string) uint32 {
	n.t.Helper()
	link, err := net.InterfaceByName(name)
	if err != nil {
		n.t.Fatal(err)
	}
	return uint32(link.Index)
}

// update tells the answerer of all segments and ports, and waits for its sockets.
func (n *node) update() {
	n.t.Helper()
	n.answerer.Update(n.segments, n.ports)
	n.eventually("a socket for each segment", func() bool { return n.answerer.Counters().Sockets == len(n.segments) })
}

// guard gives all ports and bridges the rules of port security. Each port may have the
// addresses too.
func (n *node) guard(addresses ...string) {
	n.t.Helper()
	table, err := filter.Open(n.t.Context())
	if errors.Is(err, filter.ErrUnsupported) {
		n.t.Logf("without rules: %v", err)
		return
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = table.Close() })
	var changes []filter.Change
	for _, s := range n.segments {
		changes = append(changes, filter.Change{SetSegment: &filter.Segment{Index: s.Index, Name: s.Name}})
	}
	for _, p := range n.ports {
		guest, _ := n.cloud.log().Guest(p.MAC)
		port := &filter.Port{Index: p.Index, Name: fmt.Sprintf("port%x", p.MAC[5]), MAC: p.MAC, Addresses: []netip.Addr{guest.IP.Addr()}}
		for _, a := range addresses {
			port.Addresses = append(port.Addresses, netip.MustParseAddr(a))
		}
		slices.SortFunc(port.Addresses, netip.Addr.Compare)
		port.Addresses = slices.Compact(port.Addresses)
		changes = append(changes, filter.Change{SetPort: port})
	}
	if errs := table.Apply(n.t.Context(), changes); errors.Join(errs...) != nil {
		n.t.Fatal(errors.Join(errs...))
	}
}

func (n *node) eventually(what string, is func() bool) {
	n.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("waited for %s in vain; %+v", what, n.answerer.Counters())
		}
	}
}

// vm is the namespace of a VM.
func (n *node) vm(name string) netlab.Namespace { return netlab.Namespace{Dir: n.dir, Name: name} }

// try runs a script in a VM, "" on the node.
func (n *node) try(vm, script string) (string, error) {
	cmd := exec.Command("sh", "-e", "-c", script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.in(vm, cmd.Run)
	return strings.TrimSpace(out.String()), err
}

func (n *node) in(vm string, fn func() error) error {
	if vm == "" {
		return fn()
	}
	return n.vm(vm).Do(fn)
}

// sh is try that must succeed.
func (n *node) sh(vm, script string) string {
	n.t.Helper()
	out, err := n.try(vm, script)
	if err != nil {
		n.t.Fatalf("%s: %s: %v\n%s", vm, script, err, out)
	}
	return out
}
