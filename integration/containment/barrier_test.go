package containment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/api/client"
	"rutter/integration/bench"
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

// slowWay connects agents with a feed on which each scope is on its way for a while,
// as it is where it has many objects or the way is narrow.
type slowWay struct{ *client.Client }

// Feed implements agent.Dialer.
func (s slowWay) Feed(ctx context.Context, server string) (net.Conn, error) {
	conn, err := s.Client.Feed(ctx, server)
	if err != nil {
		return nil, err
	}
	slow := &slowConn{Conn: conn}
	slow.frames = feed.NewReader(io.TeeReader(conn, &slow.came))
	return slow, nil
}

// slowConn reads frame by frame, and holds the begin of a scope back: for longer than
// a pass of busyKernel and the pause behind it.
type slowConn struct {
	net.Conn
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
			time.Sleep(200 * time.Millisecond)
		}
	}
	return s.came.Read(b)
}

// busyKernel is a kernel in memory in which each namespace is there, and which takes
// a moment to be read: so passes keep a pause between them (see agent's passShare).
type busyKernel struct{ *link.Fake }

// Dump implements link.Kernel.
func (b busyKernel) Dump(ctx context.Context, namespaces []string) (link.Snapshot, error) {
	for _, name := range namespaces {
		if name != "" {
			b.AddNamespace(name)
		}
	}
	time.Sleep(25 * time.Millisecond)
	return b.Fake.Dump(ctx, namespaces)
}

// restless is a watch of a kernel in which somebody changes something all the time.
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

// runAgent runs an agent with a busy kernel in memory over a slow way, until the
// test ends.
func runAgent(t *testing.T, c *bench.Cluster, cn log.UUID) *link.Fake {
	t.Helper()
	kernel := new(link.Fake)
	a, err := agent.New(agent.Config{
		CN: cn, Folder: t.TempDir(), Servers: c.Client.Servers(), Dialer: slowWay{c.Client}, Logger: slog.New(slog.DiscardHandler),
		Watch: restless,
		Kernel: func(numbers link.Numbers, save func(link.Numbers) error) (agent.Kernel, error) {
			return link.NewManager(link.ManagerConfig{Kernel: busyKernel{kernel}, Numbers: numbers, Save: save}), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, a.Close()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return kernel
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
// barrier that says done has the deleted NIC's link out of the kernel, each time.
func TestBarrierOfADeletedNIC(t *testing.T) {
	c := cluster(t, bench.Options{Servers: 1})
	rounds := 3
	if os.Getenv("RUTTER_LONG") != "" {
		rounds = 200
	}
	cn, vm := log.UUID{0: 0xc0, 6: 0x40, 8: 0x80, 15: 1}, log.UUID{0: 0x7a, 6: 0x40, 8: 0x80, 15: 1}
	post(t, c, "/nic_tags", `{"name":"sdc_overlay","mtu":9000}`)
	post(t, c, "/servers", fmt.Sprintf(`{"uuid":%q,"hostname":"cn1"}`, cn))
	home, other := makeNetwork(t, c, 0), makeNetwork(t, c, 1)
	makeNIC(t, c, home, vm, cn)
	kernel := runAgent(t, c, cn)
	await := func(seq log.Seq) error {
		v, err := c.Client.Wait(patience(t), client.Barrier{Seq: seq, Scopes: []log.Scope{log.CNScope(cn)}, Timeout: time.Minute})
		if err == nil && !v.Done {
			err = fmt.Errorf("%+v", v)
		}
		return err
	}
	programmed := func(seq log.Seq) {
		t.Helper()
		if err := await(seq); err != nil {
			t.Fatalf("the barrier of %d: %v", seq, err)
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
	programmed(0)
	for n := range rounds {
		// What comes has a pass made, behind which the next one keeps a pause.
		mac := makeNIC(t, c, home, vm, cn)
		programmed(0)
		seq := remove(mac)
		ended, has := make(chan error, 1), ""
		go func() {
			err := await(seq)
			has = linkOf(t, kernel, vm, mac)
			ended <- err
		}()
		// The view becomes incomplete while somebody waits, a little later in each round.
		time.Sleep(time.Duration(n%3+6) * 5 * time.Millisecond)
		away := makeNIC(t, c, other, vm, cn)
		if err := <-ended; err != nil || has != "" {
			t.Fatalf("round %d: the barrier of %d is done (%v), and the link %q of the NIC that it deleted is in the kernel", n, seq, err, has)
		}
		programmed(remove(away))
	}
}

// linkOf returns the name of the link with a MAC in a VM's namespace; "" if there is none.
func linkOf(t *testing.T, kernel *link.Fake, vm log.UUID, mac log.MAC) string {
	t.Helper()
	snap, err := kernel.Dump(t.Context(), []string{vm.String()})
	if err != nil {
		return err.Error()
	}
	i := slices.IndexFunc(snap.Links, func(l link.Link) bool { return l.MAC == mac && strings.HasPrefix(l.Name, "fabric") })
	if i < 0 {
		return ""
	}
	return snap.Links[i].Name
}
