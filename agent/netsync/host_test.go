package netsync

import (
	"net/netip"
	"testing"

	"rutter/log"
)

// TestHost: what the node itself has comes into the log, follows it there, takes
// booter's placeholder, and is never taken from the node.
func TestHost(t *testing.T) {
	m := newModel(t, 2)
	m.faulty = false
	first, second, foreign := log.MAC{0, 1, 2, 3, 4, 5}, log.MAC{0, 1, 2, 3, 4, 6}, log.MAC{0, 1, 2, 3, 4, 7}
	host := Host{Owner: modelOwner, NICs: []HostNIC{
		{MAC: first, Up: true, IP: netip.MustParseAddr("10.0.0.200"), Tags: []string{"ext"}, NICTag: "ext", VLAN: 10},
		{MAC: second},
		{MAC: foreign, Up: true},
	}, Aggregations: []HostAggregation{{Name: "aggr0", LACPMode: "active", MACs: []log.MAC{first, second}}}}
	m.sync.cfg.Host = func() Host { return host }
	nic := func(mac log.MAC, kind string, of log.UUID) log.Op {
		return log.Op{
			Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "mac", "owner_uuid"},
			Object: &log.NIC{MAC: mac, BelongsToType: kind, BelongsToUUID: of, OwnerUUID: modelOwner},
		}
	}
	if r := m.operator("booter", nic(second, "other", modelOwner), nic(foreign, "zone", log.UUID{0xbb})); r != nil {
		t.Fatal(r)
	}
	settle := func() {
		for range 20 {
			m.follow(1 << 20)
			m.sync.turn(t.Context())
			m.now = m.now.Add(maxPause)
		}
	}
	state := func(mac log.MAC) *log.NIC {
		rec, ok := m.state.Get(log.KindNIC, mac.String())
		if !ok {
			m.fail("NIC %s is not in the log: %+v", mac, m.sync.Status())
		}
		return rec.Object.(*log.NIC)
	}
	settle()
	if n := state(first); n.BelongsToType != "server" || n.BelongsToUUID != modelCN || n.CNUUID != modelCN || n.OwnerUUID != modelOwner || n.State != "running" || n.NetworkUUID != modelNets[0] || len(n.NICTagsProvided) != 1 {
		t.Errorf("a NIC that the log did not know: %+v", n)
	}
	if n := state(second); n.BelongsToType != "server" || n.BelongsToUUID != modelCN || n.State != "stopped" {
		t.Errorf("booter's placeholder: %+v", n)
	}
	if n := state(foreign); n.BelongsToType != "zone" {
		t.Errorf("a NIC that belongs to a VM: %+v", n)
	}
	aggregation := func() *log.Aggregation {
		rec, ok := m.state.Get(log.KindAggregation, modelCN.String()+"-aggr0")
		if !ok {
			m.fail("the aggregation is not in the log: %+v", m.sync.Status())
		}
		return rec.Object.(*log.Aggregation)
	}
	if a := aggregation(); a.LACPMode != "active" || len(a.MACs) != 2 {
		t.Errorf("aggregation: %+v", a)
	}
	host.NICs[0].Up, host.NICs[1].Up, host.Aggregations[0].LACPMode = false, true, "off"
	settle()
	if state(first).State != "stopped" || state(second).State != "running" || aggregation().LACPMode != "off" {
		t.Errorf("links that changed: %+v, %+v, %+v", state(first), state(second), aggregation())
	}
	m.operator("an operator deletes it", log.Op{Action: log.Delete, Kind: log.KindAggregation, ID: modelCN.String() + "-aggr0"}, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: first.String()})
	host.NICs = append([]HostNIC(nil), host.NICs...)
	settle()
	if state(first).State != "stopped" {
		t.Error("a NIC of the node that the log deleted is not there again")
	}
	if edits := m.sync.Status().Edits; edits != 0 {
		t.Errorf("%d edits of manifests for the node's own NICs", edits)
	}
}
