package support

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/integration/rig"
)

// Nodes are asked over their sessions, through whichever server has them. Each command that
// `rutter dev` says to try next works, and nothing of the debug socket is on TCP.
func TestDev(t *testing.T) {
	dev := rig.Dev(t, t.Context(), program, "--plain")
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "RUTTER_SERVER="+dev.URL)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	if out, err := run("support", "bundle", "--cn", "all", "--file", name); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m, files := open(t, name)
	nodes := 0
	for file, text := range files {
		if folder, is := strings.CutSuffix(file, "/goroutines.txt"); is && strings.HasPrefix(file, "nodes/") && strings.Contains(text, "goroutine ") {
			nodes++
			if !strings.Contains(files[folder+"/status.json"], "kernel") || files[folder+"/heap.pb.gz"] == "" || !strings.Contains(files[folder+"/runtime.txt"], "disk of") {
				t.Errorf("%s lacks parts", folder)
			}
		}
	}
	if nodes != 2 || !m.Complete {
		t.Errorf("%d nodes, missing %+v", nodes, m.Missing)
	}
	tried := 0
	for line := range strings.Lines(dev.LastLines(100)) {
		command, about, found := strings.Cut(line, "     # ")
		words := strings.Fields(command)
		if !found || len(words) < 3 || about == "" {
			continue
		}
		tried++
		if out, err := tries(t, words); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	if tried < 6 {
		t.Errorf("it says %d commands to try", tried)
	}
	for _, path := range []string{"/debug/pprof/heap", "/debug/pprof/", "/debug/pprof/cmdline"} {
		answer, err := http.Get(dev.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, answer.Status)
		}
		answer.Body.Close()
	}
}

// tries runs a command until it succeeds: a node that has just joined is unknown at first,
// which a trace doubts.
func tries(t *testing.T, words []string) (out []byte, err error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = t.TempDir()
		if out, err = cmd.CombinedOutput(); err == nil || time.Now().After(end) {
			return out, err
		}
	}
}

// A setting that names a folder or a file that is not there is found, with what to do.
func TestConfigCheckLooksAtFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/empty", 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"[server]\nid = \"s1\"\ntls-dir = \"" + dir + "/none\"\n":          "none is not there: rutter cert issue",
		"[server]\nid = \"s1\"\ntls-dir = \"" + dir + "/empty\"\n":         "tls.key is not there",
		"[server]\nid = \"s1\"\ntls-dir = \"" + dir + "/file\"\n":          "file is no folder",
		"[server]\nid = \"s1\"\npassphrase-file = \"" + dir + "/empty\"\n": "is a folder, and no file",
		"[server]\nid = \"s1\"\ndata = \"" + dir + "/file/below\"\n":       "data: ",
		"[server]\nid = \"s1\"\ndebug-socket = \"x.sock\"\n":               "absolute path",
		"[client]\ntls-ca = \"" + dir + "/none\"\n":                        "none is not there",
	} {
		path := filepath.Join(dir, "rutter.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), program, "config", "check", path).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s, want %q", text, err, out, want)
		}
		out, err = exec.CommandContext(t.Context(), program, "config", "check", "--no-files", path).CombinedOutput()
		if strings.Contains(text, "tls-dir") && strings.Contains(text, "server") && err != nil {
			t.Errorf("--no-files, %s: %v: %s", text, err, out)
		}
	}
}
