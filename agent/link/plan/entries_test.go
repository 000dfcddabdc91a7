package plan

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rutter/agent/link/internal/linktest"
	"rutter/projections/desired"
)

// TestPlanComparesWholeEntries: an entry is not right because its key is there. FRR and flannel
// left entries with an old address in the kernel, because nothing compared the rest.
func TestPlanComparesWholeEntries(t *testing.T) {
	const (
		neighbour = "ip -n z1 neigh replace 10.0.0.3 lladdr 02:00:00:00:00:03 dev fabric0 nud permanent"
		forward   = "bridge fdb replace 02:00:00:00:00:03 dev sdcvxl5 dst 10.99.0.2 self permanent"
	)
	for _, test := range []struct {
		name, namespace, link string
		edit                  func(l *Link)
		steps                 []string
	}{
		{"a neighbour has an old MAC", "z1", "fabric0", func(l *Link) { l.Neighs[0].MAC = linktest.MAC(98) }, []string{neighbour}},
		{"an entry leads to an old node", "", "sdcvxl5", func(l *Link) { l.FDB[0].Dst = linktest.Addr("10.99.0.77") }, []string{forward}},
		{"an entry leads to an old port", "", "sdcvxl5", func(l *Link) { l.FDB[0].Port = 8472 }, []string{forward}},
		{"an entry ends by itself", "", "sdcvxl5", func(l *Link) { l.FDB[0].Permanent = false }, []string{forward}},
		// The kernel empties the table of a link whose MAC changes.
		{"a link has an old MAC", "z1", "fabric0", func(l *Link) { l.MAC = linktest.MAC(97) }, []string{"ip -n z1 link set fabric0 address 02:00:00:00:00:01", neighbour}},
		{"a link is in no group", "", "fabric1", func(l *Link) { l.Group = 0 }, []string{"ip link set fabric1 " + markText("nic 02:00:00:00:00:02")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, want, numbers := made(t)
			f.Edit(test.namespace, test.link, test.edit)
			if got := apply(t, f, want, numbers); !slices.Equal(got, test.steps) {
				t.Errorf("steps: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.steps, "\n"))
			}
		})
	}
}

// TestPlanWithoutPruneKeepsEntries (architecture rule 8): what a view lacks that is not complete
// stays, also on links that are wanted.
func TestPlanWithoutPruneKeepsEntries(t *testing.T) {
	for name, lose := range map[string]func(want *desired.Links){
		"forwarding entries": func(want *desired.Links) { want.FDB = nil },
		"neighbours":         func(want *desired.Links) { want.Neighs = nil },
		"addresses": func(want *desired.Links) {
			for i := range want.Fabrics {
				want.Fabrics[i].Addresses = []netip.Prefix{}
			}
		},
		"routes":    func(want *desired.Links) { want.Fabrics[0].Routes, want.Fabrics[0].Gateway = nil, netip.Addr{} },
		"resolvers": func(want *desired.Links) { want.Fabrics[0].Resolvers = nil },
	} {
		f, want, numbers := made(t)
		lose(&want)
		have, err := f.Dump(context.Background(), []string{"z1"})
		if err != nil {
			t.Fatal(err)
		}
		if work := Plan(want, have, numbers, false); len(work.Steps) > 0 {
			t.Errorf("%s are missing in a view that is not complete, and the plan is %v", name, work.Steps)
		}
		if work := Plan(want, have, numbers, true); len(work.Steps) == 0 {
			t.Errorf("%s are missing in a view that is complete, and stay", name)
		}
	}
}
