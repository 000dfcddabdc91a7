package operate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/api/client"
	"rutter/log"
)

// The tests of this file give a server a disk of its own, and then real
// trouble: a tmpfs that is full, and an ext4 on a loop device that fails or
// turns read-only under it.

// mountOn runs mount for a folder of a host, or skips.
func mountOn(t *testing.T, h *hosts, name, folder string, args ...string) {
	t.Helper()
	at := h.path(name, folder)
	out, err := exec.Command("mount", append(args, at)...).CombinedOutput()
	if err != nil {
		t.Skipf("needs to mount file systems, as root: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // the server may still end
}

// ext4On gives a folder of a host an ext4 of its own in a file, which it returns.
func ext4On(t *testing.T, h *hosts, name, folder string) (image string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 96<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-E", "nodiscard", image).CombinedOutput(); err != nil {
		t.Skipf("needs mkfs.ext4, of the Debian package e2fsprogs: %v: %s", err, out)
	}
	mountOn(t, h, name, folder, "-o", "loop,errors=remount-ro", image)
	return image
}

// ballast fills the file system of a folder until so many bytes are left.
func ballast(t *testing.T, folder string, left int64) (remove func()) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "ballast")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	chunk := make([]byte, 64<<10)
	for n := int64(st.Bavail)*st.Bsize - left; n > 0; n -= int64(len(chunk)) {
		if _, err := file.Write(chunk[:min(n, int64(len(chunk)))]); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// tag makes a tag once, and returns its seq.
func tag(t *testing.T, api *client.Client, name string) (log.Seq, error) {
	t.Helper()
	result, err := api.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name},
	}}})
	return result.Last, err
}

// hasty is a client that gives up soon.
func hasty(t *testing.T, api *client.Client) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Servers: api.Servers(), Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// awaitEnd waits until a host's server has ended, and returns what it said last.
func awaitEnd(t *testing.T, h *hosts, name string) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if out, _ := h.sh(name, "kill -0 $(cat ROOT/pid) 2>/dev/null && echo runs || true"); !strings.Contains(out, "runs") {
			return h.must(name, "rm ROOT/pid; tail -n 5 ROOT/log")
		}
		if time.Now().After(end) {
			h.showLogs()
			t.Fatal("the server runs on")
		}
	}
}

// checkSaid wants the last words to name the trouble, for people.
func checkSaid(t *testing.T, said string, want ...string) {
	t.Helper()
	t.Logf("it said:\n%s", said)
	for _, w := range want {
		if !strings.Contains(said, w) {
			t.Errorf("no %q in what it said", w)
		}
	}
	if strings.Contains(said, "goroutine ") || strings.Contains(said, "panic") {
		t.Error("a trace for a message")
	}
}

// One server's disk gets into trouble while it is written to: it acknowledges
// nothing more, says what happened and ends, and when the disk is well again it
// has all that it acknowledged.
func TestRealDiskTrouble(t *testing.T) {
	const data = "/var/lib/rutter"
	tests := []struct {
		name    string
		disk    func(t *testing.T, h *hosts)
		trouble func(t *testing.T, h *hosts) (mend func())
		said    []string // one of these
	}{
		{
			"shut down",
			func(t *testing.T, h *hosts) { ext4On(t, h, "s1", data) },
			func(t *testing.T, h *hosts) func() {
				shutDown(t, h.path("s1", data))
				return func() { remount(t, h.path("s1", data)) }
			},
			[]string{"input/output error"},
		},
		{
			"read-only",
			func(t *testing.T, h *hosts) { ext4On(t, h, "s1", data) },
			func(t *testing.T, h *hosts) func() {
				turnReadOnly(t, h.path("s1", data))
				return func() { remount(t, h.path("s1", data)) }
			},
			// What is under way when the file system turns read-only may fail first.
			[]string{"read-only file system", "input/output error"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newHosts(t, "s1")
			test.disk(t, h)
			_, api := startServersOn(t, h, []string{"s1"}, "bootstrap = true")
			acked := make(map[string]log.Seq)
			write := func(api *client.Client, prefix string, n int) {
				for i := range n {
					name := fmt.Sprintf("%s%d", prefix, i)
					seq, err := tag(t, api, name)
					if err != nil {
						t.Logf("after %d of %s: %v", i, prefix, err)
						return
					}
					acked[name] = seq
				}
			}
			write(api, "before", 50)
			if len(acked) != 50 {
				t.Fatalf("%d of 50 changes before the trouble", len(acked))
			}
			mend := test.trouble(t, h)
			write(hasty(t, api), "during", 20000)
			said := awaitEnd(t, h, "s1")
			checkSaid(t, said, "disk trouble")
			if !slices.ContainsFunc(test.said, func(cause string) bool { return strings.Contains(said, cause) }) {
				t.Errorf("none of %q in what it said", test.said)
			}
			if out, err := h.sh("s1", "timeout 20 ROOT/exec 2>&1"); err == nil || strings.Contains(out, "goroutine ") {
				t.Errorf("a start during the trouble: %v:\n%s", err, out)
			} else {
				t.Logf("a start during the trouble: %s", lastLine(out))
			}
			mend()
			h.must("s1", "systemctl start rutter-server && rutter cluster status --wait 30s")
			write(api, "after", 5)
			if acked["after4"] == 0 {
				t.Error("nothing can be written after the trouble")
			}
			checkTags(t, api, acked)
		})
	}
}

// One server's disk is full, to the last pages: it goes on to serve what it has,
// says so, refuses what is to be written by name, starts as it is, and takes writes
// again by itself when there is room.
func TestRealDiskFull(t *testing.T) {
	const data = "/var/lib/rutter"
	h := newHosts(t, "s1")
	mountOn(t, h, "s1", data, "-t", "tmpfs", "-o", "size=48m", "tmpfs")
	_, api := startServersOn(t, h, []string{"s1"}, "bootstrap = true")
	acked := make(map[string]log.Seq)
	for i := range 50 {
		name := fmt.Sprintf("before%d", i)
		seq, err := tag(t, api, name)
		if err != nil {
			t.Fatal(err)
		}
		acked[name] = seq
	}
	remove := ballast(t, h.path("s1", data), 64<<10)
	soon, refused := hasty(t, api), ""
	for i := 0; !strings.Contains(refused, "NoRoom"); i++ {
		name := fmt.Sprintf("during%d", i)
		seq, err := tag(t, soon, name)
		if err == nil {
			acked[name] = seq
		} else {
			refused = err.Error() // the fate of one that was under way may be unknown
		}
		if i > 1000 {
			t.Fatalf("it writes on a disk that is full; last: %s", refused)
		}
	}
	h.must("s1", "kill -0 $(cat ROOT/pid)")
	checkTags(t, api, acked)
	h.must("s1", "kill -9 $(cat ROOT/pid); rm ROOT/pid; systemctl start rutter-server")
	awaitServes(t, h)
	remove()
	h.must("s1", "rutter cluster status --wait 30s")
	for i := range 5 {
		name := fmt.Sprintf("after%d", i)
		seq, err := tag(t, api, name)
		if err != nil {
			t.Fatalf("with room again: %v", err)
		}
		acked[name] = seq
	}
	checkTags(t, api, acked)
}

// awaitServes waits until the server of s1 shows what it has, ready or not.
func awaitServes(t *testing.T, h *hosts) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, err := h.sh("s1", "rutter cluster status")
		if err != nil && strings.Contains(out, "ALARM") { // exit code 1: there is something to see to
			return
		}
		if time.Now().After(end) {
			h.showLogs()
			t.Fatalf("it does not start on a full disk: %v: %s", err, out)
		}
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// checkTags looks for tags at the seqs that were acknowledged.
func checkTags(t *testing.T, api *client.Client, acked map[string]log.Seq) {
	t.Helper()
	at := make(map[string]log.Seq)
	for line, err := range api.Log(t.Context(), client.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if line.Event.Kind == log.KindNICTag {
			at[line.Event.ID] = line.Seq
		}
	}
	for name, seq := range acked {
		if at[name] != seq {
			t.Errorf("%s was acknowledged at %d, and is at %d", name, seq, at[name])
		}
	}
	t.Logf("%d acknowledged changes are there", len(acked))
}

// shutDown makes every further access to an ext4 fail, as a device that is gone
// (EXT4_IOC_SHUTDOWN without flags, linux/ext4.h).
func shutDown(t *testing.T, folder string) {
	t.Helper()
	dir, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	const shutdown = 0x8004587d // _IOR('X', 125, __u32)
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, 0); err != nil {
		t.Skipf("needs an ext4 that can be shut down: %v", err)
	}
}

// turnReadOnly makes the kernel find an error in an ext4, which remounts it
// read-only beneath its open files.
func turnReadOnly(t *testing.T, folder string) {
	t.Helper()
	out, err := exec.Command("findmnt", "-n", "-o", "SOURCE", folder).Output()
	if err != nil {
		t.Skipf("needs findmnt, of the Debian package util-linux: %v", err)
	}
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(out))), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("test"), 0); err != nil {
		t.Skipf("needs %s: %v", trigger, err)
	}
}

// remount takes an ext4 off and mounts what is on its disk: its journal is replayed.
// It mounts a copy of the disk: the old one's trouble stays as long as any process has
// the old one mounted. A process that makes mounts of its own meanwhile, as other
// tests do, has a copy of each that is there.
func remount(t *testing.T, folder string) {
	t.Helper()
	out, err := exec.Command("findmnt", "-n", "-o", "SOURCE", folder).Output()
	if err != nil {
		t.Fatal(err)
	}
	device := filepath.Base(strings.TrimSpace(string(out)))
	image, err := os.ReadFile(filepath.Join("/sys/block", device, "loop/backing_file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(folder, 0); err != nil {
		t.Fatal(err)
	}
	file := strings.TrimSpace(string(image))
	if out, err := exec.Command("cp", "--sparse=always", file, file+".copy").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", file+".copy", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// What needs room and has none says so, and leaves what was there: a snapshot
// that is saved, one that is restored, and a server that is to replace its state.
func TestNoRoomForAnImage(t *testing.T) {
	const small, data = "/var/backups", "/var/lib/rutter"
	names := []string{"s1", "s2", "s3"}
	h := newHosts(t, names...)
	mountOn(t, h, "s1", small, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
	mountOn(t, h, "s3", data, "-t", "tmpfs", "-o", "size=64m", "tmpfs")
	_, api := startServersOn(t, h, names, threePeers)
	w := startWriters(t, api, 16)
	w.awaitMore(6000)
	acked := w.stop()

	out, err := h.sh("s1", "rutter snapshot save /var/backups/a.snapshot")
	if err == nil {
		t.Error("a snapshot was saved where there is no room")
	}
	checkSaid(t, out, "no space left on device")
	if left := h.must("s1", "ls /var/backups"); left != "" {
		t.Errorf("a part of a snapshot is left: %s", left)
	}
	h.must("s1", "rutter snapshot save ROOT/a.snapshot")
	out, err = h.sh("s1", "rutter snapshot restore ROOT/a.snapshot --data /var/backups/new --id s9 --raft 10.0.0.1:7421")
	if err == nil {
		t.Error("a snapshot was restored where there is no room")
	}
	checkSaid(t, out, "no space left on device")
	if out, err := h.sh("s1", "rutter snapshot inspect --data /var/backups/new"); err == nil {
		t.Errorf("a part of a restore is taken for a folder:\n%s", out)
	}

	remove := ballast(t, h.path("s3", data), 256<<10)
	before := h.must("s3", "wc -l < ROOT/log")
	h.must("s1", "rutter cluster rebuild s3")
	said := ""
	for end := time.Now().Add(30 * time.Second); !strings.Contains(said, "no space left"); time.Sleep(50 * time.Millisecond) {
		said = h.must("s3", "tail -n +"+strings.TrimSpace(before)+" ROOT/log")
		if time.Now().After(end) {
			t.Fatalf("it does not say that there is no room:\n%s", said)
		}
	}
	checkSaid(t, said, "no space left on device")
	if _, err := tag(t, api, "during"); err != nil {
		t.Errorf("the others do not go on: %v", err)
	}
	remove()
	if out, err := h.sh("s3", "kill -0 $(cat ROOT/pid)"); err != nil {
		t.Errorf("s3 ended for want of room for an image: %s", out)
		h.must("s3", "rm -f ROOT/pid; systemctl start rutter-server")
	}
	h.must("s1", "rutter cluster rebuild s3 && rutter cluster status --wait 1m")
	checkLogs(t, api, acked)
}
