package containment

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
	"rutter/log"
	"rutter/log/feed"
)

// post makes what body says, and fails the test if that is refused.
func post(t *testing.T, c *bench.Cluster, path, body string) client.Object {
	t.Helper()
	o, err := c.Client.Create(patience(t), path, []byte(body))
	if err != nil {
		t.Fatalf("POST %s %s: %v", path, body, err)
	}
	return o
}

// text is a field of an object.
func text(o client.Object, field string) string {
	s, _ := o[field].(string)
	return s
}

// gate lets all callers pass, or makes them wait until it is opened again.
type gate struct {
	mu      sync.Mutex
	shut    chan struct{} // nil: it is open
	waiting int
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.waiting = make(chan struct{}), 0
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.waiting++
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

// isWaited reports whether a caller has come since it was closed.
func (g *gate) isWaited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting > 0
}

// slowWay connects agents with a feed on which scopes are on their way for as long
// as the test wants, as they are for a while where they have many objects or the way
// is narrow.
type slowWay struct {
	*client.Client
	scopes *gate
}

// Feed implements agent.Dialer.
func (s slowWay) Feed(ctx context.Context, server string) (net.Conn, error) {
	conn, err := s.Client.Feed(ctx, server)
	if err != nil {
		return nil, err
	}
	slow := &slowConn{Conn: conn, scopes: s.scopes}
	slow.frames = feed.NewReader(io.TeeReader(conn, &slow.came))
	return slow, nil
}

// slowConn reads frame by frame, and holds the begin of a scope back at the gate.
type slowConn struct {
	net.Conn
	scopes *gate
	frames *feed.Reader
	came   bytes.Buffer // of a frame, not read yet
}

func (s *slowConn) Read(b []byte) (int, error) {
	if s.came.Len() == 0 {
		frame, err := s.frames.Next()
		if err != nil {
			return 0, err
		}
		if frame.Type == feed.TypeScopeBegin {
			s.scopes.pass()
		}
	}
	return s.came.Read(b)
}

// slowKernel is a kernel in memory in which each namespace is there, and which is
// read only while its gate is open.
type slowKernel struct {
	*plan.Fake
	reads *gate
}

// Dump implements link.Kernel.
func (k slowKernel) Dump(ctx context.Context, namespaces []string) (plan.Snapshot, error) {
	for _, name := range namespaces {
		if name != "" {
			k.AddNamespace(name)
		}
	}
	k.reads.pass()
	return k.Fake.Dump(ctx, namespaces)
}

// restless is a watch of a kernel in which something changes all the time.
func restless(ctx context.Context, changed, _ func()) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
			changed()
		}
	}
}

// slowNode is an agent whose view and kernel come when the test lets them.
type slowNode struct {
	*agent.Agent
	kernel        *plan.Fake
	scopes, reads *gate
}

// runAgent runs one until the test ends.
func runAgent(t *testing.T, c *bench.Cluster, cn log.UUID) *slowNode {
	t.Helper()
	n := &slowNode{kernel: new(plan.Fake), scopes: new(gate), reads: new(gate)}
	n.Agent = rig.Agent(t, agent.Config{
		CN: cn, Servers: c.Client.Servers(), Dialer: slowWay{c.Client, n.scopes}, Watch: restless,
		Kernel: func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
			return link.NewManager(link.ManagerConfig{Kernel: slowKernel{n.kernel, n.reads}, Numbers: numbers, Save: save}), nil
		},
	})
	t.Cleanup(func() { // before the agent's end, which waits for them
		n.scopes.open()
		n.reads.open()
	})
	return n
}

// until waits for something of the node.
func (n *slowNode) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for ctx := patience(t); !is(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("%s: in vain; %+v", what, n.Status())
		}
	}
}

// makeNetwork returns the UUID of a fabric network.
func makeNetwork(t *testing.T, c *bench.Cluster, n int) (uuid string) {
	t.Helper()
	o := post(t, c, "/networks", fmt.Sprintf(`{"name":"net%d","nic_tag":"sdc_overlay","vlan_id":0,"subnet":"10.0.0.0/24","provision_start_ip":"10.0.0.5",
		"provision_end_ip":"10.0.0.250","fabric":true,"vnet_id":%d,"mtu":1400,"owner_uuids":[%q]}`, n, 1000+n, owner))
	return text(o, "uuid")
}

const owner = "930896af-bf8c-48d4-885c-6573a94b1853"

// makeNIC returns the MAC of a NIC of a VM on a node and network.
func makeNIC(t *testing.T, c *bench.Cluster, network string, vm, cn log.UUID) log.MAC {
	t.Helper()
	o := post(t, c, "/networks/"+network+"/nics", fmt.Sprintf(`{"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q}`, vm, owner, cn))
	mac, err := log.ParseMAC(text(o, "mac"))
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// A NIC is deleted, and before the node's kernel was looked at the view
// becomes incomplete: the NIC of another network has come, the network has not. A
// barrier reports done only when the deleted NIC's link is out of the kernel.
func TestBarrierOfADeletedNIC(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{Servers: 1})
	rounds := 1
	if os.Getenv("RUTTER_LONG") != "" {
		rounds = 30
	}
	cn, vm := log.UUID{0: 0xc0, 6: 0x40, 8: 0x80, 15: 1}, log.UUID{0: 0x7a, 6: 0x40, 8: 0x80, 15: 1}
	post(t, c, "/nic_tags", `{"name":"sdc_overlay","mtu":9000}`)
	post(t, c, "/servers", fmt.Sprintf(`{"uuid":%q,"hostname":"cn1"}`, cn))
	underlay := post(t, c, "/networks", `{"name":"underlay","nic_tag":"sdc_overlay","vlan_id":0,"subnet":"192.0.2.0/24","provision_start_ip":"192.0.2.1","provision_end_ip":"192.0.2.250","mtu":9000}`)
	post(t, c, "/networks/"+text(underlay, "uuid")+"/nics", fmt.Sprintf(`{"belongs_to_type":"server","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"underlay":true,"nic_tags_provided":["sdc_overlay"]}`, cn, owner, cn))
	home, other := makeNetwork(t, c, 0), makeNetwork(t, c, 1)
	makeNIC(t, c, home, vm, cn)
	n := runAgent(t, c, cn)
	barrier := func(seq log.Seq, timeout time.Duration) bool {
		t.Helper()
		v, err := c.Client.Wait(patience(t), client.Barrier{Seq: seq, Scopes: []log.Scope{log.CNScope(cn)}, Timeout: timeout})
		if err != nil {
			t.Fatalf("the barrier of %d: %v", seq, err)
		}
		return v.Done
	}
	programmed := func(seq log.Seq) {
		t.Helper()
		if !barrier(seq, time.Minute) {
			t.Fatalf("the barrier of %d is not done: %+v", seq, n.Status())
		}
	}
	remove := func(mac log.MAC) log.Seq {
		t.Helper()
		if err := c.Client.Delete(patience(t), "/nics/"+mac.String(), ""); err != nil {
			t.Fatal(err)
		}
		seq, err := c.Client.Head(patience(t))
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	for round := range rounds {
		mac := makeNIC(t, c, home, vm, cn)
		programmed(0)
		if linkOf(t, n.kernel, vm, mac) == "" {
			t.Fatalf("a NIC that is programmed has no link: %+v", n.Status().Kernel)
		}
		// A pass is under way while the NIC goes and the other one comes: the next
		// is of a view that has neither the NIC nor the other's network.
		n.reads.close()
		n.scopes.close()
		extra := makeNIC(t, c, home, vm, cn)
		n.until(t, "a pass", n.reads.isWaited)
		seq := remove(mac)
		n.until(t, "the deletion", func() bool { return n.Status().Applied >= seq })
		away := makeNIC(t, c, other, vm, cn)
		n.until(t, "the NIC on the other network", func() bool { _, came := n.Object(log.KindNIC, away.String()); return came })
		passes := n.Status().Kernel.Passes
		n.reads.open()
		n.until(t, "a pass of the view that is not complete", func() bool {
			k := n.Status().Kernel
			return k.Passes >= passes+2 && !k.Complete
		})
		// The watch wakes the agent all the time meanwhile, and what it says goes up
		// within half of the time that the barrier waits.
		if done, has := barrier(seq, time.Second), linkOf(t, n.kernel, vm, mac); done || has == "" {
			t.Fatalf("round %d: the barrier of %d is done %v while the view is not complete, and the link of the NIC that it deleted is %q", round, seq, done, has)
		}
		n.scopes.open()
		programmed(seq)
		if has := linkOf(t, n.kernel, vm, mac); has != "" {
			t.Fatalf("round %d: the barrier of %d is done, and the link %q of the NIC that it deleted is in the kernel", round, seq, has)
		}
		remove(extra)
		programmed(remove(away))
	}
}

// linkOf returns the name of the link with a MAC in a VM's namespace; "" if there is none.
func linkOf(t *testing.T, kernel *plan.Fake, vm log.UUID, mac log.MAC) string {
	t.Helper()
	snap, err := kernel.Dump(t.Context(), []string{vm.String()})
	if err != nil {
		return err.Error()
	}
	i := slices.IndexFunc(snap.Links, func(l plan.Link) bool { return l.MAC == mac && strings.HasPrefix(l.Name, "fabric") })
	if i < 0 {
		return ""
	}
	return snap.Links[i].Name
}
