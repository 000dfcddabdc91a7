package projections

import (
	"slices"
	"testing"

	"rutter/log"
)

// TestWalk: a list that is read in slices shows what one look shows, by every
// index, also where the last object seen has gone meanwhile.
func TestWalk(t *testing.T) {
	s := NewState()
	network := log.UUID{1}
	load := func(o log.Object) {
		t.Helper()
		if err := s.Load(Record{Object: o, Revision: 1, Seq: 1}); err != nil {
			t.Fatal(err)
		}
	}
	load(&log.Network{UUID: network, NICTag: "external", OwnerUUIDs: []log.UUID{{3}}, Fabric: true, VNetID: 7})
	for i := range 700 {
		load(&log.NIC{MAC: log.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, NetworkUUID: network, BelongsToUUID: log.UUID{byte(i % 2), 9}, CNUUID: log.UUID{5}})
	}
	for _, w := range []Walk{
		{Kind: log.KindNIC},
		{Kind: log.KindNIC, Network: network},
		{Kind: log.KindNIC, BelongsTo: log.UUID{1, 9}},
		{Kind: log.KindNIC, CN: log.UUID{5}},
		{Kind: log.KindNIC, VNet: 7},
		{Kind: log.KindNetwork, Tag: "external"},
		{Kind: log.KindNetwork, FabricOf: log.UUID{3}},
		{Kind: log.KindFabricVLAN, FabricOf: log.UUID{3}},
		{Kind: log.KindVM, CN: log.UUID{5}},
	} {
		var want, got []string
		for rec := range s.Walk(w, nil) {
			want = append(want, rec.Object.ID())
		}
		var last log.Object
		for more := true; more; {
			more = false
			n := 0
			for rec := range s.Walk(w, last) {
				got = append(got, rec.Object.ID())
				last = rec.Object
				if n++; n == 3 {
					more = true
					break
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v in slices: got %d ids, want %d", w, len(got), len(want))
		}
	}
	gone := &log.NIC{MAC: log.MAC{2, 0, 0, 0, 0, 9}}
	s.Drop(log.KindNIC, gone.ID())
	for rec := range s.Walk(Walk{Kind: log.KindNIC}, gone) {
		if got, want := rec.Object.ID(), "02:00:00:00:00:0a"; got != want {
			t.Errorf("after one that went: got %s, want %s", got, want)
		}
		break
	}
}
