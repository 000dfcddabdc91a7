package netsync

import (
	"net/netip"
	"testing"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// A node with a certificate may not say whose a NIC is. Its other reports of a NIC whose
// VM has another owner on the node than in the log are not refused with that.
func TestOwnerHoldsUpNoState(t *testing.T) {
	m := newModel(t, 1)
	m.faulty, m.bound = false, true
	mac, vm := log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}, log.UUID{0xbb, 15: 1}
	if r := m.operator("a VM of one owner",
		log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "uuid"}, Object: &log.VM{UUID: vm, OwnerUUID: modelOwner, ServerUUID: modelCN}},
		log.Op{
			Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "ip", "mac", "network_uuid", "owner_uuid", "state"},
			Object: &log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: modelOwner, CNUUID: modelCN, NetworkUUID: modelNets[0], IP: netip.MustParseAddr("10.0.0.20"), State: "running"},
		},
	); r != nil {
		t.Fatal(r)
	}
	m.vms[vm] = parse(`{"uuid":%q,"owner_uuid":%q,"state":"stopped"}`, vm, log.UUID{0xaa, 15: 9}).
		With("nics", vmdoc.ArrayValue(parse(`{"mac":%q,"nic_tag":"ext","vlan_id":10,"ips":["10.0.0.20/24"]}`, mac)))
	for range 5 {
		m.follow(1 << 20)
		m.sync.pass(t.Context())
		m.now = m.now.Add(maxPause)
	}
	r, _ := m.state.Get(log.KindNIC, mac.String())
	if nic := r.Object.(*log.NIC); nic.State != "stopped" || nic.OwnerUUID != modelOwner {
		t.Errorf("the log has the NIC %s, of %s; the node: %+v", nic.State, nic.OwnerUUID, m.sync.Status())
	}
}

// TestNICOfAMigration: while a domain that migrates runs on both nodes, its NIC stays where
// the log has placed it, also before its VM is there in the log and where no certificate keeps
// nodes from each other's NICs; and it stays when the node that the domain left knows it no
// more.
func TestNICOfAMigration(t *testing.T) {
	m := newModel(t, 1)
	m.faulty = false
	mac, vm, other := log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}, log.UUID{0xbb, 15: 1}, log.UUID{0xcc, 15: 7}
	if r := m.operator("a VM with a NIC",
		log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "state", "uuid"}, Object: &log.VM{UUID: vm, OwnerUUID: modelOwner, ServerUUID: modelCN, State: "running"}},
		log.Op{
			Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "ip", "mac", "network_uuid", "owner_uuid", "state"},
			Object: &log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: modelOwner, CNUUID: modelCN, NetworkUUID: modelNets[0], IP: netip.MustParseAddr("10.0.0.20"), State: "running"},
		},
	); r != nil {
		t.Fatal(r)
	}
	m.vms[vm] = parse(`{"uuid":%q,"owner_uuid":%q,"state":"running"}`, vm, modelOwner).
		With("nics", vmdoc.ArrayValue(parse(`{"mac":%q,"nic_tag":"ext","vlan_id":10,"ips":["10.0.0.20/24"]}`, mac)))
	m.placed = true
	turns := func() {
		for range 5 {
			m.follow(1 << 20)
			m.sync.pass(t.Context())
			m.now = m.now.Add(maxPause)
		}
	}
	turns()
	if r := m.operator("it moves", log.Op{Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: []string{"cn_uuid"}, Object: &log.NIC{CNUUID: other}}); r != nil { // and the VM follows
		t.Fatal(r)
	}
	stays := func(when string) {
		t.Helper()
		turns()
		r, ok := m.state.Get(log.KindNIC, mac.String())
		if !ok || r.Object.(*log.NIC).CNUUID != other {
			t.Fatalf("%s: the NIC is %+v, in the log %t", when, r.Object, ok)
		}
	}
	stays("while it runs on both")
	delete(m.vms, vm)
	stays("when the domain is gone here")
}

// TestNICThatGoesAtOnce: a VM loses a NIC just after the node has said in the log that it
// runs, and before the node has seen there that it did. It goes from the log all the same.
func TestNICThatGoesAtOnce(t *testing.T) {
	for _, whole := range []bool{false, true} { // the VM goes with it
		m := newModel(t, 1)
		m.faulty = false
		mac, vm := log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}, log.UUID{0xbb, 15: 1}
		if r := m.operator("a VM with a new NIC",
			log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "state", "uuid"}, Object: &log.VM{UUID: vm, OwnerUUID: modelOwner, ServerUUID: modelCN, State: "running"}},
			log.Op{
				Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "ip", "mac", "network_uuid", "owner_uuid", "state"},
				Object: &log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: modelOwner, CNUUID: modelCN, NetworkUUID: modelNets[0], IP: netip.MustParseAddr("10.0.0.20"), State: "provisioning"},
			},
		); r != nil {
			t.Fatal(r)
		}
		bare := parse(`{"uuid":%q,"owner_uuid":%q,"state":"running"}`, vm, modelOwner)
		m.vms[vm] = bare.With("nics", vmdoc.ArrayValue(parse(`{"mac":%q,"nic_tag":"ext","vlan_id":10,"ips":["10.0.0.20/24"]}`, mac)))
		state := func() string {
			if r, ok := m.state.Get(log.KindNIC, mac.String()); ok {
				return r.Object.(*log.NIC).State
			}
			return ""
		}
		for turn := 0; state() != "running"; turn++ {
			if turn == 10 {
				t.Fatal("the node does not say that the NIC runs")
			}
			m.follow(1 << 20)
			m.sync.pass(t.Context())
			m.now = m.now.Add(maxPause)
		}
		m.vms[vm] = bare
		if whole {
			delete(m.vms, vm)
		}
		for range 5 {
			m.follow(1 << 20)
			m.sync.pass(t.Context())
			m.now = m.now.Add(maxPause)
		}
		if got := state(); got != "" {
			t.Errorf("with its VM %t: the NIC is %s in the log, want it gone", whole, got)
		}
	}
}
