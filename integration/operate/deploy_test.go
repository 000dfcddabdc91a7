package operate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"rutter/integration/pages"
)

const (
	docPath = "../../docs/deploy.md"
	// installed is the program in units and pages.
	installed = "/usr/bin/rutter"
	unitPath  = "../../scripts/systemd"
)

// machines are those of the documents.
var machines = []string{"admin", "s1", "s2", "s3", "s4", "cn1"}

// newMachines are hosts with the documents' names, and the units of their roles.
func newMachines(t *testing.T) *hosts {
	t.Helper()
	h := newHosts(t, machines...)
	for _, name := range machines {
		switch name[0] {
		case 's':
			h.install(name, "rutter-server.service")
		case 'c':
			h.installAgent(name)
		}
	}
	return h
}

// execStart returns the command of a unit.
func execStart(t *testing.T, unit string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(unitPath, unit))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			return command
		}
	}
	t.Fatalf("%s has no ExecStart", unit)
	return ""
}

// steps reads a document's blocks.
func steps(t *testing.T, path string) []pages.Step {
	t.Helper()
	all, err := pages.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// run does what a step says.
func (h *hosts) run(s pages.Step) {
	h.t.Helper()
	for _, name := range s.Hosts {
		if s.Lost {
			h.lose(name)
			continue
		}
		h.t.Logf("%s:%d on %s:\n%s", s.Path, s.Line, name, h.must(name, s.Script))
	}
}

// Every command of the document works, in its order.
func TestDeployDocument(t *testing.T) {
	t.Parallel()
	h := newMachines(t)
	all := steps(t, docPath)
	if len(all) < 20 {
		t.Fatalf("%d blocks found in %s", len(all), docPath)
	}
	for _, s := range all {
		h.run(s)
		if strings.Contains(s.Script, "enable --now rutter-agent") {
			h.awaitNode()
		}
	}
	// What was written at the start came through two losses and a restore.
	if out := h.must("admin", "rutter tag list"); !strings.Contains(out, "external") {
		t.Errorf("the tag of the beginning is gone:\n%s", out)
	}
	members := h.must("admin", "rutter cluster members -o json")
	if strings.Count(members, `"voter": true`) == 0 {
		t.Errorf("no voters: %s", members)
	}
	h.awaitNode() // which followed two clusters that were new to it
}

// The compute node of the documents.
const nodeID = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"

// nodePatience is how long it may take to come back, on a busy machine.
const nodePatience = time.Minute

// awaitNode waits until the compute node follows, where there is one.
func (h *hosts) awaitNode() {
	h.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	h.await("the compute node to follow", func() (string, bool) {
		out := h.must("admin", "rutter cn sessions -o json")
		return out, strings.Contains(out, nodeID)
	})
}

// await looks until something holds.
func (h *hosts) await(what string, holds func() (string, bool)) {
	h.t.Helper()
	for end := time.Now().Add(nodePatience); ; time.Sleep(200 * time.Millisecond) {
		out, ok := holds()
		if ok {
			return
		}
		if time.Now().After(end) {
			h.showLogs()
			h.t.Fatalf("%v was not enough for %s: %s", nodePatience, what, out)
		}
	}
}

// exposures are the highest scores of systemd-analyze security (0 is best, 10 is worst) that
// units may have; docs/security.md has them. VMs inherit what rutter-vms.service forbids, and
// need the rest.
var exposures = map[string]float64{"rutter-server.service": 2, "rutter-agent.service": 4, "rutter-varpd.service": 4, "rutter-vms.service": 6.5}

// The units are as systemd wants them, and leave no more open than is said.
func TestUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze, of the Debian package systemd")
	}
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for unit, most := range exposures {
		if row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\| [0-9.]+ \\| %v \\|", regexp.QuoteMeta(unit), most)); !row.Match(page) {
			t.Errorf("docs/security.md has no row of %s with at most %v", unit, most)
		}
		b, err := os.ReadFile(filepath.Join(unitPath, unit))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), unit)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), installed, program)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		out, err = exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold="+strconv.Itoa(int(10*most)), path).CombinedOutput()
		if _, score, _ := strings.Cut(string(out), "Overall exposure level"); err != nil {
			t.Errorf("%s may have %.1f: %v: %s", unit, most, err, score)
		} else {
			t.Logf("%s:%s", unit, strings.TrimSpace(score))
		}
	}
}

// The agent's ExecStart takes the example file, and needs only its rights.
func TestAgentExecStart(t *testing.T) {
	t.Parallel()
	h := newHosts(t, "cn1")
	example, err := os.ReadFile("../../scripts/rutter.toml")
	if err != nil {
		t.Fatal(err)
	}
	h.write("cn1", "/etc/rutter/rutter.toml", h.rewrite("cn1", string(example)), 0o600)
	h.must("cn1", `rutter cert init --dir /root/pki
rutter cert issue cn `+nodeID+` --dir /root/pki --out /etc/rutter/tls
rutter config check --no-files /etc/rutter/rutter.toml`)
	h.install("cn1", "rutter-agent.service")
	// Without rights it says what it lacks; with them it would run on.
	out, err := h.sh("cn1", "timeout -s TERM 2 unshare --user ROOT/exec --svp off --listen off --socket off")
	if err == nil || strings.Contains(out, "flag provided") || strings.Contains(out, "is missing") {
		t.Errorf("%v: %s", err, out)
	}
}
