package operate

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	docPath  = "../../docs/deploy.md"
	unitPath = "../../scripts/systemd"
)

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

// step is a block of the document to run, or a loss that it speaks of.
type step struct {
	line   int
	hosts  []string
	script string
	lost   bool
}

var lossMark = regexp.MustCompile(`^<!-- test: lose ([a-z0-9 ]+) -->$`)

// steps reads the document's blocks.
func steps(t *testing.T, text string) (all []step) {
	t.Helper()
	var in *step
	for i, line := range strings.Split(text, "\n") {
		switch {
		case in != nil && line == "```":
			all = append(all, *in)
			in = nil
		case in != nil:
			in.script += line + "\n"
		case lossMark.MatchString(line):
			all = append(all, step{line: i + 1, hosts: strings.Fields(lossMark.FindStringSubmatch(line)[1]), lost: true})
		case strings.HasPrefix(line, "```"):
			words := strings.Fields(strings.TrimPrefix(line, "```"))
			if len(words) < 2 || words[0] != "sh" {
				t.Fatalf("%s:%d: a block of commands says on which hosts they run, as in ```sh s1", docPath, i+1)
			}
			in = &step{line: i + 1, hosts: words[1:]}
		}
	}
	return all
}

// Every command of the document works, in its order.
func TestDeployDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"s1", "s2", "s3", "s4"}
	h := newHosts(t, names...)
	for _, name := range names {
		h.install(name, "rutter-server.service")
	}
	all := steps(t, string(text))
	if len(all) < 20 {
		t.Fatalf("%d blocks found in %s", len(all), docPath)
	}
	for _, s := range all {
		for _, name := range s.hosts {
			if s.lost {
				h.lose(name)
				continue
			}
			out := h.must(name, s.script)
			t.Logf("%s:%d on %s:\n%s", docPath, s.line, name, out)
		}
	}
	// What was written at the start came through two losses and a restore.
	if out := h.must("s2", "rutter tag list"); !strings.Contains(out, "external") {
		t.Errorf("the tag of the beginning is gone:\n%s", out)
	}
	members := h.must("s2", "rutter cluster members -o json")
	if strings.Count(members, `"voter": true`) == 0 {
		t.Errorf("no voters: %s", members)
	}
}

// The units are as systemd wants them.
func TestUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze, of the Debian package systemd")
	}
	for _, unit := range []string{"rutter-server.service", "rutter-agent.service", "rutter-varpd.service"} {
		b, err := os.ReadFile(filepath.Join(unitPath, unit))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), unit)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), "/usr/local/bin/rutter", program)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", path).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", unit, err, out)
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
	h.must("cn1", "rutter config check /etc/rutter/rutter.toml")
	h.install("cn1", "rutter-agent.service")
	// Without rights it says what it lacks; with them it would run on.
	out, err := h.sh("cn1", "timeout -s TERM 2 unshare --user ROOT/exec --svp off --listen off")
	if err == nil || strings.Contains(out, "flag provided") || strings.Contains(out, "is missing") {
		t.Errorf("%v: %s", err, out)
	}
}
