package metrics

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rutter/agent"
	"rutter/agent/filter"
	"rutter/agent/ports"
	"rutter/log"
	"rutter/projections/desired"
)

func sample(now time.Time) Config {
	status := agent.Status{State: agent.Following, Cursor: log.Cursor{Seq: 40}, Head: 42, Lag: 2, Bookmark: now.Add(-3 * time.Second), Objects: map[string]int{"nic": 5}}
	status.Kernel = agent.KernelStatus{Passes: 7, TookAll: 1500 * time.Millisecond, HealedBy: map[string]uint64{"neighbour": 2}, VNets: 1, Waiting: 3, Idle: 1, Failing: 2, Unread: 2}
	status.Kernel.WaitingNICs, status.Kernel.FailingBy = 2, map[string]int{"fabric link": 2, "bridge": 1}
	status.Kernel.Delays = agent.Delays{Count: 3, Sum: 200 * time.Millisecond}
	for i := range status.Kernel.Delays.UpTo {
		status.Kernel.Delays.UpTo[i] = uint64(min(i/3, 3))
	}
	status.Kernel.Demand = agent.DemandStatus{Questions: 9, Answered: 8}
	status.Cache.Failure = "no room"
	drops := func(n uint64) ports.Drops { return ports.Drops{filter.ReasonIP: {Packets: n, Bytes: 100 * n}} }
	mac := log.MAC{2, 5: 1}
	return Config{
		Version: "1.2.3",
		Now:     func() time.Time { return now },
		Agent:   func() agent.Status { return status },
		Ports: func(context.Context) ports.Status {
			return ports.Status{
				Mode: ports.Mode{Mode: desired.SecurityEnforced}, Underlay: map[filter.Reason]filter.Count{filter.ReasonPeer: {Packets: 4}},
				// The link of one NIC was made again, and the old one is still there.
				Ports: []ports.Port{
					{NIC: mac, Alias: "web\xff\"\n1", Name: "port0", Drops: drops(5)},
					{NIC: mac, Alias: "web\xff\"\n1", Name: "port1", Drops: drops(7)},
					{NIC: log.MAC{2, 5: 2}, VM: log.UUID{15: 1}, Name: "port2", Drops: drops(0)},
					{NIC: log.MAC{2, 5: 3}, Name: "port3"},
				},
			}
		},
		Answers:    func() []Answers { return []Answers{{"arp", 11}} },
		Unanswered: func() []Unanswered { return []Unanswered{{"unknown", 12}} },
		Helper: func() Helper {
			return Helper{Up: true, Said: true, Open: 2, Working: 1, Done: 9, Failed: 4, Refused: map[string]uint64{"peer": 3}}
		},
	}
}

// The names, types, help texts and labels are an interface: testdata/metrics.txt has
// them. RUTTER_WRITE=1 writes it anew.
func TestGolden(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New(sample(time.Unix(1e9, 0))))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	got := bytes.ReplaceAll(w.Body.Bytes(), []byte(runtime.Version()), []byte("GO"))
	path := filepath.Join("testdata", "metrics.txt")
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || w.Code != 200 || !bytes.Equal(got, want) {
		t.Errorf("%v: status %d\n%s", err, w.Code, got)
	}
}

// TestNoPortTakesTheRestAway: two host ends of one NIC, and an alias that is no UTF-8,
// do not make the whole answer fail; the handler has the process's metrics too.
func TestNoPortTakesTheRestAway(t *testing.T) {
	cfg := sample(time.Now())
	cfg.Folder = t.TempDir()
	handler, err := Handler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		`rutter_agent_port_drops_total{mac="02:00:00:00:00:01",reason="ip",vm="web?\"\n1"} 12` + "\n",
		"rutter_agent_disk_free_bytes ", "process_open_fds ", "go_goroutines ", `rutter_agent_port_security{mode="enforced"} 1`,
	} {
		if w.Code != 200 || !strings.Contains(text, want) {
			t.Errorf("status %d, without %q", w.Code, want)
		}
	}
}

// TestHelperThatNeverAnswered: its counts are not known, and are not 0.
func TestHelperThatNeverAnswered(t *testing.T) {
	cfg := sample(time.Unix(1e9, 0))
	cfg.Helper = func() Helper { return Helper{} }
	registry := prometheus.NewRegistry()
	registry.MustRegister(New(cfg))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if text := w.Body.String(); !strings.Contains(text, "\nrutter_agent_vm_helper_up 0\n") || strings.Contains(text, "rutter_agent_vm_helper_requests") {
		t.Error(text)
	}
}
