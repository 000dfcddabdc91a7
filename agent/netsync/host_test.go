package netsync

import (
	"net/netip"
	"reflect"
	"testing"

	"rutter/agent/sysinfo"
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
			m.sync.pass(t.Context())
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
	host.NICs = host.NICs[:2] // whose the third is, is asked each minute
	settle()
	reports := m.sync.Status().Reports
	if settle(); m.sync.Status().Reports != reports {
		t.Errorf("%d reports although nothing changes", m.sync.Status().Reports-reports)
	}
	if edits := m.sync.Status().Edits; edits != 0 {
		t.Errorf("%d edits of manifests for the node's own NICs", edits)
	}
}

// TestHostOf: what of a sysinfo is whose.
func TestHostOf(t *testing.T) {
	text := `{"UUID":"` + modelCN.String() + `","Network Interfaces":{` +
		`"e0":{"MAC Address":"00:00:00:00:00:01","ip4addr":"10.1.0.9","Link Status":"up","NIC Names":["admin"]},` +
		`"e1":{"MAC Address":"00:00:00:00:00:02","Link Status":"down"},` +
		`"e2":{"MAC Address":"00:00:00:00:00:03","Link Status":"up"},` +
		`"aggr0":{"MAC Address":"00:00:00:00:00:02","Link Status":"up","NIC Names":["ext"]}},` +
		`"Virtual Network Interfaces":{` +
		`"ext7":{"MAC Address":"00:00:00:00:00:07","ip4addr":"10.2.0.9","Link Status":"up","Host Interface":"aggr0","VLAN":"4"},` +
		`"other7":{"MAC Address":"00:00:00:00:00:08","Link Status":"up","Host Interface":"aggr0","VLAN":"4"},` +
		`"e0.9":{"MAC Address":"00:00:00:00:00:01","Link Status":"up","Host Interface":"e0","VLAN":"9"}},` +
		`"Link Aggregations":{"aggr0":{"LACP mode":"active","Interfaces":["e2","e1"]}}}`
	info, err := sysinfo.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	mac := func(n byte) log.MAC { return log.MAC{5: n} }
	want := Host{Owner: modelOwner, NICs: []HostNIC{
		{MAC: mac(1), Up: true, IP: netip.MustParseAddr("10.1.0.9"), Tags: []string{"admin"}, NICTag: "admin"},
		{MAC: mac(2)},
		{MAC: mac(3), Up: true},
		{MAC: mac(7), Up: true, IP: netip.MustParseAddr("10.2.0.9"), NICTag: "ext", VLAN: 4},
		{MAC: mac(8), Up: true},
	}, Aggregations: []HostAggregation{{Name: "aggr0", LACPMode: "active", MACs: []log.MAC{mac(3), mac(2)}, Tags: []string{"ext"}}}}
	if got := HostOf(info, modelOwner); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := HostOf(nil, modelOwner); len(got.NICs)+len(got.Aggregations) > 0 {
		t.Errorf("of nothing: %+v", got)
	}
}
