package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// promised is the world of the cases: two compute nodes and three servers.
type promised struct{ *vmWorld }

// TestPromises: what docs/promises.md says of compute nodes and VMs that run, with
// servers and agents as processes.
func TestPromises(t *testing.T) {
	t.Parallel()
	if !enterVMLab(t) {
		return
	}
	p := &promised{newVMWorld(t)}
	t.Run("routers reach the routes of VMs that run, and follow changes", p.routers)
	t.Run("a killed server flips no status, and no stream has a gap", p.killed)
	t.Run("the doorbell's traps", p.doorbell)
	t.Run("tunnel ends of two families", p.families)
}

// fabricNetwork makes a fabric network of the owner, 10.N.0.0/24 on vnet N.
func (p *promised) fabricNetwork(t *testing.T, n byte) log.UUID {
	t.Helper()
	id := client.NewChangeID()
	address := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, n, 0, last}) }
	p.submitted(t, log.Op{
		Action: log.Create, Kind: log.KindNetwork, Set: strings.Fields("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id"),
		Object: &log.Network{
			UUID: id, Name: fmt.Sprintf("f%d", n), NICTag: "u", Fabric: true, VNetID: uint32(n), MTU: 1400, OwnerUUIDs: []log.UUID{p.owner},
			Subnet: netip.PrefixFrom(address(0), 24), ProvisionStart: address(5), ProvisionEnd: address(200),
		},
	})
	return id
}

func (p *promised) submitted(t *testing.T, ops ...log.Op) {
	t.Helper()
	if _, err := p.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		t.Fatal(err)
	}
}

// runs makes a VM with NICs on networks, waits until it runs and all kernels know of it.
func (p *promised) runs(t *testing.T, n *vmNode, alias string, nics ...string) log.UUID {
	t.Helper()
	return n.plain(alias, "nics=["+strings.Join(nics, ",")+"]", "--start", "--wait=fabric")
}

// pings waits until a VM reaches an address, or, if it must not, until it does not.
func (p *promised) pings(t *testing.T, from log.UUID, to string, want bool) {
	t.Helper()
	space := netlab.Namespace{Dir: "/run/netns", Name: from.String()}
	var last error
	for deadline := time.Now().Add(vmPatience); ; time.Sleep(10 * time.Millisecond) {
		if _, last = space.Ping(netip.MustParseAddr(to), 56, 300*time.Millisecond); (last == nil) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("from VM %s to %s: %v, want that it passes: %t", from, to, last, want)
		}
	}
}

// routers: a router's VM forwards between networks; VMs on them that run reach each other
// over it as soon as the router is there, and no longer than it is.
func (p *promised) routers(t *testing.T) {
	first, second := p.nodes[0], p.nodes[1]
	networks := []log.UUID{p.network, p.fabricNetwork(t, 8), p.fabricNetwork(t, 9)}
	nic := func(network log.UUID, ip string) string {
		return fmt.Sprintf(`{"network_uuid":%q,"ip":%q}`, network, ip)
	}
	a := p.runs(t, first, "a", nic(networks[0], "10.0.0.50"))
	b := p.runs(t, second, "b", nic(networks[1], "10.8.0.50"))
	c := p.runs(t, second, "c", nic(networks[2], "10.9.0.50"))
	var nics []string
	for i, network := range networks {
		nics = append(nics, fmt.Sprintf(`{"network_uuid":%q,"ip":"10.%d.0.2","allow_ip_spoofing":true}`, network, []int{0, 8, 9}[i]))
	}
	forwarder := p.runs(t, first, "forwarder", nics...)
	space := netlab.Namespace{Dir: "/run/netns", Name: forwarder.String()}
	if err := space.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	p.pings(t, a, "10.8.0.50", false) // no route yet
	id := client.NewChangeID()
	router := func(action log.Action, set string, count int) log.Op {
		o := &log.Router{UUID: id, Name: "r", OwnerUUID: p.owner, VMUUID: forwarder, Networks: networks[:count]}
		for i := range count {
			o.Addresses = append(o.Addresses, netip.AddrFrom4([4]byte{10, []byte{0, 8, 9}[i], 0, 2}))
		}
		return log.Op{Action: action, Kind: log.KindRouter, ID: id.String(), Set: strings.Fields(set), Object: o}
	}
	made := router(log.Create, "addresses name networks owner_uuid uuid vm_uuid", 2)
	made.ID = ""
	p.submitted(t, made)
	p.pings(t, a, "10.8.0.50", true)
	p.pings(t, b, "10.0.0.50", true)
	p.pings(t, c, "10.0.0.50", false)
	p.submitted(t, router(log.Update, "addresses networks", 3))
	p.pings(t, c, "10.0.0.50", true)
	p.pings(t, b, "10.9.0.50", true)
	p.submitted(t, router(log.Update, "addresses networks", 2))
	p.pings(t, c, "10.0.0.50", false)
	p.pings(t, a, "10.8.0.50", true)
	p.submitted(t, log.Op{Action: log.Delete, Kind: log.KindRouter, ID: id.String()})
	p.pings(t, a, "10.8.0.50", false)
	p.pings(t, b, "10.0.0.50", false)
}

// follow gathers the places of the events that a filter selects, after a place.
func (p *promised) follow(t *testing.T, after log.Seq, filter map[string][]string) func(until log.Seq) []log.Seq {
	ctx, cancel := context.WithCancel(t.Context())
	api, err := client.New(client.Config{Servers: p.c.Client.Servers(), AttemptTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan log.Seq, 10_000)
	done := make(chan error, 1)
	go func() {
		defer api.Close()
		var failed error
		for line, err := range api.Log(ctx, client.LogQuery{After: after, Follow: true, Query: filter}) {
			if err != nil {
				failed = err
				break
			}
			seen <- line.Seq
		}
		done <- failed
	}()
	return func(until log.Seq) (list []log.Seq) {
		t.Helper()
		for len(list) == 0 || list[len(list)-1] < until {
			select {
			case seq := <-seen:
				list = append(list, seq)
			case <-time.After(vmPatience):
				t.Fatalf("no event after %v, want those up to %d", list, until)
			}
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return list
	}
}

// killed: the server that a node is connected to is killed. The node is running all the
// time; and those who follow its VMs, or all, get each event once, in order.
func (p *promised) killed(t *testing.T) {
	n := p.nodes[0]
	vm := n.plain("followed")
	p.visibleEverywhere(vm, "stopped")
	after := p.c.level()
	filters := []map[string][]string{{"kind": {"vm"}, "cn": {n.cn.String()}}, {"kind": {"vm"}}}
	var ends []func(log.Seq) []log.Seq
	for _, filter := range filters {
		ends = append(ends, p.follow(t, after, filter))
	}
	for i := range 3 {
		n.must("vm", "update", vm.String(), fmt.Sprintf("alias=before%d", i), "--wait=cluster")
	}
	server := p.serverOf(t, n)
	p.c.signal(server, syscall.SIGKILL)
	n.must("vm", "start", vm.String(), "--wait=cluster")
	for i := range 3 {
		n.must("vm", "update", vm.String(), fmt.Sprintf("alias=after%d", i), "--wait=cluster")
	}
	if other := p.serverOf(t, n); other == server {
		t.Errorf("the node is connected to %s, which was killed", server.ID)
	}
	p.c.start(server)
	p.c.waitReady(server)
	p.c.level()
	for i, filter := range filters {
		var want []log.Seq
		for line, err := range p.c.Client.Log(t.Context(), client.LogQuery{After: after, Query: filter}) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, line.Seq)
		}
		if len(want) < 7 {
			t.Fatalf("the log has the events %v of %v", want, filter)
		}
		got := ends[i](want[len(want)-1])
		if want = want[:slices.Index(want, got[len(got)-1])+1]; !slices.Equal(got, want) {
			t.Errorf("%v: got the events %v, want %v", filter, got, want)
		}
	}
	for _, node := range p.nodes {
		if got := statusesOf(t, server, node.cn.String()); slices.Contains(got[slices.Index(got, "running"):], "unknown") {
			t.Errorf("the statuses of %s were %q", node.cn, got)
		}
	}
}

// serverOf waits until a node has a session, and returns the server that has it.
func (p *promised) serverOf(t *testing.T, n *vmNode) (found *bench.Server) {
	t.Helper()
	p.until("the node has a session", func() bool {
		for _, s := range p.c.Servers {
			sessions, err := p.c.Client.Sessions(t.Context(), s.URL)
			if err == nil && slices.ContainsFunc(sessions, func(held client.Session) bool { return held.CN == n.cn }) {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

// doorbell: a VM ends while no server answers its ring. Its state can be asked for all the
// same, and is kept until a server has recorded it (docs/spec/vmm-doorbell.md, 7.4).
func (p *promised) doorbell(t *testing.T) {
	n := p.nodes[0]
	vm := n.plain("rings", "--start")
	vmm := p.active(vm)
	if err := p.c.Rest(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n.pid(vm), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: n.dial}
	defer transport.CloseIdleConnections()
	state := func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+statusPort+"/vmms/"+vmm+"/state", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("api-version", "1.0.0")
		answer, err := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Do(request)
		if err != nil {
			t.Errorf("its state is not told while its ring is not answered: %v", err)
			return ""
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body) // an answer that is cut short has no state
		return fmt.Sprint(answer.StatusCode, string(text))
	}
	ended := func() bool { return strings.Contains(state(), `"state":"failed"`) }
	p.until("its end is told", ended)
	if got := p.c.Wake(t.Context()); got != nil {
		t.Fatal(got)
	}
	p.until("its end is recorded", func() bool { return p.value("/vmms/"+vmm, "state") == "failed" })
}

// families: the kernel's VXLAN devices have one family (docs/spec/kernel.md), so a node
// whose tunnel end is of the other family reaches no VM of the vnet, and both sides say
// so by name. The other nodes go on.
func (p *promised) families(t *testing.T) {
	first, second := p.nodes[0], p.nodes[1]
	a := p.runs(t, first, "four0", fmt.Sprintf(`{"network_uuid":%q,"ip":"10.0.0.60"}`, p.network))
	p.runs(t, second, "four1", fmt.Sprintf(`{"network_uuid":%q,"ip":"10.0.0.61"}`, p.network))
	six := p.newNode(3)
	end := netip.MustParseAddr("2001:db8:0:1::3")
	if err := six.ns.Do(func() error { return netlab.AddAddress("e0", netip.PrefixFrom(end, 64)) }); err != nil {
		t.Fatal(err)
	}
	underlay := client.NewChangeID()
	p.submitted(t,
		log.Op{Action: log.Create, Kind: log.KindNetwork, Set: strings.Fields("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid"), Object: &log.Network{
			UUID: underlay, Name: "u6", NICTag: "u", MTU: 1600, Subnet: netip.MustParsePrefix("2001:db8:0:1::/64"),
			ProvisionStart: netip.MustParseAddr("2001:db8:0:1::1"), ProvisionEnd: netip.MustParseAddr("2001:db8:0:1::ff"),
		}},
		log.Op{Action: log.Create, Kind: log.KindServer, Set: strings.Fields("hostname uuid"), Object: &log.Server{UUID: six.cn, Hostname: "cn3"}},
		log.Op{Action: log.Create, Kind: log.KindNIC, Set: strings.Fields("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid underlay"), Object: &log.NIC{
			MAC: log.MAC{0, 0, 0x5e, 0, 0x53, 3}, BelongsToType: "server", BelongsToUUID: six.cn, CNUUID: six.cn, OwnerUUID: p.owner, NetworkUUID: underlay, Underlay: true, IP: end,
		}})
	six.startAgent()
	c := p.runs(t, six, "six", fmt.Sprintf(`{"network_uuid":%q,"ip":"10.0.0.63"}`, p.network))
	for _, n := range []*vmNode{first, second, six} {
		n.until("its agent names the node of the other family", func() bool {
			out, err := n.rutter("agent", "status")
			return err == nil && strings.Contains(out, "is not of the family of")
		})
	}
	p.pings(t, a, "10.0.0.61", true)
	p.pings(t, a, "10.0.0.63", false)
	p.pings(t, c, "10.0.0.60", false)
	out, err := first.rutter("trace", a.String(), c.String())
	if !strings.Contains(out, "are of two families") {
		t.Errorf("rutter trace: %v: %s", err, out)
	}
}
