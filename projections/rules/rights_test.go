package rules

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// The rights of CNs name fields that there are, sorted, and none of identity or place
// that a CN could take from others with.
func TestOwnRightsAreFields(t *testing.T) {
	for _, kind := range log.Kinds() {
		rights := kind.Describe().CN
		if rights == nil {
			continue
		}
		names := log.FieldNames(kind)
		for _, fields := range [][]string{rights.Create, rights.Update} {
			for _, field := range fields {
				if !slices.Contains(names, field) {
					t.Errorf("%s has no field %q", kind, field)
				}
			}
			if !slices.IsSorted(fields) || rights.Why == "" {
				t.Errorf("%s: fields %q are not sorted, or nothing says why (%q)", kind, fields, rights.Why)
			}
		}
	}
	for _, kind := range log.Kinds() {
		if kind.Describe().CN != nil && kind.Describe().Guarded {
			t.Errorf("%s says who may do what, and a CN may write it", kind)
		}
	}
}

// rightsWorld has two CNs, each with a VM, a NIC and a VMM, and a VM of the second
// of which the first has a registered VMM.
func rightsWorld(t *testing.T) (s *projections.State, mine, other log.UUID) {
	t.Helper()
	s = projections.NewState()
	mine, other = log.UUID{0xcc, 15: 1}, log.UUID{0xcc, 15: 2}
	seq := log.Seq(0)
	do := func(ops ...log.Op) {
		t.Helper()
		seq = applyBy(t, s, seq, log.Author{}, ops...)
	}
	for i, cn := range []log.UUID{mine, other} {
		n := byte(i + 1)
		do(log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "uuid"}, Object: &log.Server{UUID: cn, Hostname: "cn"}})
		do(log.Op{Action: log.Create, Kind: log.KindVM, Object: &log.VM{UUID: log.UUID{0xaa, 15: n}, OwnerUUID: log.UUID{1}, ServerUUID: cn, State: "running"}})
		do(log.Op{Action: log.Create, Kind: log.KindVMM, Object: &log.VMM{UUID: log.UUID{0xbb, 15: n}, InstanceID: log.UUID{0xaa, 15: n}, SledID: cn, State: "running", Gen: 1}})
		do(log.Op{Action: log.Create, Kind: log.KindNIC, Object: &log.NIC{
			MAC: log.MAC{2, 5: n}, BelongsToType: "server", BelongsToUUID: cn, OwnerUUID: log.UUID{1}, State: "running",
		}})
	}
	return s, mine, other
}

// applyBy decides a change of an author, which must be accepted, and applies it.
func applyBy(t *testing.T, s *projections.State, seq log.Seq, by log.Author, ops ...log.Op) log.Seq {
	t.Helper()
	events, result := Decide(s, &log.Change{ID: log.UUID{1, byte(seq), 6: 0x70, 8: 0x80, 15: 1}, By: by, Time: 1, Seed: 1, Ops: ops})
	if result.Refusal != nil {
		t.Fatalf("refused: %v", result.Refusal)
	}
	for _, e := range events {
		seq++
		if _, err := s.Apply(seq, e); err != nil {
			t.Fatal(err)
		}
	}
	return seq
}

func TestWhatACNMayWrite(t *testing.T) {
	s, mine, other := rightsWorld(t)
	update := func(kind log.Kind, id string, o log.Object, set ...string) log.Op {
		return log.Op{Action: log.Update, Kind: kind, ID: id, Set: set, Object: o}
	}
	uuid := func(first, last byte) string { return log.UUID{first, 15: last}.String() }
	cases := []struct {
		name string
		op   log.Op
		want string // what the refusal says; "": accepted
	}{
		{"its own platform", update(log.KindServer, mine.String(), &log.Server{CurrentPlatform: "x"}, "current_platform"), ""},
		{"its own status", update(log.KindServer, mine.String(), &log.Server{Status: "running"}, "status"), "status"},
		{"its own hostname and sysinfo", update(log.KindServer, mine.String(), &log.Server{Hostname: "x", Sysinfo: "{}"}, "hostname", "sysinfo"), ""},
		{"where servers post to it", update(log.KindServer, mine.String(), &log.Server{AdminIP: netip.MustParseAddr("192.0.2.1")}, "admin_ip"), "admin_ip"},
		{"its own comments and platform", update(log.KindServer, mine.String(), &log.Server{Comments: "x", CurrentPlatform: "y"}, "comments", "current_platform"), "comments"},
		{"another's platform", update(log.KindServer, other.String(), &log.Server{CurrentPlatform: "x"}, "current_platform"), "not one of compute node"},
		{"a server that is not there", update(log.KindServer, uuid(0xcc, 9), &log.Server{CurrentPlatform: "x"}, "current_platform"), "not one of compute node"},
		{"another server", log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"uuid"}, Object: &log.Server{UUID: log.UUID{7}}}, "not one of compute node"},
		{"its own end", log.Op{Action: log.Delete, Kind: log.KindServer, ID: mine.String()}, "may not delete"},
		{"its VM", update(log.KindVM, uuid(0xaa, 1), &log.VM{State: "stopped"}, "state"), ""},
		{"its VM, given away", update(log.KindVM, uuid(0xaa, 1), &log.VM{ServerUUID: other}, "server_uuid"), "not one of compute node"},
		{"another's VM", update(log.KindVM, uuid(0xaa, 2), &log.VM{State: "stopped"}, "state"), "not one of compute node"},
		{"another's VM, taken", update(log.KindVM, uuid(0xaa, 2), &log.VM{ServerUUID: mine}, "server_uuid"), "not one of compute node"},
		{"another's VM, deleted", log.Op{Action: log.Delete, Kind: log.KindVM, ID: uuid(0xaa, 2)}, "not one of compute node"},
		{"a VM of its own", log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "uuid"}, Object: &log.VM{UUID: log.UUID{0xaa, 15: 8}, OwnerUUID: log.UUID{1}, ServerUUID: mine}}, ""},
		{"a VM for another", log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "uuid"}, Object: &log.VM{UUID: log.UUID{0xaa, 15: 8}, OwnerUUID: log.UUID{1}, ServerUUID: other}}, "not one of compute node"},
		{"its VMM", update(log.KindVMM, uuid(0xbb, 1), &log.VMM{State: "stopped", Gen: 2}, "gen", "state"), ""},
		{"another's VMM", update(log.KindVMM, uuid(0xbb, 2), &log.VMM{State: "stopped", Gen: 2}, "gen", "state"), "not one of compute node"},
		{"a VMM of another's VM", log.Op{Action: log.Create, Kind: log.KindVMM, Set: []string{"gen", "id", "instance_id", "sled_id", "state"}, Object: &log.VMM{UUID: log.UUID{0xbb, 15: 8}, InstanceID: log.UUID{0xaa, 15: 2}, SledID: mine, State: "running", Gen: 1}}, "not one of compute node"},
		{"its NIC's state", update(log.KindNIC, log.MAC{2, 5: 1}.String(), &log.NIC{State: "stopped"}, "state"), ""},
		{"its NIC's spoofing", update(log.KindNIC, log.MAC{2, 5: 1}.String(), &log.NIC{AllowMACSpoofing: true}, "allow_mac_spoofing"), ""},
		{"its NIC's address", update(log.KindNIC, log.MAC{2, 5: 1}.String(), &log.NIC{NICTagsProvided: []string{"x"}, Underlay: true}, "underlay"), "underlay"},
		{"its NIC, given away", update(log.KindNIC, log.MAC{2, 5: 1}.String(), &log.NIC{CNUUID: other}, "cn_uuid"), "not one of compute node"},
		{"a NIC for another's VM", nicOf(2, mine), "not one of compute node"},
		{"a NIC of its VM, elsewhere", nicOf(1, other), "not one of compute node"},
		{"a NIC of its VM", nicOf(1, mine), ""},
		{"another's NIC", update(log.KindNIC, log.MAC{2, 5: 2}.String(), &log.NIC{State: "stopped"}, "state"), "not one of compute node"},
		{"its own NIC, made its VM's", update(log.KindNIC, log.MAC{2, 5: 1}.String(), &log.NIC{BelongsToType: "zone"}, "belongs_to_type"), "belongs_to_type"},
		{"another NIC of its own", hostNIC(mine), ""},
		{"a NIC of another CN", hostNIC(other), "not one of compute node"},
		{"a bond of its own", bond(1), ""},
		{"a bond of another's NIC", bond(2), "not one of compute node"},
		{"a NIC tag", log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: "x"}}, "may not write a nic_tag"},
		{"a side of a migration that is another's", log.Op{Action: log.Create, Kind: log.KindMigration, Set: []string{"id", "instance_id", "source_gen", "source_propolis_id", "source_state"}, Object: &log.Migration{UUID: log.UUID{0xdd}, InstanceID: log.UUID{0xaa, 15: 1}, SourceVMM: log.UUID{0xbb, 15: 2}, SourceGen: 1, SourceState: "pending"}}, "not one of compute node"},
		{"its side of a migration", log.Op{Action: log.Create, Kind: log.KindMigration, Set: []string{"id", "instance_id", "source_gen", "source_propolis_id", "source_state"}, Object: &log.Migration{UUID: log.UUID{0xdd}, InstanceID: log.UUID{0xaa, 15: 1}, SourceVMM: log.UUID{0xbb, 15: 1}, SourceGen: 1, SourceState: "pending"}}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			change := &log.Change{ID: log.UUID{9, 6: 0x70, 8: 0x80}, By: log.Author{Role: log.RoleCN, CN: mine}, Time: 1, Seed: 1, Ops: []log.Op{c.op}}
			_, result := Decide(s, change)
			switch {
			case c.want == "" && result.Refusal != nil:
				t.Errorf("refused: %v", result.Refusal)
			case c.want != "" && result.Refusal == nil:
				t.Error("accepted")
			case c.want != "" && (result.Refusal.Code != log.CodeNotAuthorized || !strings.Contains(result.Refusal.Error(), c.want)):
				t.Errorf("refused with %v, want %s about %q", result.Refusal, log.CodeNotAuthorized, c.want)
			}
			for _, role := range []log.Role{log.RoleReader, 99} {
				change.By = log.Author{Role: role}
				if _, result := Decide(s, change); result.Refusal == nil || result.Refusal.Code != log.CodeNotAuthorized {
					t.Errorf("role %s got %v, want a refusal", role, result.Refusal)
				}
			}
		})
	}
}

// hostNIC makes a NIC of a CN itself.
func hostNIC(cn log.UUID) log.Op {
	return log.Op{Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "mac", "nic_tags_provided", "owner_uuid", "state"}, Object: &log.NIC{
		MAC: log.MAC{2, 5: 79}, BelongsToType: "server", BelongsToUUID: cn, OwnerUUID: log.UUID{1}, State: "running",
	}}
}

// bond makes an aggregation of the NIC of CN n.
func bond(n byte) log.Op {
	return log.Op{Action: log.Create, Kind: log.KindAggregation, Set: []string{"macs", "name"}, Object: &log.Aggregation{Name: "aggr0", MACs: []log.MAC{{2, 5: n}}}}
}

// A CN brings a NIC of its own onto the admin network, and onto no other by itself;
// where one that carries VXLAN is stays the operators'.
func TestACNsOwnNICs(t *testing.T) {
	s, mine, _ := rightsWorld(t)
	seq := log.Seq(300)
	for i, tag := range []string{"admin", "external"} {
		seq = applyBy(t, s, seq, log.Author{}, log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: tag}})
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 24)
		seq = applyBy(t, s, seq, log.Author{}, log.Op{
			Action: log.Create, Kind: log.KindNetwork, Set: []string{"name", "nic_tag", "provision_end_ip", "provision_start_ip", "subnet", "uuid"},
			Object: &log.Network{
				UUID: log.UUID{0xee, byte(i + 1)}, Name: tag, NICTag: tag, Subnet: prefix,
				ProvisionStart: netip.AddrFrom4([4]byte{10, byte(i), 0, 2}), ProvisionEnd: netip.AddrFrom4([4]byte{10, byte(i), 0, 200}),
			},
		})
	}
	place := func(mac log.MAC, tag string, ip string) log.Op {
		return log.Op{
			Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: []string{"ip", "nic_tag", "vlan_id"},
			Object: &log.NIC{NICTag: tag, IP: netip.MustParseAddr(ip)},
		}
	}
	decide := func(op log.Op) *log.Refusal {
		_, result := Decide(s, &log.Change{ID: log.UUID{9, 6: 0x70, 8: 0x80}, By: log.Author{Role: log.RoleCN, CN: mine}, Time: 1, Seed: 1, Ops: []log.Op{op}})
		return result.Refusal
	}
	mac := log.MAC{2, 5: 1}
	provides := log.Op{Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: []string{"nic_tags_provided"}, Object: &log.NIC{NICTagsProvided: []string{"external"}}}
	if r := decide(provides); r != nil {
		t.Errorf("the tags that it provides: refused: %v", r)
	}
	if r := decide(place(mac, "admin", "10.0.0.9")); r != nil {
		t.Errorf("the admin network: refused: %v", r)
	}
	if r := decide(place(mac, "external", "10.1.0.9")); r == nil || r.Code != log.CodeNotAuthorized {
		t.Errorf("another network: %v, want a refusal", r)
	}
	applyBy(t, s, seq, log.Author{}, log.Op{Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: []string{"underlay"}, Object: &log.NIC{Underlay: true}})
	if r := decide(place(mac, "admin", "10.0.0.9")); r == nil || r.Code != log.CodeNotAuthorized {
		t.Errorf("one that carries VXLAN: %v, want a refusal", r)
	}
}

// nicOf makes a NIC without a network for VM n.
func nicOf(n byte, cn log.UUID) log.Op {
	return log.Op{Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "owner_uuid", "state"}, Object: &log.NIC{
		MAC: log.MAC{2, 5: 77}, BelongsToType: "zone", BelongsToUUID: log.UUID{0xaa, 15: n}, OwnerUUID: log.UUID{1}, CNUUID: cn, State: "running",
	}}
}

// A CN does not let itself into a network.
func TestACNMakesNoNICOnANetworkThatItIsNotOn(t *testing.T) {
	s, mine, _ := rightsWorld(t)
	network := log.UUID{0xee}
	seq := applyBy(t, s, 200, log.Author{}, log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: "external"}})
	seq = applyBy(t, s, seq, log.Author{}, log.Op{
		Action: log.Create, Kind: log.KindNetwork, Set: []string{"name", "nic_tag", "provision_end_ip", "provision_start_ip", "subnet", "uuid"},
		Object: &log.Network{
			UUID: network, Name: "n", NICTag: "external", Subnet: netip.MustParsePrefix("10.0.0.0/24"),
			ProvisionStart: netip.MustParseAddr("10.0.0.2"), ProvisionEnd: netip.MustParseAddr("10.0.0.200"),
		},
	})
	op := nicOf(1, mine)
	op.Object.(*log.NIC).NetworkUUID = network
	op.Set = append(op.Set, "network_uuid")
	change := &log.Change{ID: log.UUID{9, 6: 0x70, 8: 0x80}, By: log.Author{Role: log.RoleCN, CN: mine}, Time: 1, Seed: 1, Ops: []log.Op{op}}
	if _, result := Decide(s, change); result.Refusal == nil || result.Refusal.Code != log.CodeNotAuthorized {
		t.Errorf("got %v, want a refusal", result.Refusal)
	}
	// An operator puts one of its NICs there; more may follow.
	first := nicOf(1, mine)
	first.Object.(*log.NIC).NetworkUUID, first.Object.(*log.NIC).MAC = network, log.MAC{2, 5: 78}
	first.Set = append(first.Set, "network_uuid")
	applyBy(t, s, seq, log.Author{}, first)
	if _, result := Decide(s, change); result.Refusal != nil {
		t.Errorf("refused: %v", result.Refusal)
	}
}

// A VM may come to a CN on which an operator registered a VMM of it.
func TestACNTakesAVMThatWasSentToIt(t *testing.T) {
	s, mine, other := rightsWorld(t)
	vm := log.UUID{0xaa, 15: 2}
	applyBy(t, s, 100, log.Author{}, log.Op{Action: log.Create, Kind: log.KindVMM, Object: &log.VMM{UUID: log.UUID{0xbb, 15: 7}, InstanceID: vm, SledID: mine, State: "creating", Gen: 1}})
	applyBy(t, s, 101, log.Author{Role: log.RoleCN, CN: mine},
		log.Op{Action: log.Update, Kind: log.KindVM, ID: vm.String(), Set: []string{"server_uuid"}, Object: &log.VM{ServerUUID: mine}})
	got, _ := s.Get(log.KindVM, vm.String())
	if on := got.Object.(*log.VM).ServerUUID; on != mine || on == other {
		t.Errorf("the VM is on %s, want %s", on, mine)
	}
}

// TestKindsAreInOrder: there are rules of each kind that log knows, in the order of their
// numbers, with the words that refusals need.
func TestKindsAreInOrder(t *testing.T) {
	for i, kind := range log.Kinds() {
		r := byKind[kind]
		if kind != log.Kind(i+1) || r == nil || r.Name != kind.String() || r.IDField == "" || r.Noun == "" || r.Title == "" || r.special == nil {
			t.Errorf("at %d stands %+v", i, r)
		}
	}
	for kind := range log.Kind(255) {
		if kind.Known() != (byKind[kind] != nil) {
			t.Errorf("%s is known to log, or has rules, but not both", kind)
		}
	}
}
