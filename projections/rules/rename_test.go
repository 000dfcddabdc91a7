package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// TestRenamesOfOneChange: what follows from many renames in one change is bounded, not only
// what follows from each.
func TestRenamesOfOneChange(t *testing.T) {
	const nics, renames = 300, 100
	w := worldtest.Settled(t, Decide)
	w.Must(`create nic_tag {"name": "rack0"}`)
	var ops []log.Op
	for n := range nics {
		ops = append(ops, changetest.Op(t, fmt.Sprintf(`create nic {"mac": "0000000a%04x", "belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "nic_tag": "rack0", "vlan_id": 3}`, n)))
	}
	if r := w.Try(w.Change(ops...)).Refusal; r != nil {
		t.Fatal(r)
	}
	rename := func(n int) (ops []log.Op) {
		for i := range n {
			ops = append(ops, changetest.Op(t, fmt.Sprintf(`update nic_tag rack%d {"name": "rack%d"}`, i, i+1)))
		}
		return ops
	}
	events, result := Decide(w.State, w.Change(rename(renames)...))
	if result.Refusal == nil || !strings.Contains(result.Refusal.Error(), "limit retagged") {
		t.Errorf("%d renames of a tag with %d NICs: %d events, refusal %v", renames, nics, len(events), result.Refusal)
	}
	if r := w.Try(w.Change(rename(4)...)).Refusal; r != nil {
		t.Errorf("a few renames: %v", r)
	}
}

// TestRenamedInOrder: an aggregation's tags are in order also after one was renamed, so that
// an update which names the same tags alters nothing.
func TestRenamedInOrder(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Must(`create nic_tag {"name": "aaa"}`)
	w.Must(`create aggregation {"name": "aggr0", "macs": ["000000000100"], "nic_tags_provided": ["aaa", "external"]}`)
	w.Must(`update nic_tag aaa {"name": "zzz"}`)
	id := changetest.UUID(11).String() + "-aggr0"
	r, ok := w.State.Get(log.KindAggregation, id)
	if !ok {
		t.Fatal("no aggregation")
	}
	if tags := r.Object.(*log.Aggregation).NICTagsProvided; !slices.Equal(tags, []string{"external", "zzz"}) {
		t.Errorf("the tags are %v", tags)
	}
	if result := w.Must(fmt.Sprintf(`update aggregation %s {"nic_tags_provided": ["zzz", "external"]}`, id)); result.Events != 0 {
		t.Errorf("the same tags make %d events", result.Events)
	}
}
