package tls

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/integration/rig"

	"golang.org/x/sys/unix"
)

// status returns the fields of every thread of a process.
func status(t *testing.T, pid int) (all []map[string]string) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread is gone
		}
		fields := make(map[string]string)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		all = append(all, fields)
	}
	return all
}

// Servers have no capability, and agents those that links need; neither can get
// any back. What they write is their user's alone.
func TestConfined(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: others have no capabilities that could be dropped")
	}
	folder := t.TempDir()
	data := map[string]string{"server": filepath.Join(folder, "server"), "agent": filepath.Join(folder, "agent")}
	for _, path := range data {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	url := rig.Address(t)
	args := map[string][]string{
		"server": {"--id", "s1", "--data", data["server"], "--bootstrap", "--listen", url, "--raft", rig.Address(t), "--svp", "off", "--cpuprofile", data["server"]},
		"agent": {
			"--cn", "0e000000-0000-4000-8000-000000000000", "--data", data["agent"], "--servers", "http://" + url, "--svp", "off", "--listen", "off",
			"--vminfod", "off", "--manifests", "off", "--netns", filepath.Join(folder, "netns"), "--etc-netns", filepath.Join(folder, "etc"),
		},
	}
	want := map[string]uint64{"server": 0, "agent": 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_BROADCAST | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_SYS_ADMIN}
	present := permitted(t)
	for _, name := range []string{"server", "agent"} {
		p := launch(t, folder, name, append([]string{name}, args[name]...)...)
		await(t, p.LogFile, "capabilities dropped")
		set := fmt.Sprintf("%016x", want[name]&present)
		for _, fields := range status(t, p.PID()) {
			for _, field := range []string{"CapEff", "CapPrm"} {
				if fields[field] != set {
					t.Errorf("%s: %s %s, want %s", name, field, fields[field], set)
				}
			}
			for _, field := range []string{"CapInh", "CapAmb"} {
				if strings.Trim(fields[field], "0") != "" {
					t.Errorf("%s: %s %s, want none", name, field, fields[field])
				}
			}
			if fields["NoNewPrivs"] != "1" {
				t.Errorf("%s: NoNewPrivs %s, want 1", name, fields["NoNewPrivs"])
			}
		}
	}
	ask := exec.CommandContext(t.Context(), rutter, "tag", "create", "name=one", "-s", "http://"+url)
	if out, err := ask.CombinedOutput(); err != nil {
		t.Errorf("the server without capabilities: %v: %s", err, out)
	}
	for name, path := range data {
		err := filepath.WalkDir(path, func(path string, entry os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if info, err := entry.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %s has mode %v (%v), open to others", name, path, info.Mode(), err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// permitted are the capabilities that this test could give to a process.
func permitted(t *testing.T) (set uint64) {
	t.Helper()
	if _, err := fmt.Sscanf(status(t, os.Getpid())[0]["CapPrm"], "%x", &set); err != nil {
		t.Fatal(err)
	}
	return set
}

// await waits until a process has said something.
func await(t *testing.T, logFile, what string) {
	t.Helper()
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(50 * time.Millisecond) {
		said, err := os.ReadFile(logFile)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(said), what) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not say %q: %s", what, said)
		}
	}
}
