package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"rutter/api/client"
	"rutter/log"
)

// reverting are the servers of a test, and what it writes there.
type reverting struct {
	*cluster
	t *testing.T
}

// write makes one change, and returns its entries.
func (r *reverting) write(ops ...string) log.Result {
	r.t.Helper()
	body := fmt.Sprintf(`{"ops": [%s]}`, strings.Join(ops, ", "))
	answer, err := r.Client.Raw(r.t.Context(), "POST", "/changes", []byte(body))
	if err != nil {
		r.t.Fatalf("%s: %v", body, err)
	}
	var result log.Result
	if err := json.Unmarshal(answer, &result); err != nil {
		r.t.Fatal(err)
	}
	return result
}

// revert runs the command on all servers, and returns what it printed and its exit code.
func (r *reverting) revert(args ...string) (out string, code int) {
	r.t.Helper()
	all := []string{"log", "revert"}
	for _, s := range r.Servers {
		all = append(all, "-s", s.URL)
	}
	out, err := command(r.t, append(all, args...)...)
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		code = exit.ExitCode()
	} else if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprint(out, err), code
}

func (r *reverting) wantRevert(want int, text string, args ...string) string {
	r.t.Helper()
	out, code := r.revert(args...)
	if code != want || !strings.Contains(out, text) {
		r.t.Fatalf("rutter log revert %q: exit code %d, want %d, and %q in\n%s", args, code, want, text, out)
	}
	return out
}

// tags are the NIC tags with their MTUs.
func (r *reverting) tags() string {
	r.t.Helper()
	list, err := r.Client.List(r.t.Context(), "/nic_tags", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for _, o := range list {
		all = append(all, fmt.Sprint(o["name"], "=", o["mtu"]))
	}
	return strings.Join(all, " ")
}

func createTag(name string, mtu int) string {
	return fmt.Sprintf(`{"action": "create", "kind": "nic_tag", "object": {"name": %q, "mtu": %d}}`, name, mtu)
}

func updateTag(name string, mtu int) string {
	return fmt.Sprintf(`{"action": "update", "kind": "nic_tag", "id": %q, "object": {"mtu": %d}}`, name, mtu)
}

// TestRevert: on real servers a bad change among others is planned, taken back, and that is
// taken back; what others changed since is refused until it is chosen; without a word of its
// user nothing is written.
func TestRevert(t *testing.T) {
	t.Parallel()
	r := &reverting{startCluster(t), t}
	r.write(createTag("one", 1500), createTag("two", 1500))
	good := r.tags()
	bad := r.write(updateTag("one", 9000), createTag("three", 1600))
	r.write(createTag("other", 1500))
	want := good + " other=1500"
	is := r.tags()
	head := r.level()

	r.wantRevert(5, "1 to update, 1 to delete", fmt.Sprintf("%s-%s", bad.First, bad.Last))
	r.wantRevert(5, `"written": null`, bad.First.String(), "-o", "json")
	r.wantRevert(2, "no entry is chosen", "--actor", "nobody")
	r.wantRevert(2, "which entries")
	if now := r.level(); now != head {
		t.Fatalf("a plan wrote: the head is %d, and was %d", now, head)
	}

	out := r.wantRevert(0, "written as #", bad.ChangeID.String(), "--yes", "--wait", "fabric")
	if got := sortedWords(r.tags()); got != sortedWords(want) {
		t.Fatalf("got %s, want %s\n%s", got, want, out)
	}
	r.level()
	shown, err := command(t, "log", "show", "-s", r.Servers[1].URL, "--after", head.String())
	if text := fmt.Sprintf("reverts #%s-#%s", bad.First, bad.Last); err != nil || strings.Count(shown, text) != 2 {
		t.Errorf("%v, log show: want %q twice in\n%s", err, text, shown)
	}
	r.wantRevert(0, "nothing to do", bad.ChangeID.String(), "--yes")

	r.wantRevert(0, "written", "--from", (head + 1).String(), "--until", (head + 2).String(), "--yes", "-o", "table")
	if got := sortedWords(r.tags()); got != sortedWords(is) {
		t.Errorf("the revert of the revert: %s, want %s", got, is)
	}

	again := r.write(updateTag("two", 9000))
	r.write(updateTag("two", 2000))
	r.wantRevert(3, "mtu: was 1500, then 9000, now 2000", again.First.String(), "--yes")
	r.wantRevert(0, "nothing to do", again.First.String(), "--yes", "--take", "now")
	r.wantRevert(0, "written", again.First.String(), "--yes", "--take", "nic_tag/two=was")
	if got := r.tags(); !strings.Contains(got, "two=1500") {
		t.Errorf("taken what was: %s", got)
	}
}

func sortedWords(text string) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(text))), " ")
}

// TestTwoRevertAtOnce: of several people who take the same back at the same time, it is
// written once, and each of the others is told.
func TestTwoRevertAtOnce(t *testing.T) {
	t.Parallel()
	r := &reverting{startCluster(t), t}
	r.write(createTag("one", 1500))
	bad := r.write(updateTag("one", 9000))
	codes := make([]int, 4)
	outs := make([]string, len(codes))
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() { outs[i], codes[i] = r.revert(bad.First.String(), "--yes") })
	}
	all.Wait()
	written := 0
	for i, code := range codes {
		switch {
		case code == 0 && strings.Contains(outs[i], "written as #"):
			written++
		case code == 0 && strings.Contains(outs[i], "nothing to do"): // it came later
		case code == 3 && strings.Contains(outs[i], "came first"):
		default:
			t.Errorf("exit code %d: %s", code, outs[i])
		}
	}
	if head := r.level(); written != 1 || head != bad.Last+1 {
		t.Errorf("%d wrote, the head is %d after %d", written, head, bad.Last)
	}
}

// TestRevertOfMany: 2,000 entries are taken back in more than one change, while the leader
// is gone when it begins: the plan needs none, and what is written is written once.
func TestRevertOfMany(t *testing.T) {
	t.Parallel()
	r := &reverting{startCluster(t), t}
	r.write(createTag("kept", 1500))
	before := r.level()
	for n := 0; n < 2000; n += 1000 {
		ops := make([]string, 1000)
		for i := range ops {
			ops[i] = createTag(fmt.Sprintf("t%d", n+i), 1500)
		}
		r.write(ops...)
	}
	r.level()
	r.signal(r.leader(), syscall.SIGKILL)
	r.wantRevert(0, "written as #", "--from", (before + 1).String(), "--until", (before + 2000).String(), "--yes")
	if got := r.tags(); got != "kept=1500" {
		t.Errorf("left: %.200s", got)
	}
	last, err := r.Client.Head(t.Context())
	if err != nil || last != before+4000 {
		t.Errorf("the head is %d, want %d: %v", last, before+4000, err)
	}
	changes := map[log.UUID]bool{}
	for l, err := range r.Client.Log(t.Context(), client.LogQuery{After: before + 2000}) {
		if err != nil {
			t.Fatal(err)
		}
		changes[l.Event.ChangeID] = true
		if len(l.Event.Reverts) == 0 {
			t.Fatalf("#%s reverts nothing", l.Seq)
		}
	}
	if len(changes) != 2 {
		t.Errorf("%d changes", len(changes))
	}
}
