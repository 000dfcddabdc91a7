package plan

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"rutter/agent/link/internal/linktest"
	"rutter/log"
	"rutter/projections/desired"
)

// TestVLANsAreKnownByMark: a VLAN device is known by its mark on its device, under any
// names of both, and with the links on it; another one that bears a copy of the mark is
// foreign, and keeps what it is on from being deleted.
func TestVLANsAreKnownByMark(t *testing.T) {
	f, want, numbers := made(t)
	numbers.SetMarked()
	f.Identify(func(have *Snapshot) { Identify(have, &want, numbers, false) })
	f.Rename("", "vx5v7", "tagged")
	f.Rename("", "sdcvxl5", "vx5v7")
	f.Rename("z1", "fabric0", "eth0")
	if got := apply(t, f, want, numbers); len(got) != 0 {
		t.Fatalf("renamed: steps %q, want none", got)
	}
	for _, unmark := range []func(l *Link){
		func(l *Link) { l.Alias = "" },             // it has its group
		func(l *Link) { l.Alias, l.Group = "", 0 }, // it was ours in the last dump
	} {
		f.Edit("", "tagged", unmark)
		if got, expect := apply(t, f, want, numbers), []string{"ip link set vx5v7 " + markText("vlan 5 7")}; !slices.Equal(got, expect) {
			t.Errorf("unmarked: steps %q, want %q", got, expect)
		}
	}
	mark := f.Find(LinkKey{"", "tagged"})
	copied := Link{Name: "vx5v8", Kind: KindVLAN, Parent: "vx5v7", VLAN: 8, MTU: 1400, Alias: mark.Alias, Group: mark.Group, Index: FirstIndex + 99}
	if err := f.AddLink(copied); err != nil {
		t.Fatal(err)
	}
	if got := apply(t, f, want, numbers); len(got) != 0 {
		t.Errorf("beside a copy: steps %q, want none", got)
	}
	want = desired.Links{}
	have, _ := f.Dump(context.Background(), []string{"z1"})
	work := Plan(want, have, numbers, true)
	if len(work.Blocked) != 1 || !errors.Is(work.Blocked[0].Err, ErrForeign) || !strings.Contains(work.Blocked[0].String(), "vx5v7 carries vx5v8: remove that link first") {
		t.Errorf("blocked: got %v", work.Blocked)
	}
	f.Do(context.Background(), work.Steps)
	if f.Find(LinkKey{"", "vx5v8"}) == nil || f.Find(LinkKey{"", "vx5v7"}) == nil || f.Find(LinkKey{"z1", "eth0"}) != nil {
		t.Errorf("after all is unwanted:\n%s", f)
	}
	f.DeleteLink("", "vx5v8")
	apply(t, f, want, numbers)
	if len(f.Links) != 0 {
		t.Errorf("after the foreign link is gone:\n%s", f)
	}
}

// TestVLANsWithoutMarksAreAdopted: those of versions without marks, with what is on them.
func TestVLANsWithoutMarksAreAdopted(t *testing.T) {
	f, want, numbers := made(t)
	for _, l := range f.Links {
		l.Alias, l.Group = "", 0
	}
	for _, s := range apply(t, f, want, numbers) {
		if !strings.Contains(s, "link set ") {
			t.Errorf("step %q, want marks only", s)
		}
	}
	for _, l := range f.Links {
		l.Alias, l.Group = "", 0
	}
	numbers.SetMarked()
	have, _ := f.Dump(context.Background(), []string{"z1"})
	if work := Plan(want, have, numbers, true); len(work.Steps) != 0 || len(work.Blocked) == 0 {
		t.Errorf("later: steps %q, blocked %v, want only the latter", commands(work.Steps), work.Blocked)
	}
}

// TestMarksOfClustersBefore: they are ours, and are written anew.
func TestMarksOfClustersBefore(t *testing.T) {
	f, want, numbers := made(t)
	numbers.SetMarked()
	numbers.Follow(log.UUID{1})
	have, _ := f.Dump(context.Background(), []string{"z1"})
	if work := Plan(want, have, numbers, true); len(work.Blocked) == 0 {
		t.Error("links that no cluster of this node marked are ours")
	}
	numbers, _ = numbers.With([]log.UUID{{}})
	if got := apply(t, f, want, numbers); len(got) != len(f.Links) {
		t.Errorf("steps: got %q, want a new mark for each of %d links", got, len(f.Links))
	}
	if m, ok := ParseMark(f.Links[0].Alias); !ok || m.Cluster != (log.UUID{1}) || m.Object != "vxlan 5" {
		t.Errorf("mark: got %+v", m)
	}
	if l := f.Find(LinkKey{"z1", "fabric0"}); l.MarkedNIC() != linktest.MAC(1) {
		t.Errorf("mark of the fabric link: %q", l.Alias)
	}
}

// TestOneLinkIsTheNICs: of several links that claim to be a NIC's, the one with its MAC on
// its device is, also for an agent that has just started. The others are left alone.
func TestOneLinkIsTheNICs(t *testing.T) {
	f, want, numbers := made(t)
	numbers.SetMarked()
	alias := f.Find(LinkKey{"z1", "fabric0"}).Alias
	for _, l := range []Link{
		{Name: "aaa", Parent: "sdcvxl6", MAC: linktest.MAC(1)}, // the guest has a NIC there too
		{Name: "bbb", Parent: "vx5v7", MAC: linktest.MAC(90)},
	} {
		l.Namespace, l.Kind, l.Alias, l.Bridge, l.Index = "z1", KindMacvlan, alias, true, FirstIndex+70+int32(l.MAC[5])
		if err := f.AddLink(l); err != nil {
			t.Fatal(err)
		}
	}
	before := f.String()
	have, _ := f.Dump(context.Background(), []string{"z1"})
	if work := Plan(want, have, numbers, true); len(work.Steps)+len(work.Blocked) != 0 {
		t.Errorf("got steps %q, blocked %v, want none", commands(work.Steps), work.Blocked)
	}
	if f.String() != before {
		t.Error("the kernel changed")
	}
}
