package containment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
	"rutter/log"
)

// smallDisk mounts a tmpfs of 48 MiB, whose low water is 4.8 MiB by default.
func smallDisk(t *testing.T, at string) {
	t.Helper()
	mountAt(t, at, "-t", "tmpfs", "-o", "size=48m", "tmpfs")
}

// ballast fills the file system of a folder until so many bytes are left.
func ballast(t *testing.T, folder string, left int64) (remove func()) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, fmt.Sprintf("ballast-%d", time.Now().UnixNano()))
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	chunk := make([]byte, 64<<10)
	for n := int64(st.Bavail)*st.Bsize - left; n > 0; n -= int64(len(chunk)) {
		if _, err := file.Write(chunk[:min(n, int64(len(chunk)))]); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err) // a server may take what is left at the same time
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// fill makes tags until one is refused, and returns the refusal.
func fill(t *testing.T, c *bench.Cluster, a *acked, prefix string) error {
	t.Helper()
	for i := range 200_000 {
		name := fmt.Sprintf("%s_%d", prefix, i)
		result, err := c.Client.Submit(patience(t), newTag(name))
		if err != nil {
			return err
		}
		a.add(name, result.Last)
	}
	t.Fatal("the disks never fill")
	return nil
}

// refusedForRoom reports whether an error is the typed refusal.
func refusedForRoom(err error) bool {
	var answer *client.Error
	return errors.As(err, &answer) && answer.Status == http.StatusInsufficientStorage && answer.Code == log.CodeNoRoom
}

// untag deletes a tag.
func untag(ctx context.Context, c *bench.Cluster, name string) error {
	_, err := c.Client.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: name}}})
	return err
}

// allRun fails the test if a server has ended.
func allRun(t *testing.T, c *bench.Cluster) {
	t.Helper()
	for _, s := range c.Servers {
		if !s.Runs() {
			t.Fatalf("%s ended; it said:\n%s", s.ID, s.Tail())
		}
	}
}

// checkServes requires that a server answers a read, and that a reader follows its log.
func checkServes(t *testing.T, s *bench.Server, a *acked) {
	t.Helper()
	a.mu.Lock()
	var some string
	for some = range a.seqs {
		if len(some) > len("w_19") { // the first twenty are deleted
			break
		}
	}
	a.mu.Unlock()
	if body := fetch(t, s.URL+"/nic_tags/"+some); !strings.Contains(body, some) {
		t.Errorf("%s: a read: %s", s.ID, body)
	}
	if body := fetch(t, s.URL+"/log?limit=3"); strings.Count(body, "\n") < 3 {
		t.Errorf("%s: the log: %s", s.ID, body)
	}
}

// svpAnswers requires an answer of an SVP server, which may be that it knows no such
// address.
func svpAnswers(t *testing.T, address string) {
	t.Helper()
	out, err := exec.Command(program, "lookup", "vl3", "7", "10.0.0.1", "--svp", address).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "nobody") && !strings.Contains(string(out), "not found") {
		t.Errorf("SVP at %s: %v: %s", address, err, out)
	}
	t.Logf("SVP: %s", out)
}

// All disks fill. What grows is refused by name and all servers show the alarm;
// deletes, reads, the log and SVP go on. Then something else takes the last byte:
// the servers go on to serve what they have, and one that starts then does too. With
// room again writes are taken by themselves, and nothing that was acknowledged is lost.
func TestDisksFull(t *testing.T) {
	c, disks := onDisks(t, smallDisk)
	var a acked
	var room []func()
	for _, at := range disks {
		room = append(room, ballast(t, at, 5800<<10))
	}
	err := fill(t, c, &a, "w")
	if !refusedForRoom(err) {
		t.Fatalf("after %d changes: %v, want 507 %s", a.count(), err, log.CodeNoRoom)
	}
	t.Logf("after %d changes: %v", a.count(), err)
	for _, s := range c.Servers {
		status := awaitStatus(t, c, s, "an alarm", func(s client.Status) bool { return len(s.Alarms) > 0 })
		if !status.Ready {
			t.Errorf("%s is not ready: %s", s.ID, status.NotReady)
		}
		if body := fetch(t, s.URL+"/readyz?verbose"); !strings.Contains(body, "alarm ") {
			t.Errorf("%s: no alarm in /readyz: %s", s.ID, body)
		}
		if body := fetch(t, s.URL+"/metrics"); !strings.Contains(body, "rutter_store_no_room 1") {
			t.Errorf("%s: no alarm in /metrics", s.ID)
		}
		checkServes(t, s, &a)
	}
	if out, err := exec.Command(program, "cluster", "status", "--server", c.Servers[0].URL).CombinedOutput(); err == nil || !strings.Contains(string(out), "ALARM") {
		t.Errorf("cluster status: %v: %s", err, out)
	}
	for i := range 20 {
		if err := untag(patience(t), c, fmt.Sprintf("w_%d", i)); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
	}
	for _, s := range c.Servers { // what is under way when the last byte goes would end the server
		awaitStatus(t, c, s, "all in changes.db", func(s client.Status) bool { return s.Detail.Waiting == 0 })
	}
	for _, at := range disks {
		room = append(room, ballast(t, at, 0))
	}
	for _, s := range c.Servers {
		awaitStatus(t, c, s, "in its reserve", func(s client.Status) bool { return strings.Contains(strings.Join(s.Alarms, " "), "no room") })
		checkServes(t, s, &a)
	}
	allRun(t, c)
	last := c.Servers[2]
	if err := last.Stop(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ports := rig.Ports(t, 1)
	svp := fmt.Sprintf("127.0.0.1:%d", ports[0])
	last.Args = append(last.Args, "--svp", svp)
	if err := last.Start(); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, c, last, "up", func(s client.Status) bool { return s.Head.Seq > 0 })
	checkServes(t, last, &a)
	svpAnswers(t, svp)
	allRun(t, c)
	began := time.Now()
	for _, remove := range room {
		remove()
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("after_%d", i)
		result, err := c.Client.Submit(patience(t), newTag(name))
		if err == nil {
			a.add(name, result.Last)
			break
		}
		if time.Since(began) > within {
			t.Fatalf("with room again: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("with room again, written after %v", time.Since(began))
	for _, s := range c.Servers {
		if err := c.AwaitReady(patience(t), s); err != nil {
			t.Fatal(err)
		}
	}
	allRun(t, c)
	a.check(t, c)
}
