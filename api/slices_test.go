package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// viewed is a memory in which something happens after each view.
type viewed struct {
	*memory
	after func()
}

func (v *viewed) View(fn func(*projections.State, log.Cursor)) {
	v.memory.View(fn)
	v.after()
}

// furnishTags puts NIC tags into a store, and returns their names in order.
func furnishTags(t *testing.T, store *memory, n int) (names []string) {
	t.Helper()
	c := &log.Change{ID: testUUID(0x5151), Actor: "ada"}
	for i := range n {
		names = append(names, fmt.Sprintf("t%04d", i))
		c.Ops = append(c.Ops, log.Op{Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: names[i], MTU: 1500}})
	}
	if result, err := store.Propose(t.Context(), c); err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
	return names
}

// namesIn are those of an answer.
func namesIn(t *testing.T, body []byte) (names []string) {
	t.Helper()
	var tags []struct{ Name string }
	if err := json.Unmarshal(body, &tags); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, tag := range tags {
		names = append(names, tag.Name)
	}
	return names
}

// A long list lets the state go between slices of it: what is written meanwhile
// goes through, and what stays where it is comes once, in order.
func TestLongListsAreReadInSlices(t *testing.T) {
	store := &viewed{memory: newMemory(), after: func() {}}
	s, err := New(Config{Store: store, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	b := bedWith(t, store.memory, s)
	names := furnishTags(t, store.memory, 3*backend.SliceRows+10)

	views := 0
	store.after = func() { views++ }
	for _, page := range []struct{ limit, want int }{{1, 1}, {backend.SliceRows, backend.SliceRows}, {MaxList, len(names)}} {
		views = 0
		got := namesIn(t, b.call("GET", fmt.Sprintf("/nic_tags?limit=%d", page.limit), "").Body.Bytes())
		if want := names[:page.want]; !slices.Equal(got, want) {
			t.Errorf("limit %d: got %d names, %v…, want %d", page.limit, len(got), got[:min(3, len(got))], len(want))
		}
		if want := (page.want + backend.SliceRows - 1) / backend.SliceRows; views < want {
			t.Errorf("limit %d: the state was held %d times, want %d at least", page.limit, views, want)
		}
	}
	var paged []string
	for offset := 0; offset < len(names); offset += 100 {
		paged = append(paged, namesIn(t, b.call("GET", fmt.Sprintf("/nic_tags?limit=100&offset=%d", offset), "").Body.Bytes())...)
	}
	if !slices.Equal(paged, names) {
		t.Errorf("by pages: %d names, want %d", len(paged), len(names))
	}

	// After the first slice one that was read goes, and one of a lower name comes;
	// one that is still to be read goes as well.
	done := false
	store.after = func() {
		if done {
			return
		}
		done = true
		c := &log.Change{ID: testUUID(0x5252), Actor: "ada", Ops: []log.Op{
			{Action: log.Delete, Kind: log.KindNICTag, ID: names[backend.SliceRows-1]}, // the last that was looked at
			{Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: "a", MTU: 1500}},
			{Action: log.Delete, Kind: log.KindNICTag, ID: names[backend.SliceRows+1]},
		}}
		if result, err := store.Propose(t.Context(), c); err != nil || result.Refusal != nil {
			t.Error(err, result.Refusal)
		}
	}
	head := store.Head().Seq
	w := b.call("GET", "/nic_tags", "")
	want := slices.Delete(slices.Clone(names), backend.SliceRows+1, backend.SliceRows+2)
	if got := namesIn(t, w.Body.Bytes()); !done || !slices.Equal(got, want) {
		t.Errorf("with changes between: got %d names, want %d", len(got), len(want))
	}
	if got := w.Header().Get(rest.HeaderSeq); got != head.String() {
		t.Errorf("%s is %s, want that of the first slice, %s", rest.HeaderSeq, got, head)
	}
}

// A filter's walk is the index that has what it selects, and no filter is lost.
func TestWalksOfFilters(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.nic(fabricA, cn1)
	b.nic(fabricB, cn2)
	var all []projections.Record
	b.store.View(func(state *projections.State, _ log.Cursor) { all = slices.Collect(state.List(log.KindNIC)) })
	count := func(fits func(*log.NIC) bool) (n int) {
		for _, rec := range all {
			if fits(rec.Object.(*log.NIC)) {
				n++
			}
		}
		return n
	}
	for query, fits := range map[string]func(*log.NIC) bool{
		"belongs_to_uuid=" + testUUID(0x77).String():                    func(n *log.NIC) bool { return n.BelongsToUUID == testUUID(0x77) },
		"network_uuid=" + fabricA.String():                              func(n *log.NIC) bool { return n.NetworkUUID == fabricA },
		"cn_uuid=" + cn2.String():                                       func(n *log.NIC) bool { return n.CNUUID == cn2 },
		"cn_uuid=" + cn2.String() + "&network_uuid=" + fabricA.String(): func(n *log.NIC) bool { return n.CNUUID == cn2 && n.NetworkUUID == fabricA },
		"cn_uuid=" + log.UUID{}.String():                                func(n *log.NIC) bool { return n.CNUUID.IsZero() },
		"network_uuid=" + fabricA.String() + "," + fabricB.String():     func(n *log.NIC) bool { return n.NetworkUUID == fabricA || n.NetworkUUID == fabricB },
		"vnet_id=0": func(*log.NIC) bool { return false },
	} {
		var got []any
		w := b.call("GET", "/nics?"+query, "")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != count(fits) {
			t.Errorf("%s: got %d of %d NICs, want %d (%v)", query, len(got), len(all), count(fits), err)
		}
	}
}
