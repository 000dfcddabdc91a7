package containment

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
	"rutter/log"
)

// onDisks starts three servers, each with its data folder on a file system of its
// own that mount makes, and returns these folders too.
func onDisks(t *testing.T, mount func(t *testing.T, at string), flags ...string) (c *bench.Cluster, disks map[string]string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers as processes: skipped with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs to mount file systems, as root")
	}
	dir := t.TempDir()
	disks = make(map[string]string)
	for i := range 3 {
		id := fmt.Sprintf("s%d", i+1)
		disks[id] = filepath.Join(dir, id)
		if err := os.Mkdir(disks[id], 0o700); err != nil {
			t.Fatal(err)
		}
		mount(t, disks[id])
	}
	return rig.Cluster(t, bench.Options{Program: program, Dir: dir, Flags: flags}), disks
}

// mountAt mounts, or skips.
func mountAt(t *testing.T, at string, args ...string) {
	t.Helper()
	if out, err := exec.Command("mount", append(args, at)...).CombinedOutput(); err != nil {
		t.Skipf("needs to mount file systems: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			_ = unix.Unmount(at, unix.MNT_DETACH) // a server that failed to end has it
		}
	})
}

// ext4 mounts an ext4 of 96 MiB in a file.
func ext4(t *testing.T, at string) {
	t.Helper()
	image := at + ".disk"
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 96<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-E", "nodiscard", image).CombinedOutput(); err != nil {
		t.Skipf("needs mkfs.ext4, of the Debian package e2fsprogs: %v: %s", err, out)
	}
	mountAt(t, at, "-o", "loop", image)
}

// freeze makes every write to an ext4 hang until thaw, which may be called twice
// (FIFREEZE and FITHAW, linux/fs.h).
func freeze(t *testing.T, at string) (thaw func()) {
	t.Helper()
	const fifreeze, fithaw = 0xc0045877, 0xc0045878 // _IOWR('X', 119, int), _IOWR('X', 120, int)
	folder, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(folder.Fd()), fifreeze, 0); err != nil {
		folder.Close()
		t.Skipf("needs a file system that can be frozen: %v", err)
	}
	thaw = sync.OnceFunc(func() {
		if err := unix.IoctlSetInt(int(folder.Fd()), fithaw, 0); err != nil {
			t.Errorf("thaw %s: %v", at, err)
		}
		folder.Close()
	})
	t.Cleanup(thaw)
	return thaw
}

// acked are the tags that were acknowledged, and when the last one was.
type acked struct {
	mu   sync.Mutex
	seqs map[string]log.Seq
	last time.Time
	gap  time.Duration // the longest time between two
}

func newTag(name string) *log.Change {
	return &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name},
	}}}
}

// write makes tags until ctx ends.
func (a *acked) write(ctx context.Context, c *client.Client, prefix string) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s_%d", prefix, i)
		result, err := c.Submit(ctx, newTag(name))
		if err != nil {
			continue
		}
		a.add(name, result.Last)
	}
}

func (a *acked) add(name string, seq log.Seq) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seqs == nil {
		a.seqs = make(map[string]log.Seq)
	}
	now := time.Now()
	if !a.last.IsZero() {
		a.gap = max(a.gap, now.Sub(a.last))
	}
	a.seqs[name], a.last = seq, now
}

func (a *acked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seqs)
}

// check looks for all of them in the log of each server.
func (a *acked) check(t *testing.T, c *bench.Cluster) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var last log.Seq
	for _, seq := range a.seqs {
		last = max(last, seq)
	}
	for _, s := range c.Servers {
		one, err := client.New(client.Config{Servers: []string{s.URL}})
		if err != nil {
			t.Fatal(err)
		}
		at := make(map[string]log.Seq)
		for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
			if status, err := one.StatusOf(t.Context(), s.URL); err == nil && status.Head.Seq >= last {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s never has entry %d", s.ID, last)
			}
		}
		for line, err := range one.Log(patience(t), client.LogQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if line.Event.Action == log.Create {
				at[line.Event.ID] = line.Seq
			}
		}
		one.Close()
		for name, seq := range a.seqs {
			if at[name] != seq {
				t.Errorf("%s: %s was acknowledged at %d, and is at %d", s.ID, name, seq, at[name])
			}
		}
	}
	t.Logf("%d acknowledged changes are on all servers", len(a.seqs))
}

// awaitStatus waits until a server's status fits, and returns it.
func awaitStatus(t *testing.T, c *bench.Cluster, s *bench.Server, what string, fits func(client.Status) bool) client.Status {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		status, err := c.Client.StatusOf(t.Context(), s.URL)
		if err == nil && fits(status) {
			return status
		}
		if time.Now().After(end) {
			t.Fatalf("%s: never %s; last %+v, %v", s.ID, what, status, err)
		}
	}
}

// The leader's disk hangs, without an error: within about a second another server
// leads and writes go on; the old leader is not ready, and when the disk goes on it
// follows and is ready again. One whose disk hangs for longer than --disk-patience
// ends, says why, and lets go of its ports.
func TestLeaderDiskHangs(t *testing.T) {
	c, disks := onDisks(t, ext4, "--disk-patience", "8s")
	leader, err := c.Leader(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	var a acked
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	defer writers.Wait()
	writers.Go(func() { a.write(ctx, c.Client, "w") })
	for a.count() < 50 {
		time.Sleep(5 * time.Millisecond)
	}
	a.mu.Lock()
	a.gap = 0
	a.mu.Unlock()
	began := time.Now()
	thaw := freeze(t, disks[leader.ID])
	frozen := time.Now()
	status := awaitStatus(t, c, leader, "not ready", func(s client.Status) bool { return !s.Ready })
	t.Logf("not ready %v after the freeze: %s", time.Since(frozen), status.NotReady)
	if !strings.Contains(status.NotReady, "disk hangs") {
		t.Errorf("not ready for %q", status.NotReady)
	}
	more := a.count() + 50
	for end := time.Now().Add(within); a.count() < more; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is written any more")
		}
	}
	a.mu.Lock()
	gap := a.gap
	a.mu.Unlock()
	t.Logf("from the hang to the next acknowledged write: at most %v", gap)
	if gap > 30*time.Second { // a second to find out, a tenth to elect, on a busy machine more
		t.Errorf("%v without a write", gap)
	}
	if time.Since(began) < 7*time.Second {
		thaw()
		awaitStatus(t, c, leader, "following and ready", func(s client.Status) bool { return s.Ready && s.LeaderID != s.ID })
		if !leader.Runs() {
			t.Error("the server ended, and its disk went on in time")
		}
	} else {
		t.Log("the machine is too slow for this part: the server may have ended")
		thaw()
	}
	stop()
	writers.Wait()
	a.check(t, c)
}

// A disk that hangs for good ends the process, which cannot tell what is on disk.
func TestDiskHangsForGood(t *testing.T) {
	c, disks := onDisks(t, ext4, "--disk-patience", "2s")
	leader, err := c.Leader(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	var a acked
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	defer writers.Wait()
	writers.Go(func() { a.write(ctx, c.Client, "w") })
	for a.count() < 20 {
		time.Sleep(5 * time.Millisecond)
	}
	thaw := freeze(t, disks[leader.ID])
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if strings.Contains(leader.Tail(), "cannot tell what is on disk") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not end; it said:\n%s", leader.Tail())
		}
	}
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if _, err := c.Client.StatusOf(t.Context(), leader.URL); err != nil && strings.Contains(err.Error(), "refused") {
			break // its port is free, though a thread of it may wait for the disk
		}
		if time.Now().After(end) {
			t.Fatal("it holds its port")
		}
	}
	thaw()
	if err := leader.Stop(unix.SIGTERM); err != nil { // waits for its end
		t.Fatal(err)
	}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(patience(t), leader); err != nil {
		t.Fatal(err)
	}
	stop()
	writers.Wait()
	a.check(t, c)
}
