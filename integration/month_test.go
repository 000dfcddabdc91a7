package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// month is how far the servers' clocks go on while an agent is away.
const month = 31 * 24 * time.Hour

// TestAwayForAMonth: an agent is away while all clocks go on by a month and the log lets
// go of what came after its cursor. Its VMs go on with what they have; when it is back, it
// has the log's present state: what was deleted is gone, what is new is reached, and what
// stayed was never touched. (Certificates: integration/tls.TestAwayForLong.)
func TestAwayForAMonth(t *testing.T) {
	t.Parallel()
	if !enterVMLab(t) {
		return
	}
	clocks := t.TempDir()
	p := &promised{newVMWorld(t, "--drill-clock", clocks)}
	here, away := p.nodes[0], p.nodes[1]
	nic := func(ip string) string { return fmt.Sprintf(`{"network_uuid":%q,"ip":%q}`, p.network, ip) }
	old := p.runs(t, here, "old", nic("10.0.0.50"))
	stays := p.runs(t, away, "stays", nic("10.0.0.51"))
	p.pings(t, stays, "10.0.0.50", true)
	here.must("cluster", "retention", "set", "--age", "24h", "--events", "1")
	away.stopAgent()
	cursor := p.c.level()
	p.pings(t, stays, "10.0.0.50", true)
	here.must("vm", "stop", old.String())
	here.must("vm", "delete", old.String())
	fresh := here.plain("fresh", "nics=["+nic("10.0.0.52")+"]", "--start")
	if err := p.c.Rest(); err != nil { // so that the clocks are never apart
		t.Fatal(err)
	}
	for _, s := range p.c.Servers {
		if err := os.WriteFile(filepath.Join(clocks, s.ID), []byte(month.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.c.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.monthLater(t, cursor)
	pid := away.pid(stays)
	away.startAgent()
	p.pings(t, stays, "10.0.0.52", true)
	p.pings(t, fresh, "10.0.0.51", true)
	p.pings(t, stays, "10.0.0.50", false)
	away.until("it has settled", func() bool {
		out, err := away.rutter("agent", "status", "-o", "json")
		return err == nil && strings.Contains(strings.ReplaceAll(out, " ", ""), `"settled":true`)
	})
	if now := away.pid(stays); now != pid {
		t.Errorf("the VM that stayed was process %d and is %d", pid, now)
	}
	p.until("the VM that stayed runs in the log", func() bool { return p.value("/vms/"+stays.String(), "state") == "running" })
}

// monthLater writes until the log's time is a month later, and waits until no server has
// what comes after the cursor.
func (p *promised) monthLater(t *testing.T, cursor log.Seq) {
	t.Helper()
	const upkeep = 3 * time.Minute // a round comes each serve.DrillUpkeep
	for deadline, i := time.Now().Add(upkeep), 0; ; time.Sleep(100 * time.Millisecond) {
		behind := ""
		for _, s := range p.c.Servers {
			status, err := p.c.Client.StatusOf(t.Context(), s.URL)
			switch {
			case err != nil:
				behind = fmt.Sprintf("%s: %v", s.ID, err)
			case time.Until(status.Time.Std()) < month-time.Hour:
				behind = fmt.Sprintf("%s is at %v", s.ID, status.Time)
				if _, err := p.c.Client.Submit(t.Context(), tag(fmt.Sprintf("later%d", i))); err != nil {
					behind += ": " + err.Error()
				}
				i++
			case status.Floor <= cursor+1:
				behind = fmt.Sprintf("%s has entries from %d on", s.ID, status.Floor)
			}
		}
		if behind == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no month went by: %s; the cursor is %d", behind, cursor)
		}
	}
}
