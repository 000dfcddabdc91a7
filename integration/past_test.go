package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rutter/log"
)

// command runs the program and returns what it printed.
func command(t testing.TB, args ...string) (out string, err error) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &stderr)
	}
	return string(b), err
}

// TestReplayIntoAnotherCluster: it has the same objects then, a record says which
// change is whose, and again nothing is done, whether the record is there or not.
func TestReplayIntoAnotherCluster(t *testing.T) {
	t.Parallel()
	from, to := startCluster(t), startCluster(t)
	for i := range 20 {
		if _, err := from.Client.Submit(t.Context(), tag(fmt.Sprintf("past%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	from.level()
	ids := filepath.Join(from.dir, "ids.ndjson")
	replay := func() string {
		t.Helper()
		if _, err := command(t, "log", "replay", from.Servers[0].URL, "--to", to.Servers[0].URL, "--map", ids); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(ids)
		if err != nil || bytes.Count(b, []byte("\n")) != 20 {
			t.Fatalf("the record: %v\n%s", err, b)
		}
		return string(b)
	}
	first := replay()
	if strings.Contains(first, log.UUID{}.String()) {
		t.Errorf("the record has a cluster without an id:\n%s", first)
	}
	head := to.level()
	if again := replay(); again != first {
		t.Errorf("a second run:\n%s\nwant\n%s", again, first)
	}
	if err := os.Remove(ids); err != nil {
		t.Fatal(err)
	}
	if again := replay(); again != first {
		t.Errorf("without the record:\n%s\nwant\n%s", again, first)
	}
	if now := to.level(); now != head {
		t.Errorf("it is at %d, and was at %d: something was done twice", now, head)
	}
	state := func(c *cluster) string {
		out, err := command(t, "log", "state", "-s", c.Servers[0].URL, "--kind", "nic_tag")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got, want := state(to), state(from); got != want || strings.Count(got, "past") < 20 {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTheLogOffline: what a cluster answers of its past, its stopped servers'
// folders and a replay of one say as well; a running server's folder is refused;
// damage is found, named, and has a remedy.
func TestTheLogOffline(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for i := range 30 {
		if _, err := c.Client.Submit(t.Context(), tag(fmt.Sprintf("past%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	c.level()
	must := func(args ...string) string {
		t.Helper()
		out, err := command(t, args...)
		if err != nil {
			t.Fatalf("rutter %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	urls := []string{"-s", c.Servers[0].URL, "-s", c.Servers[1].URL, "-s", c.Servers[2].URL}
	online := must(append([]string{"log", "state", "--at", "12", "-o", "ndjson"}, urls...)...)
	if got := strings.Count(online, "\n"); got != 12 {
		t.Errorf("%d objects at 12, want 12:\n%s", got, online)
	}
	if out := must(append([]string{"log", "verify"}, urls...)...); strings.Count(out, ": whole;") != 3 {
		t.Errorf("verify: %s", out)
	}
	if out := must("log", "bisect", "-s", c.Servers[0].URL, "--check", "! grep -q '\"past20\"'"); !strings.Contains(out, "from seq 21 on") {
		t.Errorf("bisect: %s", out)
	}
	folder := filepath.Join(c.dir, "s1")
	if _, err := command(t, "log", "state", "--data", folder); err == nil || !strings.Contains(err.Error(), "a server has it open") {
		t.Errorf("a running server's folder: %v", err)
	}
	for _, s := range c.Servers {
		c.waitReady(s) // all of them first: the last one left is not ready again
	}
	for _, s := range c.Servers {
		c.signal(s, syscall.SIGTERM)
	}
	copied, again := filepath.Join(c.dir, "copy"), filepath.Join(c.dir, "again")
	must("log", "replay", folder, "--to", copied)
	must("log", "replay", copied, "--to", again)
	for _, dir := range []string{folder, filepath.Join(c.dir, "s2"), copied} {
		if out := must("log", "state", "--at", "12", "-o", "ndjson", "--data", dir); out != online {
			t.Errorf("%s at 12:\n%s\nwant\n%s", dir, out, online)
		}
		if out := must("log", "diff", dir, again); !strings.HasPrefix(out, "the same log") {
			t.Errorf("diff: %s", out)
		}
		for _, to := range []string{"-", "dump"} {
			if must("log", "replay", dir, "--to", to) != must("log", "replay", again, "--to", to) {
				t.Errorf("two replays of %s to %s differ", dir, to)
			}
		}
	}
	file := filepath.Join(copied, "changes.db")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw[bytes.Index(raw, []byte("past7"))] ^= 1
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "log", "verify", copied); err == nil || !strings.Contains(out, "DAMAGED") || !strings.Contains(out, "what to do") {
		t.Errorf("a flipped bit: %v, %s", err, out)
	}
}
