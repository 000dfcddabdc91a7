package operate

import (
	"encoding/json"
	"strings"
	"testing"

	"rutter/agent"
	"rutter/agent/link/plan"
	"rutter/cmd/rutter/demo"
	"rutter/log"
)

// The restore drill of the page on backups, word for word: a file is lost, a server is
// lost, and then all of them are. What was written before the newest backup is there
// again, what came after it is lost, and a node follows the new log without a change to
// its links.
func TestBackupDocument(t *testing.T) {
	t.Parallel()
	h, api := startServers(t, []string{"s1", "s2", "s3"}, threePeers)
	if err := demo.Load(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	kernel := new(plan.Fake)
	a := startAgent(t, demo.CNs()[0], api, kernel)
	all := steps(t, "../../docs/backup.md")
	if len(all) < 12 {
		t.Fatalf("%d blocks found", len(all))
	}
	var before agent.Status
	var newest log.Seq
	acked := make(map[string]log.Seq)
	links := ""
	for _, s := range all {
		if s.Lost && len(s.Hosts) == 3 {
			newest = newestBackup(t, h)
			for _, name := range []string{"late1", "late2"} { // the writers' loss
				if acked[name], _ = tag(t, api, name); acked[name] <= newest {
					t.Fatalf("%s has seq %d, and the newest backup %d", name, acked[name], newest)
				}
			}
			before = awaitStatus(t, a, "the agent to match the log", func(s agent.Status) bool { return s.Programmed >= acked["late2"] })
			links = kernel.String()
		}
		h.run(s)
		if strings.Contains(s.Script, "rutter snapshot now") && acked["early"] == 0 {
			var err error
			if acked["early"], err = tag(t, api, "early"); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := h.must("s1", "rutter tag list")
	for name, seq := range acked {
		if there := strings.Contains(out, name); there != (seq <= newest) {
			t.Errorf("%s, seq %d, is there: %v; the newest backup has seq %d:\n%s", name, seq, there, newest, out)
		}
	}
	awaitStatus(t, a, "the agent to follow the restored log", func(s agent.Status) bool {
		return s.Cursor.Cluster != before.Cursor.Cluster && s.Resets > before.Resets && s.Programmed > 0
	})
	if got := kernel.String(); got != links {
		t.Errorf("the links changed:\n%s\nwere\n%s", got, links)
	}
}

// newestBackup returns the highest seq that a backup has.
func newestBackup(t *testing.T, h *hosts) (newest log.Seq) {
	t.Helper()
	var answers []struct {
		Last *struct {
			Seq log.Seq `json:"seq"`
		} `json:"last"`
	}
	out := h.must("s1", "rutter snapshot schedule -o json")
	if err := json.Unmarshal([]byte(out), &answers); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, a := range answers {
		if a.Last != nil {
			newest = max(newest, a.Last.Seq)
		}
	}
	return newest
}
