package applycmd

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		n        int
		together [][]int
		want     []block
	}{
		{0, nil, nil},
		{3, nil, []block{{0, 1}, {1, 2}, {2, 3}}},
		{4, [][]int{{0, 2}, {1}}, []block{{0, 3}, {3, 4}}},
		{5, [][]int{{3, 0}, {2, 4}}, []block{{0, 5}}},
		{5, [][]int{{0, 1}, {3, 4}}, []block{{0, 2}, {2, 3}, {3, 5}}},
	} {
		if got := blocks(c.n, c.together); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d with %v: %v, want %v", c.n, c.together, got, c.want)
		}
	}
}

// Each limit of a change is kept, and no change is made that is not needed.
func TestPack(t *testing.T) {
	tags := func(n int) (ops []log.Op) {
		for i := range n {
			ops = append(ops, log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: fmt.Sprint("tag", i)}})
		}
		return ops
	}
	var large []log.Op
	for i := range 100 {
		large = append(large, log.Op{Action: log.Update, Kind: log.KindVM, ID: fmt.Sprint(i), Set: []string{"alias"}, Object: &log.VM{Alias: strings.Repeat("x", 100_000)}})
	}
	var ips []log.Op
	for i := range log.MaxOps {
		ip := &log.IP{NetworkUUID: log.UUID{1}, IP: netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i), 1: 0xff, 2: 0xff, 4: 0xff, 6: 0xff, 8: 0xff, 10: 0xff, 12: 0xff}), Reserved: true}
		ips = append(ips, log.Op{Action: log.Update, Kind: log.KindIP, ID: ip.ID(), Set: []string{"reserved"}, Object: ip})
	}
	for _, c := range []struct {
		name     string
		ops      []log.Op
		together [][]int
		least    int
		most     int
	}{
		{"one", tags(1), nil, 1, 1},
		{"as many as fit", tags(log.MaxOps), nil, 1, 1},
		{"one more", tags(log.MaxOps + 1), nil, 2, 2},
		{"a pair at the border", tags(log.MaxOps + 1), [][]int{{log.MaxOps - 1, log.MaxOps}}, 2, 2},
		{"bytes", large, nil, 10, 12},
		{"bytes of the result", ips, nil, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes, err := pack(c.ops, c.together)
			if err != nil || len(changes) < c.least || len(changes) > c.most {
				t.Fatalf("%d changes, %v", len(changes), err)
			}
			n := 0
			for _, change := range changes {
				b, err := log.NewEncoder().Change(change)
				if err != nil || len(b) > log.MaxChangeBytes || len(change.Ops) > log.MaxOps {
					t.Errorf("a change of %d operations and %d bytes: %v", len(change.Ops), len(b), err)
				}
				for i := range change.Ops {
					if !reflect.DeepEqual(change.Ops[i], c.ops[n]) {
						t.Fatalf("operation %d is another one", n)
					}
					n++
				}
			}
			if n != len(c.ops) {
				t.Errorf("%d of %d operations", n, len(c.ops))
			}
		})
	}
	if _, err := pack(tags(log.MaxOps+1), [][]int{{0, log.MaxOps}}); err == nil || !strings.Contains(err.Error(), "tag0") {
		t.Errorf("more than a change may be: %v", err)
	}
}

func TestIdentify(t *testing.T) {
	ops := []log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: "a", IfSeq: 7}}
	now := time.Date(2026, 11, 23, 6, 30, 0, 0, time.UTC)
	id := func(ops []log.Op, at time.Time) log.UUID {
		c := &log.Change{Ops: ops}
		if err := identify([]*log.Change{c}, at); err != nil {
			t.Fatal(err)
		}
		return c.ID
	}
	first := id(ops, now)
	if first != id(ops, now.Add(29*time.Minute)) || first == id(ops, now.Add(time.Hour)) {
		t.Error("ids follow from the hour")
	}
	if first == id([]log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: "a", IfSeq: 8}}, now) {
		t.Error("another operation has the same id")
	}
	if first[6]>>4 != 7 || first[8]>>6 != 2 {
		t.Errorf("%s is no UUID of version 7", first)
	}
}

// The receipt names what was written, as rutter log revert takes it.
func TestReceipt(t *testing.T) {
	var r receipt
	if got := r.line(func(command string) string { return command }); got != "nothing was written" {
		t.Error(got)
	}
	r.add(log.Result{First: 5, Last: 5, Events: 1}, false)
	if got := r.line(func(command string) string { return command }); got != "written as #5; to take it back: rutter log revert 5" {
		t.Error(got)
	}
	r.add(log.Result{First: 6, Last: 9, Events: 4}, false)
	r.add(log.Result{First: 12, Last: 12}, false) // without effect
	if got := r.line(func(command string) string { return command }); got != "written as #5 to #9; to take it back: rutter log revert --from 5 --until 9" {
		t.Error(got)
	}
	r.add(log.Result{First: 13, Last: 14, Events: 2}, false)
	if got := r.line(func(command string) string { return command }); !strings.HasSuffix(got, "with entries of others between; to take it back: rutter log revert 5-9,13-14") {
		t.Error(got)
	}
}
