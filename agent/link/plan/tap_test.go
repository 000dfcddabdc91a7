package plan

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"rutter/agent/filter"
	"rutter/agent/link/internal/linktest"
	"rutter/log"
	"rutter/projections/desired"
)

// attached is linktest.Sample with a named link and a tap, and its numbers.
func attached() (desired.Links, Numbers) {
	want := linktest.Sample()
	numbers := numbersFor(want)
	told := map[log.MAC]desired.Attach{linktest.MAC(1): {Name: "eth0"}, linktest.MAC(2): {Tap: true, Name: "rt2", User: 64055}}
	for mac, a := range told {
		numbers.Tell(mac, a)
	}
	want.Attach(numbers.Attach)
	return want, numbers
}

// TestPlanTapFromNothing: a tap is made as a whole, with its mark, and is put up after its
// rules, as the node's end of a pair is. Nothing of it is in a namespace.
func TestPlanTapFromNothing(t *testing.T) {
	f, table := secureFake()
	want, numbers := attached()
	want.Neighs = append(want.Neighs, desired.Neigh{Link: linktest.MAC(2), IP: linktest.Addr("fd00::3"), MAC: linktest.MAC(3)})
	want.Attach(numbers.Attach)
	got := applySecured(t, f, want, numbers, secured)
	about := slices.DeleteFunc(got, func(s string) bool {
		return !strings.Contains(s, "rt2") && !strings.Contains(s, "port1") && !strings.Contains(s, "eth0") && !strings.Contains(s, "fabric1") && !strings.Contains(s, "fd00::")
	})
	expect := []string{
		"ip link add port0 mtu 1446 " + markText("port 02:00:00:00:00:01") + " master br5v7 type veth peer name eth0 netns z1 address 02:00:00:00:00:01 mtu 1446 " + groupText,
		"ip tuntap add rt2 mode tap user 64055 vnet_hdr && ip link set rt2 address fe:72:00:00:00:01 mtu 1400 " + markText("port 02:00:00:00:00:02") + " master br6v0",
		"bridge fdb replace 02:00:00:00:00:02 dev port1 master static sticky",
		"set rules of port1: 02:00:00:00:00:02, [fd00::2]",
		"ip link set port1 up",
	}
	if !slices.Equal(about, expect) {
		t.Errorf("steps: got\n%s\nwant\n%s", strings.Join(about, "\n"), strings.Join(expect, "\n"))
	}
	if len(table.Held.Ports) != 2 || table.Held.Ports[1].Name != "rt2" {
		t.Errorf("rules: %+v", table.Held.Ports)
	}
	if got := applySecured(t, f, desired.Links{}, numbers, secured); len(f.Links) != 0 {
		t.Errorf("after all is unwanted: %s, steps %v", f, got)
	}
}

// TestPlanTapChanges: what a source says anew changes the tap in place.
func TestPlanTapChanges(t *testing.T) {
	f, _ := secureFake()
	want, numbers := attached()
	applySecured(t, f, want, numbers, secured)
	for _, c := range []struct {
		to     desired.Attach
		mtu    uint32
		expect []string
	}{
		{desired.Attach{Tap: true, Name: "rt2", User: 7}, 1400, []string{"ip link set port1 user 7"}},
		{desired.Attach{Tap: true, Name: "rt3", User: 7}, 1400, []string{"ip link set port1 name rt3", "set rules of port1: 02:00:00:00:00:02, [fd00::2]"}},
		{desired.Attach{Tap: true, Name: "rt3", User: 7}, 1300, []string{"ip link set port1 mtu 1300"}},
	} {
		numbers.Tell(linktest.MAC(2), c.to)
		want = linktest.Sample()
		want.Fabrics[1].MTU = c.mtu
		want.Attach(numbers.Attach)
		if got := applySecured(t, f, want, numbers, secured); !slices.Equal(got, c.expect) {
			t.Errorf("%v: %q, want %q", c.to, got, c.expect)
		}
	}
}

// TestTapsOfOneName: of two NICs that are told the same name the first keeps its tap, whatever
// their order, and the other waits alone with the reason.
func TestTapsOfOneName(t *testing.T) {
	for _, first := range []int{1, 2} {
		f, _ := secureFake()
		want := linktest.Sample()
		numbers := numbersFor(want)
		numbers.Tell(linktest.MAC(first), desired.Attach{Tap: true, Name: "one"})
		want.Attach(numbers.Attach)
		applySecured(t, f, want, numbers, secured)
		second := linktest.MAC(3 - first)
		numbers.Tell(second, desired.Attach{Tap: true, Name: "one"})
		want = linktest.Sample()
		want.Attach(numbers.Attach)
		have, _ := f.Dump(context.Background(), []string{"z1"})
		work := PlanSecured(want, have, numbers, true, secured)
		kernel := slices.ContainsFunc(work.Steps, func(s Step) bool { return s.Op == OpAddLink && s.Object.MAC == second }) // refuses it
		if said := len(work.Blocked) == 1 && work.Blocked[0].Object.MAC == second && errors.Is(work.Blocked[0].Err, ErrAttach); said == kernel {
			t.Errorf("first %d: blocked %v, steps %v", first, work.Blocked, commands(work.Steps))
		}
		errs := f.Do(context.Background(), work.Steps)
		if l := f.Find(LinkKey{"", "one"}); l == nil || l.MAC != TapMAC(uint32(first-1)) || kernel != (errs != nil) {
			t.Errorf("first %d: the tap is %v, %v", first, l, errs)
		}
	}
}

// TestAttachedNumbersFile: what was told is in the file beside the number; files of versions
// without attachments are read; and a damaged attachment costs no number.
func TestAttachedNumbersFile(t *testing.T) {
	_, numbers := attached()
	numbers.Tell(linktest.MAC(1), desired.Attach{Name: "net1"})
	text, err := json.MarshalIndent(numbers, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/numbers_attached.json" // never edited: files of this version stay readable
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(golden, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(text)+"\n" != string(want) {
		t.Errorf("written: %s, %v, want\n%s", text, err, want)
	}
	var read Numbers
	if err := json.Unmarshal(want, &read); err != nil {
		t.Fatal(err)
	}
	for _, mac := range []log.MAC{linktest.MAC(1), linktest.MAC(2)} {
		if read.Attach(mac) != numbers.Attach(mac) || read.was(mac) != numbers.was(mac) {
			t.Errorf("%s: read %v", mac, read.Attach(mac))
		}
	}
	before, err := os.ReadFile("testdata/numbers_plain.json") // of versions without attachments
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(before, &read); err != nil || read.Attach(linktest.MAC(1)) != (desired.Attach{}) || len(read.MACs()) != 2 {
		t.Errorf("a file without attachments: %v, %v", err, read)
	}
	damaged := strings.ReplaceAll(string(want), "rt2", "../etc")
	if err := json.Unmarshal([]byte(damaged), &read); err != nil || read.Attach(linktest.MAC(2)) != (desired.Attach{}) || len(read.MACs()) != 2 {
		t.Errorf("a damaged attachment: %v, %v", err, read)
	}
	if !read.Release(linktest.MAC(1)) || read.Tell(linktest.MAC(1), desired.Attach{Name: "eth9"}) {
		t.Error("a MAC without a number has an attachment")
	}
}

// TestTapRulesHaveTheAddresses: a tap's rules have the addresses of its NIC, as the log has them.
func TestTapRulesHaveTheAddresses(t *testing.T) {
	f, table := secureFake()
	want, numbers := attached()
	want.Fabrics[1].Allowed = []netip.Addr{linktest.Addr("fd00::99")}
	applySecured(t, f, want, numbers, secured)
	if p := table.Held.Ports[1]; !slices.Equal(p.Addresses, []netip.Addr{linktest.Addr("fd00::2"), linktest.Addr("fd00::99")}) || p.MAC != linktest.MAC(2) {
		t.Errorf("rules: %+v", p)
	}
	table.Refuse = func(c filter.Change) error {
		if c.SetPort != nil {
			return errors.New("refused")
		}
		return nil
	}
	table.Held.Ports = nil
	have, _ := f.Dump(context.Background(), []string{"z1"})
	_ = f.Do(context.Background(), PlanSecured(want, have, numbers, true, secured).Steps)
	if l := f.Find(LinkKey{"", "rt2"}); l == nil || l.Up {
		t.Errorf("a tap without rules is up: %v", l)
	}
}
