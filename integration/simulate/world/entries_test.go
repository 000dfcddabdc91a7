package world

import (
	"net/netip"
	"testing"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// Entries that lead elsewhere, that are nowhere, that would age or that are missing are told.
func TestWrongEntries(t *testing.T) {
	mac, other, link := log.MAC{2, 1}, log.MAC{2, 2}, log.MAC{2, 3}
	at, elsewhere := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("192.168.1.2")
	want := desired.Links{
		VXLANs: []desired.VXLAN{{VNet: 7}}, FDB: []desired.FDB{{VNet: 7, MAC: mac, Dst: at}},
		Fabrics: []desired.Fabric{{MAC: link, VNet: 7}}, Neighs: []desired.Neigh{{Link: link, IP: at, MAC: mac}},
	}
	right := func() (vxlan, fabric *plan.Link) {
		return &plan.Link{Name: "sdcvxl7", Kind: plan.KindVXLAN, VNI: 7, FDB: []plan.Forward{{MAC: mac, Dst: at, Permanent: true}}},
			&plan.Link{Name: "fabric0", Kind: plan.KindMacvlan, MAC: link, Neighs: []plan.Neighbour{{IP: at, MAC: mac}}}
	}
	for name, c := range map[string]struct {
		change func(vxlan, fabric *plan.Link)
		wrong  int
	}{
		"right":               {func(_, _ *plan.Link) {}, 0},
		"leads elsewhere":     {func(v, _ *plan.Link) { v.FDB[0].Dst = elsewhere }, 1},
		"would age":           {func(v, _ *plan.Link) { v.FDB[0].Permanent = false }, 1},
		"is nowhere":          {func(v, _ *plan.Link) { v.FDB = append(v.FDB, plan.Forward{MAC: other, Dst: at, Permanent: true}) }, 1},
		"is missing":          {func(v, _ *plan.Link) { v.FDB = nil }, 1},
		"for all":             {func(v, _ *plan.Link) { v.FDB = append(v.FDB, plan.Forward{Dst: elsewhere}) }, 0},
		"an old neighbour":    {func(_, f *plan.Link) { f.Neighs[0].MAC = other }, 1},
		"a neighbour nowhere": {func(_, f *plan.Link) { f.Neighs = append(f.Neighs, plan.Neighbour{IP: elsewhere, MAC: mac}) }, 1},
		"no neighbour":        {func(_, f *plan.Link) { f.Neighs = nil }, 1},
	} {
		v, f := right()
		c.change(v, f)
		k := &kernel{fake: plan.Fake{Links: []*plan.Link{v, f}}}
		if got := k.wrong(want); len(got) != c.wrong {
			t.Errorf("%s: %q, want %d", name, got, c.wrong)
		}
	}
}
