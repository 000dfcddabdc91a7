package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/guest"
)

// demoLimit bounds a demo that shares the machine with other tests: many times what it
// takes on a quiet one, and guestLimit one in a guest kernel, where all is slower.
const (
	demoLimit  = "RUTTER_DEMO_LIMIT=200s"
	guestLimit = 15 * time.Minute
)

// demoCommand runs the demo with a temporary folder of its own. asNobody runs
// it as an ordinary user.
func demoCommand(t *testing.T, asNobody bool) (*exec.Cmd, string) {
	t.Helper()
	temp, err := os.MkdirTemp("", "rutter-demo-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	cmd := exec.Command(program, "demo")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, demoLimit)
	if asNobody {
		const nobody = 65534
		if err := os.Chown(temp, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd, temp
}

// skipUnlessNamespaces skips where this user may not make namespaces.
func skipUnlessNamespaces(t *testing.T) {
	t.Helper()
	probe := netlab.Enter("-test.run=^$")
	probe.Stdout, probe.Stderr = io.Discard, io.Discard
	if err := probe.Run(); netlab.Forbidden(err) {
		t.Skipf("%v", netlab.ErrForbidden)
	}
}

// nothingLeft fails if the demo left a file or a process that names its folder.
func nothingLeft(t *testing.T, temp string) {
	t.Helper()
	files, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Errorf("the demo left %s", f.Name())
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		b, err := os.ReadFile(line)
		if err == nil && bytes.Contains(b, []byte(temp)) {
			t.Errorf("the demo left process %s: %q", line, b)
		}
	}
}

// The README's first command, from the outside: it holds, and leaves nothing.
func TestDemo(t *testing.T) {
	t.Parallel()
	skipUnlessNamespaces(t)
	for name, asNobody := range map[string]bool{"as this user": false, "as an ordinary user": true} {
		t.Run(name, func(t *testing.T) {
			if asNobody && os.Geteuid() != 0 {
				t.Skip("only root can become another user")
			}
			cmd, temp := demoCommand(t, asNobody)
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatalf("the demo: %v", err)
			}
			if !strings.Contains(string(out), "Every step held") {
				t.Error("the demo ended well without saying so")
			}
			if !strings.Contains(string(out), "0 of 12 lies") && !strings.Contains(string(out), "this kernel cannot hold the rules") {
				t.Error("the demo did not say what became of a VM's lies")
			}
			nothingLeft(t, temp)
		})
	}
}

// The demo is interrupted in the middle: it ends soon, not well, and leaves
// nothing.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	skipUnlessNamespaces(t)
	cmd, temp := demoCommand(t, false)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if err := readUntil(out, &said, "An agent on each CN"); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	// As a terminal does: to the whole group.
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, _ = io.Copy(&said, out) // the pipe ends with the last process that holds it
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() == 0 {
		t.Errorf("ended with %v, want an exit code other than 0\n%s", err, said.String())
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v to end", took)
	}
	nothingLeft(t, temp)
}

func readUntil(r io.Reader, said *bytes.Buffer, text string) error {
	buf := make([]byte, 4096)
	for !strings.Contains(said.String(), text) {
		n, err := r.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			return err
		}
	}
	return nil
}

// The demo in a guest kernel that has 802.1Q: two CNs, real agents, and pings
// through the full stack, VXLAN, VLAN, bridge and veth.
func TestDemoTagged(t *testing.T) {
	t.Parallel()
	guest.SkipUnlessAvailable(t)
	ctx, cancel := context.WithTimeout(t.Context(), guestLimit+time.Minute)
	defer cancel()
	var out bytes.Buffer
	code, err := guest.Run(ctx, guest.Config{
		Binary: program, Args: []string{"demo"}, MemoryMiB: 2048, Timeout: guestLimit,
		Env: []string{"RUTTER_DEMO_LIMIT=10m"}, Output: &out,
	})
	t.Logf("%s", out.String())
	if err != nil || code != 0 {
		t.Fatalf("the demo in the guest: exit code %d, %v", code, err)
	}
	for _, want := range []string{"this kernel has 802.1Q", "Every step held"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo did not say %q", want)
		}
	}
}
