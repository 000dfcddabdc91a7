package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/integration/bench/madelog"
	"rutter/log"
)

// urls are those of all servers, as --to takes them.
func (c *cluster) urls() string {
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.URL)
	}
	return strings.Join(all, ",")
}

// objectsOf returns what `log state` says of all objects, without seqs and without the
// times that servers set, by kind and id.
func objectsOf(t testing.TB, from ...string) map[string]string {
	t.Helper()
	out, err := command(t, append([]string{"log", "state", "-o", "ndjson"}, from...)...)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for text := range strings.Lines(out) {
		var one struct {
			Kind, ID string
			Revision uint64
			Object   map[string]any
		}
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		for _, stamped := range []string{"created_timestamp", "modified_timestamp", "create_timestamp", "last_modified", "created"} {
			delete(one.Object, stamped)
		}
		b, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		all[one.Kind+" "+one.ID] = string(b)
	}
	return all
}

// sameObjects fails unless two sets of objects are the same, revisions too.
func sameObjects(t testing.TB, got, want map[string]string) {
	t.Helper()
	wrong := 0
	for id := range want {
		if got[id] != want[id] {
			if wrong++; wrong < 4 {
				t.Errorf("%s:\n got %s\nwant %s", id, got[id], want[id])
			}
		}
	}
	if len(got) != len(want) || wrong > 0 {
		t.Errorf("%d objects, want %d; %d differ", len(got), len(want), wrong)
	}
}

// replaying is a replay that is a process of its own.
func replaying(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, append([]string{"log", "replay"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// awaitHead waits until a cluster's head is at seq, or the process has ended.
func awaitHead(t testing.TB, c *client.Client, cmd *exec.Cmd, seq log.Seq) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		head, err := c.Head(ctx)
		if ctx.Err() != nil {
			t.Fatalf("the head is %d, want %d: %v", head, seq, err)
		}
		if head >= seq || cmd.ProcessState != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestReplayIsKilledAnywhere: a replay of changes that refer to each other is killed at
// random places again and again, and the target's leader once. In the end the target has
// each change once, and every object has as many revisions as in the source: nothing was
// made twice, left out or made before what it follows.
func TestReplayIsKilledAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, ids := filepath.Join(dir, "from"), filepath.Join(dir, "ids")
	changes, _, err := madelog.Make(from, madelog.Mixed, 7, 3000)
	if err != nil {
		t.Fatal(err)
	}
	want := objectsOf(t, "--data", from)
	to := startCluster(t)
	base := to.level()
	const kills = 5
	for n := range kills {
		place := base + log.Seq(1+rand.IntN(changes/kills)+n*changes/kills)
		cmd := replaying(t, from, "--to", to.urls(), "--map", ids)
		awaitHead(t, to.Client, cmd, place)
		if n == kills/2 {
			leader := to.leader()
			to.signal(leader, syscall.SIGKILL)
			awaitHead(t, to.Client, cmd, place+50) // it goes on with the next leader
			to.start(leader)
			to.waitReady(leader)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Logf("kill %d at %d: it had ended: %v", n, place, err)
		}
		_ = cmd.Wait()
		if n == 0 { // what is lost with the machine, or by hand
			if err := os.Remove(ids); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := command(t, "log", "replay", from, "--to", to.urls(), "--map", ids); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if head := to.level(); head != base+log.Seq(changes) {
		t.Errorf("the target has %d entries, want %d", head-base, changes)
	}
	sameObjects(t, objectsOf(t, "-s", to.Servers[0].URL), want)
	b, err := os.ReadFile(ids)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for text := range bytes.Lines(b) {
		var one struct {
			Target struct {
				ID string `json:"change_id"`
			}
		}
		if err := json.Unmarshal(text, &one); err != nil || seen[one.Target.ID] {
			t.Errorf("%s: %v, or named twice", text, err)
		}
		seen[one.Target.ID] = true
	}
	if len(seen) != changes {
		t.Errorf("the map has %d changes, want %d", len(seen), changes)
	}
}

// TestReplayPastARefusal: a target that has an object of the source already refuses its
// creation. Without --go-on the replay ends there, with all before it made; with it, the
// rest is made, and the map has the reason.
func TestReplayPastARefusal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, ids := filepath.Join(dir, "from"), filepath.Join(dir, "ids")
	changes, _, err := madelog.Make(from, madelog.Updates, 8, 1600)
	if err != nil {
		t.Fatal(err)
	}
	want := objectsOf(t, "--data", from)
	to := startCluster(t)
	there := &log.VM{UUID: log.UUID{0: 'v', 1: 8, 6: 0x40, 8: 0x80, 15: 60}, OwnerUUID: log.UUID{15: 1}, State: "running"}
	if _, err := to.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindVM, Object: there, Set: []string{"owner_uuid", "state", "uuid"},
	}}}); err != nil {
		t.Fatal(err)
	}
	_, err = command(t, "log", "replay", from, "--to", to.urls(), "--map", ids)
	if err == nil || !strings.Contains(err.Error(), "#61") || !strings.Contains(err.Error(), "Already exists") {
		t.Fatalf("got %v, want a refusal of #61", err)
	}
	got := objectsOf(t, "-s", to.Servers[0].URL)
	for n := range 60 {
		if id := fmt.Sprintf("vm %s", log.UUID{0: 'v', 1: 8, 6: 0x40, 8: 0x80, 15: byte(n)}); got[id] == "" {
			t.Errorf("%s is before the refused one, and was not made", id)
		}
	}
	refused := func() int {
		b, err := os.ReadFile(ids)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(b, []byte(`"refused":"`))
	}
	if n := refused(); n != 1 {
		t.Errorf("the map has %d refusals, want 1", n)
	}
	if _, err := command(t, "log", "replay", from, "--to", to.urls(), "--map", ids, "--go-on"); err != nil {
		t.Fatal(err)
	}
	if n := refused(); n != 2 { // tried again, and refused again
		t.Errorf("the map has %d refusals, want 2", n)
	}
	got = objectsOf(t, "-s", to.Servers[0].URL)
	id := "vm " + there.ID()
	if !strings.Contains(got[id], `"revision":16`) && !strings.Contains(got[id], `"Revision":16`) {
		t.Errorf("the VM that was there has not the updates of the source: %s", got[id])
	}
	delete(got, id)
	delete(want, id)
	sameObjects(t, got, want)
	if head := to.level(); head != log.Seq(changes) { // its creation was ours
		t.Errorf("the target has %d entries, want %d", head, changes)
	}
}
