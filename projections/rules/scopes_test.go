package rules

import (
	"fmt"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// TestScopesWithinOneChange: an underlay NIC's event is heard on the vnet that
// its CN came to by an earlier operation of the same change.
func TestScopesWithinOneChange(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Must(`create nic {"mac": "020000000001", "belongs_to_type": "other", "belongs_to_uuid": "#60#", "owner_uuid": "#2#", "cn_uuid": "#11#", "network_uuid": "#32#"}`,
		`update nic 00:00:00:00:01:00 {"ip": "192.168.0.77"}`)
	if got, want := fmt.Sprint(w.Events[len(w.Events)-1].Scopes), changetest.Expand("[cn:#11# vnet:10 vnet:20 network:#30#]"); got != want {
		t.Errorf("scopes %s, want %s", got, want)
	}
	w.Must(`delete nic 020000000001`, `update nic 00:00:00:00:01:00 {"ip": "192.168.0.78"}`)
	if got, want := fmt.Sprint(w.Events[len(w.Events)-1].Scopes), changetest.Expand("[cn:#11# vnet:10 network:#30#]"); got != want {
		t.Errorf("scopes %s, want %s", got, want)
	}
}

func BenchmarkCreateNIC(b *testing.B) {
	w := worldtest.New(b, Decide)
	w.Must(`create nic_tag {"name": "overlay"}`, `create network {"uuid": "#31#", "name": "one", "nic_tag": "overlay", "subnet": "10.0.0.0/8",
		"owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`)
	op := changetest.Op(b, `create nic {`+zoneNIC+`, "cn_uuid": "#11#", "network_uuid": "#31#"}`)
	create := func(seq log.Seq) {
		events, result := Decide(w.State, w.Change(op))
		if result.Refusal != nil {
			b.Fatal(result.Refusal)
		}
		if _, err := w.State.Apply(seq, events[0]); err != nil {
			b.Fatal(err)
		}
	}
	seq := log.Seq(10)
	for ; seq < 65_000; seq++ {
		create(seq)
	}
	b.ReportAllocs()
	for b.Loop() {
		create(seq)
		seq++
	}
}
