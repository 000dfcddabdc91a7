package isolate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// netns makes a network namespace for a test.
func netns(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces")
	}
	name := fmt.Sprintf("isolate-%d", os.Getpid())
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil { //nolint:noctx // the test's context has ended
			t.Errorf("%v: %s", err, out)
		}
	})
	return filepath.Join("/run/netns", name)
}

// TestNoThreadStays: no thread of the node's process stays in the namespace of a VM, also
// not its first thread, which never ends.
func TestNoThreadStays(t *testing.T) {
	path := netns(t)
	there, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 16 {
		var g sync.WaitGroup
		for range 16 { // the first thread is one of those that run them
			g.Go(func() {
				if err := startIn(exec.Command("/no/such/program"), path); !errors.Is(err, fs.ErrNotExist) { //nolint:noctx // it does not start
					t.Errorf("got %v, want no such file", err)
				}
			})
		}
		g.Wait()
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/net", os.Getpid()))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads %v: %v", threads, err)
	}
	for _, thread := range threads {
		if at, err := os.Stat(thread); err == nil && os.SameFile(at, there) {
			t.Errorf("%s is the VM's", thread)
		}
	}
}

// TestProgramOfTheNode: a program of the node that runs as a VM, as QEMU does, is a user
// of its own without capabilities. It reads and writes the disks that it is given by
// descriptor, and no other file of the node except its programs, which it cannot write.
func TestProgramOfTheNode(t *testing.T) {
	ns, dir := netns(t), t.TempDir()
	disk, secret := filepath.Join(dir, "disk"), filepath.Join(dir, "secret")
	for _, name := range []string{disk, secret} {
		if err := os.WriteFile(name, []byte("content of "+filepath.Base(name)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	script := fmt.Sprintf(`exec >&%d 2>&1
read text <&%d && echo "disk: $text"
echo written >&%d
echo "user: $(id -u) as $(cat /proc/self/uid_map)"
grep -e CapBnd -e NoNewPrivs -e Seccomp: /proc/self/status
echo "groups: $(id -G)"
echo "root: $(ls /)"
echo "etc: $(ls /etc 2>&1)"
touch /usr/mark && echo "WROTE /usr"
touch /mark && echo "WROTE /"
cat %s %s
for p in /proc/[0-9]*; do echo "process: $p"; done
echo "devices: $(ls /dev)"
exit 7`, FirstFile+1, FirstFile, FirstFile, secret, disk)
	child, err := Begin(Config{NetNS: ns, Base: 0x40000000, Hostname: "vm", Line: []string{"sh", "-c", script}, Files: []*os.File{file, in}, Devices: []string{"net/tun", "none-of-that-name"}, DeviceGroup: 54321})
	_ = in.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Run(t.Context()); err != nil {
		child.Abort()
		_ = child.Wait()
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("it ended with %v", err)
	}
	said := string(text)
	for _, want := range []string{"disk: content of disk", "user: 0 as", "groups: 0 65536\n", "1073741824", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	for _, not := range []string{"WROTE", "content of secret", "root: boot", "home", "passwd", "none-of-that-name"} {
		if strings.Contains(said, not) {
			t.Errorf("it says %q:\n%s", not, said)
		}
	}
	if left, err := os.ReadFile(disk); err != nil || !strings.Contains(string(left), "written") {
		t.Errorf("its disk has %q (%v)", left, err)
	}
}

// TestNotBegun: a process that does not become the program says why, and leaves nothing.
func TestNotBegun(t *testing.T) {
	ns := netns(t)
	for _, c := range []struct {
		line []string
		want error
	}{{[]string{"none-of-that-name"}, ErrNotFound}, {[]string{"/none/of/that/name"}, ErrNotFound}, {[]string{"/usr"}, ErrCannotRun}} {
		child, err := Begin(Config{NetNS: ns, Base: 0x40000000, Line: c.line})
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Run(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.line, err, c.want)
		}
		if err := child.Wait(); err == nil {
			t.Errorf("%q: it ended without an error", c.line)
		}
	}
	child, err := Begin(Config{NetNS: ns, Base: 0x40000000, Line: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = child.cmd.Process.Kill()
	if err := child.Run(t.Context()); err == nil {
		t.Error("a process that was killed has become the program")
	}
	_ = child.Wait()
	if _, err := Begin(Config{NetNS: ns + "-none", Base: 0x40000000, Line: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("without a network namespace: %v", err)
	}
}
