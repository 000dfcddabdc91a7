package netsync

import (
	"testing"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// TestReleaseOfAnother: a NIC that was deleted and made again for another VM has
// the revision of the one before, and is not released with the VM of that.
func TestReleaseOfAnother(t *testing.T) {
	m := newModel(t, 1)
	m.faulty = false
	mac := log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}
	first, second := log.UUID{0xbb, 15: 1}, log.UUID{0xbb, 15: 2}
	m.vms[first] = parse(`{"uuid":%q,"owner_uuid":%q,"state":"running"}`, first, modelOwner).
		With("nics", vmdoc.ArrayValue(parse(`{"mac":%q,"nic_tag":"ext","vlan_id":10,"ips":["10.0.0.9/24"]}`, mac)))
	turns := func(n int) {
		for range n {
			m.sync.pass(t.Context())
			m.now = m.now.Add(maxPause)
		}
	}
	for range 5 {
		m.follow(1 << 20)
		turns(1)
	}
	held, ok := m.state.Get(log.KindNIC, mac.String())
	if claim := m.sync.core.ledger.claims[mac]; !ok || claim == nil || !claim.Held {
		t.Fatalf("the NIC is not in the log, or not this node's: %+v", m.sync.Status())
	}
	nic := log.Op{
		Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "owner_uuid", "state"},
		Object: &log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: second, OwnerUUID: modelOwner, CNUUID: modelCN, State: "running"},
	}
	if r := m.operator("the NIC goes to another VM", log.Op{Action: log.Delete, Kind: log.KindNIC, ID: mac.String()}, nic); r != nil {
		t.Fatal(r)
	}
	for n := log.Revision(1); n < held.Revision; n++ {
		touch := log.Op{Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: []string{"model"}, Object: &log.NIC{Model: string(rune('a' + n))}}
		if r := m.operator("touch", touch); r != nil {
			t.Fatal(r)
		}
	}
	if now, _ := m.state.Get(log.KindNIC, mac.String()); now.Revision != held.Revision {
		t.Fatalf("the new NIC is at revision %d, the old one at %d: the test shows nothing", now.Revision, held.Revision)
	}
	delete(m.vms, first)
	turns(3) // the node does not know of it yet
	for range 5 {
		m.follow(1 << 20)
		turns(1)
	}
	if now, ok := m.state.Get(log.KindNIC, mac.String()); !ok || now.Object.(*log.NIC).BelongsToUUID != second {
		t.Errorf("the other VM's NIC was released: %+v", m.sync.Status())
	}
	if claim := m.sync.core.ledger.claims[mac]; claim != nil {
		t.Errorf("the node still claims it: %+v", claim)
	}
}
