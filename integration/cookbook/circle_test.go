package cookbook

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// circleTitle begins the part of the page that TestTheCircle runs.
const circleTitle = "\n# The circle\n"

// entriesOfOthers is how many entries others write before the unlucky change, and lateEntries
// how many after it.
const (
	entriesOfOthers = 20_000
	lateEntries     = 500
)

// bisectWithin bounds the search among them, on a machine that may be busy.
const bisectWithin = 20 * time.Second

var (
	// document is a file of the page: its first line is its name.
	document = regexp.MustCompile("(?s)```yaml\n# ([^\n]*)\n(.*?)```")
	// reverted are the entries that a printed or typed command takes back.
	reverted = regexp.MustCompile(`rutter log revert ((--from )?\d+( --until \d+)?)`)
)

// step is what the test does around a command of the page.
type step struct {
	command string // its beginning
	before  func()
	after   func(out string)
}

// TestTheCircle runs the last part of the page on three servers and the agents of two compute
// nodes, whose VMs ping each other: what is declared arrives; an unlucky change among 20,000
// entries is found; it is taken back, that is taken back, and that again.
func TestTheCircle(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"ip", "bridge"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here: %v", tool, err)
		}
	}
	if testing.Short() {
		t.Skip("starts servers as processes: skipped with -short")
	}
	if !netlab.Inside() {
		err := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v=true").Run()
		if netlab.Forbidden(err) {
			t.Skip(netlab.ErrForbidden)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, told, found := strings.Cut(string(text), circleTitle)
	if !found {
		t.Fatalf("%s has no part%s", page, circleTitle)
	}
	c := newCircle(t)
	for _, d := range document.FindAllStringSubmatch(told, -1) {
		c.write(d[1], d[2])
	}
	blocks := block.FindAllStringSubmatch(told, -1)
	steps := c.steps()
	if len(blocks) != len(steps) {
		t.Fatalf("the page has %d commands, want %d", len(blocks), len(steps))
	}
	written, revert := told, ""
	for i, b := range blocks {
		command := reverted.ReplaceAllLiteralString(b[1], revert)
		if !strings.HasPrefix(command, steps[i].command) {
			t.Fatalf("command %d of the page is %q, want one that begins with %q", i, command, steps[i].command)
		}
		if steps[i].before != nil {
			steps[i].before()
		}
		began := time.Now()
		got, err := c.command(command)
		t.Logf("%v: %s", time.Since(began), command)
		if err != nil {
			got += fmt.Sprintf("[%v]\n", err)
		}
		if printed := reverted.FindAllString(got, -1); printed != nil {
			revert = printed[len(printed)-1]
		}
		if os.Getenv("RUTTER_WRITE") != "" {
			written = strings.Replace(written, b[0], "```console\n$ "+command+"\n"+got+"```", 1)
		} else if masked(got) != masked(b[2]) {
			t.Errorf("$ %s\nprints\n%sthe page says\n%s(RUTTER_WRITE=1 writes it anew)", command, got, b[2])
		}
		if os.Getenv("RUTTER_WRITE") != "" {
			all := strings.Replace(string(text), told, written, 1)
			if err := os.WriteFile(page, []byte(all), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if steps[i].after != nil {
			steps[i].after(got)
		}
	}
}

// steps are the steps of the page, in its order.
func (c *circle) steps() []step {
	var good, planted, taken log.Seq // the head before the unlucky change, that, and what took it back
	flows := func(string) { c.reach(true) }
	stops := func(string) { c.reach(false) }
	return []step{
		{command: "rutter plan -f cloud"},
		{command: "rutter apply -f cloud --yes --wait=fabric"},
		{command: "rutter inventory update web", after: flows},
		{command: "rutter trace web db --watch 0s"},
		{
			command: "rutter apply -f bob.yaml --yes --tls-dir tls/bob",
			before: func() {
				c.othersMake()
				before := c.head()
				c.othersWrite(entriesOfOthers)
				if good = c.head(); good < before+entriesOfOthers {
					c.Errorf("the head is #%d, and was #%d before %d entries", good, before, entriesOfOthers)
				}
			},
			after: func(string) {
				c.othersWrite(lateEntries)
				c.reach(false)
				planted = c.updateOf("operator:bob", good)
			},
		},
		{command: "rutter trace web db --watch 0s"},
		{command: "rutter log bisect --reach web db", after: func(string) { c.found(planted) }},
		{command: "rutter log blame nic"},
		{command: "rutter log revert"},
		{command: "rutter log revert", after: func(string) {
			c.reach(true)
			taken = c.updateOf("operator:alice", planted)
			c.names(taken, planted)
			c.same(good)
		}},
		{command: "rutter log history nic"},
		{command: "rutter log revert", after: stops},
		{command: "rutter log revert", after: flows},
		{command: "rutter plan -f cloud", after: func(string) { c.same(good); c.blameless() }},
	}
}

// head is the newest entry.
func (c *circle) head() log.Seq {
	c.Helper()
	head, err := c.cluster.Client.Head(c.Context())
	c.must(err)
	return head
}

// updateOf is the last update of an actor after an entry.
func (c *circle) updateOf(actor string, after log.Seq) (found log.Seq) {
	c.Helper()
	head := c.head()
	for e, err := range c.cluster.Client.Entries(c.Context(), after) {
		c.must(err)
		event, err := e.Event()
		c.must(err)
		if event.Actor == actor && event.Action == log.Update {
			found = e.Seq
		}
		if e.Seq >= head {
			break
		}
	}
	if found == 0 {
		c.Fatalf("no update of %s after #%d", actor, after)
	}
	return found
}

// found checks that bisect finds exactly the entry, and soon.
func (c *circle) found(planted log.Seq) {
	c.Helper()
	began := time.Now()
	out, err := c.command("rutter log bisect --reach web db -o json")
	took := time.Since(began)
	c.must(err)
	var found struct {
		Now struct {
			Seq   log.Seq  `json:"seq"`
			Codes []string `json:"codes"`
		} `json:"now"`
	}
	c.must(json.Unmarshal([]byte(out), &found))
	if found.Now.Seq != planted || !slices.Equal(found.Now.Codes, []string{"other-vnet"}) || took > bisectWithin {
		c.Errorf("bisect finds #%d %v after %v, want #%d within %v", found.Now.Seq, found.Now.Codes, took, planted, bisectWithin)
	}
}

// names checks that an entry says that it takes another back.
func (c *circle) names(entry, back log.Seq) {
	c.Helper()
	for e, err := range c.cluster.Client.Entries(c.Context(), entry-1) {
		c.must(err)
		event, err := e.Event()
		c.must(err)
		if want := "#" + back.String(); event.Reverts.String() != want {
			c.Errorf("entry #%d reverts %q, want %q", entry, event.Reverts, want)
		}
		return
	}
}

// same checks that the log has of the declared objects what it had after an entry.
func (c *circle) same(good log.Seq) {
	c.Helper()
	was, err := c.command(fmt.Sprintf("rutter export --label set=shop --at %d", good))
	c.must(err)
	is, err := c.command("rutter export --label set=shop")
	c.must(err)
	if was != is || strings.Count(is, "kind:") != 7 {
		c.Errorf("it was\n%s\nand is\n%s", was, is)
	}
	diff, err := c.command(fmt.Sprintf("rutter log diff --vnet 20 --from %d -o ndjson", good))
	c.must(err)
	if strings.Count(diff, "\n") != 1 {
		c.Errorf("log diff: want the NIC alone in %s", diff)
	}
	for line := range strings.Lines(diff) {
		var object struct {
			Changed []struct{ Path string }
		}
		c.must(json.Unmarshal([]byte(line), &object))
		if len(object.Changed) != 1 || object.Changed[0].Path != "modified_timestamp" { // servers set it
			c.Errorf("log diff: %s", line)
		}
	}
}

// blameless checks that no agent takes its own work for another program's.
func (c *circle) blameless() {
	c.Helper()
	for _, cn := range []string{"cn1", "cn2"} {
		said, err := os.ReadFile(filepath.Join(c.dir, cn, "agent.log"))
		c.must(err)
		if line := regexp.MustCompile(".*kernel was changed by another program.*").Find(said); line != nil {
			c.Errorf("%s: %s", cn, line)
		}
	}
}
