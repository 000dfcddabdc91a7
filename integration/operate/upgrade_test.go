package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
)

// releaseBefore is N-1: the last revision that knows feature version 1 only.
const releaseBefore = "5b1626e"

// readBound is how long no server may answer a read, for readers that try all of them.
// The servers themselves need an election (half a second) and a start.
const readBound = 15 * time.Second

// oldProgram builds the release before. The short form of a test takes the program under
// test in its place.
func oldProgram(t *testing.T) string {
	t.Helper()
	revision := os.Getenv("PREVIOUS_RELEASE")
	if revision == "" && os.Getenv("RUTTER_LONG") == "" {
		return program
	}
	dir := t.TempDir()
	build := exec.Command("bash", "-euo", "pipefail", "-c",
		`git -C ../.. archive "$1" | tar -x -C "$2" && cd "$2" && CGO_ENABLED=0 go build -trimpath -o previous ./cmd/rutter`, "bash", cmp.Or(revision, releaseBefore), dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", cmp.Or(revision, releaseBefore), err, out)
	}
	return filepath.Join(dir, "previous")
}

// tail follows the log with a program, as an operator does.
type tail struct {
	name string
	mu   sync.Mutex // protects what follows
	outs []string   // files, of one run each, from the first entry on
	runs *os.Process
}

// saysTryAgain is how the tail of the release before ends at a server that has not applied yet
// what another one has sent: it continues from a bare seq, which servers of its release refuse
// there. An operator tries again, as it says. Later tails continue from a cursor.
const saysTryAgain = "rutter: CursorAhead: "

func startTail(t *testing.T, name, binary string, api *client.Client) *tail {
	t.Helper()
	dir := t.TempDir()
	f := &tail{name: name}
	ctx, cancel := context.WithCancel(context.Background())
	once := func() (again bool) {
		out := filepath.Join(dir, fmt.Sprint(len(f.outs)))
		file, err := os.Create(out)
		if err != nil {
			t.Error(err)
			return false
		}
		defer file.Close()
		f.mu.Lock()
		f.outs = append(f.outs, out)
		f.mu.Unlock()
		cmd := exec.CommandContext(ctx, binary, "log", "tail", "--follow", "-n", "1000000", "-o", "ndjson", "-s", strings.Join(api.Servers(), ","))
		cmd.Stdout, cmd.Stderr = file, file
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return false
		}
		f.mu.Lock()
		f.runs = cmd.Process
		f.mu.Unlock()
		_ = cmd.Wait() // what it said is in the file
		said, err := os.ReadFile(out)
		return err == nil && ctx.Err() == nil && binary != program && strings.Contains(lastLine(string(said)), saysTryAgain)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for once() {
			t.Logf("%s ended, and is started again: %s", name, saysTryAgain)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

// check waits until the tail has a seq, and fails if there was a gap or a repetition.
func (f *tail) check(t *testing.T, to log.Seq, acked map[log.UUID]log.Seq) {
	t.Helper()
	for end := time.Now().Add(nodePatience); ; time.Sleep(200 * time.Millisecond) {
		f.mu.Lock()
		outs := slices.Clone(f.outs)
		f.mu.Unlock()
		last, seen, said := log.Seq(0), 0, ""
		for _, out := range outs {
			last, seen, said = f.dense(t, out, acked)
		}
		if last >= to && seen == len(acked) {
			t.Logf("%s: %d entries without a gap, in %d runs", f.name, last, len(outs))
			return
		}
		if time.Now().After(end) {
			f.mu.Lock()
			_ = f.runs.Signal(syscall.SIGQUIT) // so that one that hangs says where; one that has ended has said why
			f.mu.Unlock()
			time.Sleep(time.Second)
			if b, err := os.ReadFile(outs[len(outs)-1]); err == nil {
				t.Logf("%s", b[max(0, len(b)-20000):])
			}
			t.Fatalf("%s is at seq %d of %d, and has %d of %d acknowledged changes; it said last:\n%s", f.name, last, to, seen, len(acked), said)
		}
	}
}

// dense fails if what a run printed has a gap or a repetition. It returns the last seq, how many
// acknowledged changes it has, and the end of the output.
func (f *tail) dense(t *testing.T, out string, acked map[log.UUID]log.Seq) (last log.Seq, seen int, said string) {
	t.Helper()
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var entry struct {
			Seq      log.Seq  `json:"seq"`
			ChangeID log.UUID `json:"change_id"`
		}
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Seq == 0 {
			continue // a message, or the beginning of a line
		}
		if last != 0 && entry.Seq != last+1 {
			t.Fatalf("%s: seq %d follows %d", f.name, entry.Seq, last)
		}
		last = entry.Seq
		if acked[entry.ChangeID] == entry.Seq {
			seen++
		}
	}
	return last, seen, string(b[max(0, len(b)-2000):])
}

// reader reads the head of any server all the time, and measures how long none answered.
type reader struct {
	mu  sync.Mutex
	gap time.Duration
}

func startReader(t *testing.T, api *client.Client) *reader {
	ctx, cancel := context.WithCancel(t.Context())
	r := new(reader)
	var running sync.WaitGroup
	running.Go(func() {
		for last := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			if _, err := api.Head(ctx); err != nil {
				continue
			}
			r.mu.Lock()
			r.gap = max(r.gap, time.Since(last))
			r.mu.Unlock()
			last = time.Now()
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// replaceProgram puts a program on a host and restarts its server.
func replaceProgram(h *hosts, name, binary string) {
	h.t.Helper()
	h.must(name, "install -m 755 "+binary+" /usr/local/bin/rutter.new && mv /usr/local/bin/rutter.new /usr/local/bin/rutter")
	h.must(name, "systemctl restart rutter-server && rutter cluster status --wait 2m")
}

// order returns the hosts with the leader first, or last.
func order(t *testing.T, api *client.Client, names []string, leaderFirst bool) (all []string) {
	t.Helper()
	status, err := api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name != status.LeaderID {
			all = append(all, name)
		}
	}
	if leaderFirst {
		return append([]string{status.LeaderID}, all...)
	}
	return append(all, status.LeaderID)
}

// A cluster of the release before is upgraded, taken back and upgraded again, in both
// orders, on the same folders, under writers, readers and tails of both programs. It
// stays at the old feature version until it is finalized; then the old program refuses
// to start, and says why.
func TestUpgradeDowngradeFinalize(t *testing.T) {
	t.Parallel()
	names := []string{"s1", "s2", "s3"}
	old := oldProgram(t)
	h := newHosts(t, names...)
	for _, name := range names {
		h.must(name, "install -m 755 "+old+" /usr/local/bin/rutter.old && mv /usr/local/bin/rutter.old /usr/local/bin/rutter")
		// The old program does not know the setting, and ignores the variable.
		h.write(name, "/etc/profile.d/finalize.sh", "export RUTTER_FINALIZE=manual\n", 0o600)
		h.write(name, "/usr/local/bin/systemctl", h.rewrite(name, strings.Replace(systemctl, "set -eu\n", "set -eu\nexport RUTTER_FINALIZE=manual\n", 1)), 0o755)
	}
	h, api := startServersOn(t, h, names, threePeers)
	w := startWriters(t, api, 4)
	r := startReader(t, api)
	tails := []*tail{startTail(t, "the tail of the release before", old, api), startTail(t, "the tail of this release", program, api)}
	begun := features(t, api)[0]
	rounds := 3
	if old == program {
		rounds = 1 // the short form restarts each server once
	}
	for _, round := range []struct {
		binary      string
		leaderFirst bool
	}{{program, true}, {old, false}, {program, false}}[:rounds] {
		for _, name := range order(t, api, names, round.leaderFirst) {
			w.awaitMore(20)
			replaceProgram(h, name, round.binary)
			for i, got := range features(t, api) {
				if got != begun {
					t.Fatalf("feature version %d on %s before it was finalized, and it began with %d", got, names[i], begun)
				}
			}
		}
	}
	out := h.must("s1", "rutter cluster features")
	if old != program && strings.Count(out, "waits for rutter cluster finalize") != len(names) {
		t.Errorf("what the higher version waits for is not said:\n%s", out)
	}
	t.Logf("before:\n%s", out)
	out = h.must("s1", "rutter cluster finalize")
	t.Logf("after:\n%s", out)
	for end := time.Now().Add(nodePatience); ; w.awaitMore(1) {
		if f := features(t, api); f[0] == log.FeatureVersion && f[1] == f[0] && f[2] == f[0] {
			break
		} else if time.Now().After(end) {
			t.Fatalf("feature versions %v, want %d", f, log.FeatureVersion)
		}
	}
	if old != program {
		refusesToStart(t, h, "s3", old)
		replaceProgram(h, "s3", program)
	}
	w.awaitMore(20)
	acked := w.stop()
	head, err := api.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkLogs(t, api, acked)
	for _, f := range tails {
		f.check(t, head, acked)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("the longest time without an answered read was %v", r.gap.Round(time.Millisecond))
	if r.gap > readBound {
		t.Errorf("no server answered for %v, and the bound is %v", r.gap, readBound)
	}
}

// refusesToStart starts an old program on the folder of a server that has a higher
// feature version: it ends and says why, and the folder stays as it is.
func refusesToStart(t *testing.T, h *hosts, name, old string) {
	t.Helper()
	h.must(name, "systemctl stop rutter-server && install -m 755 "+old+" /usr/local/bin/rutter.new && mv /usr/local/bin/rutter.new /usr/local/bin/rutter")
	h.must(name, "wc -c < ROOT/log > ROOT/before && systemctl start rutter-server")
	h.await("the old program to end", func() (string, bool) {
		out, err := h.sh(name, "kill -0 $(cat ROOT/pid)")
		return out, err != nil
	})
	said := h.must(name, "tail -c +$(($(cat ROOT/before) + 1)) ROOT/log; rm ROOT/pid")
	if !strings.Contains(said, "this program knows 1: upgrade it") {
		t.Errorf("the old program says:\n%s", said)
	}
	t.Logf("the old program: %s", lastLine(said))
}

// Every command of the page on upgrades works, in its order.
func TestUpgradeDocument(t *testing.T) {
	t.Parallel()
	runPage(t, "../../docs/upgrade.md", 4)
}

// runPage runs the blocks of a page on three servers.
func runPage(t *testing.T, path string, least int) (*hosts, *client.Client) {
	t.Helper()
	h, api := startServers(t, []string{"s1", "s2", "s3"}, threePeers)
	all := steps(t, path)
	if len(all) < least {
		t.Fatalf("%d blocks found in %s", len(all), path)
	}
	for _, s := range all {
		h.run(s)
	}
	return h, api
}
