package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/api/client"
	"rutter/cmd/rutter/demo"
	"rutter/integration/rig"
	"rutter/log"
)

// simulated is a kernel in memory in which each namespace is there.
type simulated struct{ *plan.Fake }

// Dump implements link.Kernel.
func (s simulated) Dump(ctx context.Context, namespaces []string) (plan.Snapshot, error) {
	for _, name := range namespaces {
		if name != "" {
			s.AddNamespace(name)
		}
	}
	return s.Fake.Dump(ctx, namespaces)
}

// startAgent starts an agent with a simulated kernel, which ends with the test.
func startAgent(t *testing.T, cn log.UUID, api *client.Client, kernel *plan.Fake) *agent.Agent {
	t.Helper()
	return rig.Agent(t, agent.Config{
		CN: cn, Servers: api.Servers(), Dialer: api,
		Kernel: func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
			return link.NewManager(link.ManagerConfig{Kernel: simulated{kernel}, Numbers: numbers, Save: save}), nil
		},
	})
}

func awaitStatus(t *testing.T, a *agent.Agent, what string, condition func(agent.Status) bool) agent.Status {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if s := a.Status(); condition(s) {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s; %+v", what, a.Status())
		}
	}
}

// After a restore the log has another identity: a cursor of the old one is
// refused by name, and an agent that followed it begins anew without touching a
// link that stays wanted, though the restored log is shorter than what it knew.
func TestOldCursorsAfterRestore(t *testing.T) {
	t.Parallel()
	h, api := startServers(t, []string{"s1"}, "bootstrap = true")
	if err := demo.Load(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	kernel := new(plan.Fake)
	a := startAgent(t, demo.CNs()[0], api, kernel)
	h.must("s1", "rutter snapshot save /var/backups/a.snapshot")
	h.must("s1", "rutter tag create name=after_the_snapshot")
	head, err := api.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := awaitStatus(t, a, "the agent to match the log", func(s agent.Status) bool { return s.Programmed >= head })
	links := kernel.String()

	h.must("s1", "systemctl stop rutter-server && mv /var/lib/rutter/*.db /var/lib/rutter/raft.wal /var/backups/")
	if out, err := h.sh("s1", "head -c 50000 /var/backups/a.snapshot > ROOT/cut && rutter snapshot restore ROOT/cut --data /var/lib/rutter --id s1 --raft 10.0.0.1:7421"); err == nil || !strings.Contains(out, "not saved whole") {
		t.Errorf("a snapshot that was cut off: %v: %s", err, out)
	}
	h.must("s1", "rutter snapshot restore /var/backups/a.snapshot --data /var/lib/rutter --id s1 --raft 10.0.0.1:7421")
	h.must("s1", "systemctl start rutter-server && rutter cluster status --wait 1m")

	var refusal *log.Refusal
	_, err = api.Get(t.Context(), "/log", url.Values{"cursor": {before.Cursor.String()}})
	if !errors.As(err, &refusal) || refusal.Code == "" {
		t.Errorf("the old cursor %s: got %v, want a typed refusal", before.Cursor, err)
	} else {
		t.Logf("the old cursor: %v", refusal)
	}
	after := awaitStatus(t, a, "the agent to follow the restored log", func(s agent.Status) bool {
		return s.Cursor.Cluster != before.Cursor.Cluster && s.Resets > before.Resets && s.Programmed > 0
	})
	if after.Cursor.Seq >= before.Cursor.Seq {
		t.Errorf("the agent is at %s, and was at %s in a log that is longer", after.Cursor, before.Cursor)
	}
	if got := kernel.String(); got != links {
		t.Errorf("the links changed:\n%s\nwere\n%s", got, links)
	}
	t.Logf("reset: %s", after.ResetReason)
}

// An image that is fetched without our client is a file that restore takes.
func TestSnapshotOverHTTP(t *testing.T) {
	t.Parallel()
	h, api := startServers(t, []string{"s1"}, "bootstrap = true")
	h.must("s1", "rutter tag create name=a")
	response, err := http.Get(api.Servers()[0] + "/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength <= 0 || response.Header.Get(client.HeaderSeq) != "1" {
		t.Errorf("got %s, %d bytes, headers %v", response.Status, response.ContentLength, response.Header)
	}
	out := h.must("s1", "rutter snapshot save ROOT/x -o json && rutter snapshot inspect ROOT/x")
	for _, want := range []string{`"seq": 1`, "every checksum fits", fmt.Sprintf("nic_tag     %d", 1)} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out, err := h.sh("s1", "rutter snapshot save ROOT/x"); err == nil || !strings.Contains(out, "is there already") {
		t.Errorf("over a file: %v: %s", err, out)
	}
	if out, err := h.sh("s1", "rutter snapshot inspect --data /var/lib/rutter"); err == nil || !strings.Contains(out, "server") {
		t.Errorf("the folder of a running server: %v: %s", err, out)
	}
}
