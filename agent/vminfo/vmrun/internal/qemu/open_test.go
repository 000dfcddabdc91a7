package qemu

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// ownNetwork gives this test's goroutine a network namespace of its own, with taps as the
// agent makes them; it ends with the thread.
func ownNetwork(t *testing.T, taps map[string]string) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs root and network namespaces: %v", err)
	}
	for name, alias := range taps {
		for _, line := range [][]string{{"ip", "tuntap", "add", name, "mode", "tap", "vnet_hdr"}, {"ip", "link", "set", name, "mtu", "1400", "alias", alias}} {
			if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
				t.Skipf("%v: %v: %s", line, err, out)
			}
		}
	}
}

// TestOpenTap: only the tap that is marked as that of the NIC is opened, once, and none is
// made.
func TestOpenTap(t *testing.T) {
	mine, other := log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}, log.MAC{0x90, 0xb8, 0xd0, 0, 0, 2}
	mark := "rutter 5595d88c-6e4d-4bda-b58e-000000000001 port "
	ownNetwork(t, map[string]string{"mine": mark + mine.String(), "theirs": mark + other.String(), "vnet0": "", "named": "somebody " + mine.String()})
	for name, want := range map[string]error{"none": ErrNoTap, "theirs": ErrNoTap, "vnet0": ErrNoTap, "named": ErrNoTap, "lo": ErrNoTap, "mine": nil} {
		file, mtu, err := OpenTap(name, mine)
		if !errors.Is(err, want) || err == nil && mtu != 1400 {
			t.Errorf("%s: MTU %d, %v, want %v", name, mtu, err, want)
		}
		if err != nil {
			continue
		}
		if _, _, err := OpenTap(name, mine); !errors.Is(err, ErrTapBusy) {
			t.Errorf("%s again: %v", name, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		if err := CheckTap(name, mine); err != nil {
			t.Errorf("%s went with the file: %v", name, err)
		}
	}
	if out, err := exec.Command("ip", "link", "show", "none").CombinedOutput(); err == nil {
		t.Errorf("a tap was made: %s", out)
	}
}

// TestInMemory: a kernel is read whatever its rights are, at most so many bytes of it.
func TestInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(path, []byte("kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := inMemory(path, 6)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text := make([]byte, 10)
	if n, _ := file.ReadAt(text, 0); string(text[:n]) != "kernel" {
		t.Errorf("got %q", text[:n])
	}
	for name, limit := range map[string]int64{path: 5, filepath.Dir(path): 1 << 20, "/dev/zero": 1 << 20, path + "x": 1 << 20} {
		if file, err := inMemory(name, limit); err == nil {
			t.Errorf("%s within %d bytes: no error", name, limit)
			_ = file.Close()
		}
	}
}
