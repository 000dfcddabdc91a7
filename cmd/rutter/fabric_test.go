package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent/link/plan"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/api/client"
	"rutter/cmd/rutter/await"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/node"
	"rutter/cmd/rutter/serve"
	"rutter/log"
	"rutter/projections/desired"
	"rutter/raftstore"
)

// freezable is a kernel in memory whose writes can be made to stand still.
type freezable struct {
	*link.Manager
	mu     sync.Mutex
	frozen chan struct{} // closed when it thaws; nil: it is not frozen
}

func (f *freezable) wait(ctx context.Context) {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-ctx.Done():
		}
	}
}

func (f *freezable) freeze() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	frozen := make(chan struct{})
	f.frozen = frozen
	return func() {
		f.mu.Lock()
		f.frozen = nil
		f.mu.Unlock()
		close(frozen)
	}
}

func (f *freezable) Pass(ctx context.Context, want desired.Links, complete bool) (link.Result, error) {
	f.wait(ctx)
	return f.Manager.Pass(ctx, want, complete)
}

func (f *freezable) Apply(ctx context.Context, delta desired.LinksDelta) link.Result {
	f.wait(ctx)
	return f.Manager.Apply(ctx, delta)
}

// freeAddress is a loopback address without a listener, of this process alone.
func freeAddress(t *testing.T) string {
	t.Helper()
	ports, err := bench.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// testCluster is three servers in this process.
type testCluster struct {
	urls    []string
	servers []*serve.Server
	stop    []func()
}

func startCluster(t *testing.T) *testCluster {
	t.Helper()
	c := &testCluster{}
	var members []raftstore.Member
	for i := range 3 {
		members = append(members, raftstore.Member{ID: fmt.Sprintf("s%d", i+1), Address: freeAddress(t)})
	}
	folder := t.TempDir()
	for _, m := range members {
		s, err := serve.Open(serve.Options{
			Store: raftstore.Config{ID: m.ID, Dir: filepath.Join(folder, m.ID), Listen: m.Address, InitialMembers: members},
			API:   "127.0.0.1:0", SVP: "off", Version: "test", Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		stop := sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Logf("server %s: %v", m.ID, err)
			}
		})
		t.Cleanup(stop)
		c.servers, c.stop = append(c.servers, s), append(c.stop, stop)
		c.urls = append(c.urls, "http://"+s.Address().String())
	}
	return c
}

// startNode starts an agent and returns its kernel.
func (c *testCluster) startNode(t *testing.T, cn log.UUID, api *client.Client) *freezable {
	t.Helper()
	kernel := new(freezable)
	n, err := node.Open(node.Options{
		CN: cn, Folder: t.TempDir(), Servers: &node.Connection{API: api},
		Kernel: node.Kernel{New: func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
			kernel.Manager = node.SimulatedManager(numbers, save)
			return kernel, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return kernel
}

// settleLimit is how long a busy machine may take until nodes are where they go.
const settleLimit = time.Minute

// TestBarrierNamesFrozenKernel: three servers and three agents; a kernel that
// takes nothing any more is named by the barrier, which never says done; it says
// so as soon as the kernel goes on, also after the leader has gone.
func TestBarrierNamesFrozenKernel(t *testing.T) {
	c := startCluster(t)
	api, err := client.New(client.Config{Servers: c.urls, Timeout: settleLimit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	kernels := make(map[string]*freezable)
	for i := range 3 {
		cn, name := log.UUID{0: 0x56, 6: 0x40, 8: 0x80, 15: byte(i + 1)}, fmt.Sprintf("cn%d", i+1)
		if _, err := api.Create(t.Context(), "/servers", fmt.Appendf(nil, `{"uuid":%q,"hostname":%q}`, cn, name)); err != nil {
			t.Fatal(err)
		}
		kernels[name] = c.startNode(t, cn, api)
	}
	wait := func(timeout time.Duration) client.Verdict {
		t.Helper()
		v, err := api.Wait(t.Context(), client.Barrier{Scopes: []log.Scope{log.AllScope()}, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := wait(settleLimit); !v.Done || v.CNs != 3 {
		t.Fatalf("at first: %+v", v)
	}
	thaw, frozen := kernels["cn2"].freeze(), time.Now()
	if _, err := api.Create(t.Context(), "/nic_tags", []byte(`{"name":"frozen"}`)); err != nil {
		t.Fatal(err)
	}
	// cn2 is in every answer; how soon the others are not is the machine's.
	for {
		v := wait(700 * time.Millisecond)
		i := slices.IndexFunc(v.Missing, func(m client.Laggard) bool { return m.Hostname == "cn2" })
		if v.Done || i < 0 || v.Missing[i].Programmed >= v.Seq {
			t.Fatalf("with a frozen kernel: %+v", v)
		}
		if v.Total == 1 && strings.Contains(v.Missing[0].Reason, "kernel") && v.Missing[0].Applied >= v.Seq {
			break
		}
		if t.Context().Err() != nil || time.Since(frozen) > settleLimit {
			t.Fatalf("with a frozen kernel, %s after: %+v", time.Since(frozen), v)
		}
	}
	for n := 1; ; n++ {
		code, _, stderr := rutter(t, "tag", "create", fmt.Sprintf("name=cold%d", n), "--wait", "fabric", "--timeout", "300ms", "-s", c.urls[0])
		behind := strings.Contains(stderr, "could not be read") // the server did not get there in time
		if code != await.ExitMissing || !strings.Contains(stderr, "cn2") && !behind || !strings.Contains(stderr, "written as seq") {
			t.Fatalf("create that waits, with a frozen kernel: exit code %d, %q", code, stderr)
		}
		if !behind && !strings.Contains(stderr, "cn1") {
			break
		}
		if time.Since(frozen) > 2*settleLimit {
			t.Fatalf("create that waits, with a frozen kernel, %s after, names not cn2 alone: %q", time.Since(frozen), stderr)
		}
	}
	for i, s := range c.servers {
		if s.Leading() {
			c.stop[i]()
			break // while it stopped another one may have come to lead: two are needed
		}
	}
	for stopped := time.Now(); ; { // the others elect a leader, and it hears of the nodes
		v := wait(3 * time.Second)
		if v.Done || v.Total == 0 && time.Since(stopped) > settleLimit {
			t.Fatalf("with a frozen kernel and another leader: %+v", v)
		}
		if v.Total > 0 {
			break
		}
	}
	began := time.Now()
	time.AfterFunc(100*time.Millisecond, thaw)
	if v := wait(settleLimit); !v.Done {
		t.Fatalf("after the thaw: %+v", v)
	}
	if code, _, stderr := rutter(t, "tag", "delete", "cold1", "--wait", "fabric", "--timeout", settleLimit.String(), "-s", c.urls[1], "-s", c.urls[0], "-s", c.urls[2]); code != 0 {
		t.Errorf("delete that waits: exit code %d, %q", code, stderr)
	}
	t.Logf("done %s after the thaw", time.Since(began)-100*time.Millisecond)
}
