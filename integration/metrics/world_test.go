package metrics

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/api/client"
	"rutter/cmd/rutter/node"
	"rutter/cmd/rutter/serve"
	"rutter/integration/rig"
	"rutter/log"
	"rutter/projections/desired"
	"rutter/raftstore"
)

// limit bounds each wait, on a machine that is busy.
const limit = time.Minute

// kernel is one in memory whose work can be made to stand still.
type kernel struct {
	*link.Manager
	work sync.Mutex // held while it stands still
}

func (k *kernel) Pass(ctx context.Context, want desired.Links, complete bool) (link.Result, error) {
	k.work.Lock()
	defer k.work.Unlock()
	return k.Manager.Pass(ctx, want, complete)
}

func (k *kernel) Apply(ctx context.Context, delta desired.LinksDelta) link.Result {
	k.work.Lock()
	defer k.work.Unlock()
	return k.Manager.Apply(ctx, delta)
}

// world is a server and its clients, in this process.
type world struct {
	server *serve.Server
	api    *client.Client
	url    string
}

// run runs a part until the test ends.
func run(t *testing.T, part func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
}

func start(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server: skipped with -short")
	}
	peer := rig.Address(t)
	s, err := serve.Open(serve.Options{
		Store: raftstore.Config{ID: "s1", Dir: filepath.Join(t.TempDir(), "s1"), Listen: peer, InitialMembers: []raftstore.Member{{ID: "s1", Address: peer}}},
		API:   "127.0.0.1:0", SVP: "127.0.0.1:0", Version: "1.2.3", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s.Run)
	w := &world{server: s, url: "http://" + s.Address().String()}
	if w.api, err = client.New(client.Config{Servers: []string{w.url}, Timeout: limit}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.api.Close)
	return w
}

// startNode starts an agent, and returns its kernel and the URL of its status.
func (w *world) startNode(t *testing.T, cn log.UUID, hostname string) (k *kernel, status string) {
	t.Helper()
	if _, err := w.api.Create(t.Context(), "/servers", fmt.Appendf(nil, `{"uuid":%q,"hostname":%q}`, cn, hostname)); err != nil {
		t.Fatal(err)
	}
	k, status = new(kernel), rig.Address(t)
	opened := make(chan struct{})
	n, err := node.Open(node.Options{
		CN: cn, Folder: t.TempDir(), Servers: &node.Connection{API: w.api}, Version: "1.2.3", Status: status, Opened: func() { close(opened) },
		Kernel: node.Kernel{New: func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
			k.Manager = node.SimulatedManager(numbers, save)
			return k, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, n.Run)
	<-opened
	return k, "http://" + status
}

// scrape returns the answer of GET /metrics.
func scrape(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v\n%s", response.Status, err, body)
	}
	return string(body)
}

// seriesOf returns the value of each series of an answer, by its name and labels.
func seriesOf(answer string) map[string]float64 {
	all := make(map[string]float64)
	for line := range strings.Lines(answer) {
		at := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64); err == nil && line[0] != '#' {
			all[line[:at]] = value
		}
	}
	return all
}

// await scrapes until what is asked for is so.
func await(t *testing.T, url, what string, is func(map[string]float64) bool) map[string]float64 {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		answer := scrape(t, url)
		if all := seriesOf(answer); is(all) {
			return all
		}
		if time.Now().After(end) {
			t.Fatalf("not so after %s: %s\n%s", limit, what, answer)
		}
	}
}
