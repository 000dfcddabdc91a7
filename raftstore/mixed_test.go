package raftstore

import (
	"fmt"
	"net/netip"
	"testing"

	"rutter/log"
)

// TestRestartOfEveryKind: objects of all kinds, changed and deleted, are the
// same after a restart, which loads rows, as after the fold of the log.
func TestRestartOfEveryKind(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	id := func(i byte) log.UUID { return log.UUID{i, 6: 0x40, 8: 0x80} }
	create := func(o log.Object, set ...string) {
		t.Helper()
		must(t, n, &log.Change{ID: newID(), Ops: []log.Op{{Action: log.Create, Kind: o.Kind(), Object: o, Set: set}}})
	}
	create(&log.NICTag{Name: "external", MTU: 1500}, "mtu", "name")
	create(&log.NICTag{Name: "gone", MTU: 1500}, "mtu", "name")
	create(&log.Network{
		UUID: id(1), Name: "net", NICTag: "external", VLANID: 5, Subnet: netip.MustParsePrefix("10.1.0.0/24"),
		ProvisionStart: netip.MustParseAddr("10.1.0.10"), ProvisionEnd: netip.MustParseAddr("10.1.0.90"),
	}, "name", "nic_tag", "provision_end_ip", "provision_start_ip", "subnet", "uuid", "vlan_id")
	create(&log.Server{UUID: id(2), Hostname: "cn2", Status: "running"}, "hostname", "status", "uuid")
	create(&log.VM{UUID: id(3), OwnerUUID: id(9), ServerUUID: id(2), State: "running"}, "owner_uuid", "server_uuid", "state", "uuid")
	for i := range byte(5) {
		create(&log.NIC{
			MAC: log.MAC{2, 8, 0, 0, 0, i}, BelongsToType: "zone", BelongsToUUID: id(3), OwnerUUID: id(9), NetworkUUID: id(1), CNUUID: id(2),
		}, "belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "network_uuid", "owner_uuid")
	}
	create(&log.VMM{UUID: id(4), InstanceID: id(3), SledID: id(2), State: "running", Gen: 1}, "gen", "id", "instance_id", "sled_id", "state")
	create(&log.Migration{UUID: id(5), InstanceID: id(3), TargetVMM: id(4), TargetState: "pending", TargetGen: 1},
		"id", "instance_id", "target_gen", "target_propolis_id", "target_state")
	must(t, n, &log.Change{ID: newID(), Ops: []log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: "gone"}}})
	for i := range 3 {
		must(t, n, &log.Change{ID: newID(), Ops: []log.Op{{
			Action: log.Update, Kind: log.KindServer, ID: id(2).String(), Set: []string{"comments"},
			Object: &log.Server{Comments: fmt.Sprintf("rack %d", i)},
		}}})
	}
	var before string
	n.View(func(v View) { before = string(v.State.Dump()) })
	checkFold(t, n.Store)
	n.halt(t)
	n = n.again(t)
	n.View(func(v View) {
		if got := string(v.State.Dump()); got != before {
			t.Errorf("after a restart:\ngot  %s\nwant %s", got, before)
		}
	})
	checkFold(t, n.Store)
}
