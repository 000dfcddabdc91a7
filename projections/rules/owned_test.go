package rules

import (
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// ownedWorld has a compute node with one VM, and a limit of three.
func ownedWorld(t *testing.T) (s *projections.State, cn log.UUID, seq log.Seq) {
	t.Helper()
	s, cn = projections.NewState(), log.UUID{0xcc, 15: 1}
	seq = applyBy(t, s, 0, log.Author{}, log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "uuid"}, Object: &log.Server{UUID: cn, Hostname: "cn"}})
	seq = applyBy(t, s, seq, log.Author{}, log.Op{Action: log.Create, Kind: log.KindSetting, Set: []string{"name", "value"}, Object: &log.Setting{Name: SettingCNMaxVMs, Value: "3"}})
	seq = applyBy(t, s, seq, log.Author{}, vmOf(cn, 1))
	return s, cn, seq
}

func vmOf(cn log.UUID, n byte) log.Op {
	return log.Op{
		Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "state", "uuid"},
		Object: &log.VM{UUID: log.UUID{0xaa, 15: n}, OwnerUUID: log.UUID{1}, ServerUUID: cn, State: "running"},
	}
}

func removeVM(n byte) log.Op {
	return log.Op{Action: log.Delete, Kind: log.KindVM, ID: log.UUID{0xaa, 15: n}.String()}
}

func decideBy(s *projections.State, cn log.UUID, ops ...log.Op) *log.Refusal {
	_, result := Decide(s, &log.Change{ID: log.UUID{9, 6: 0x70}, By: log.Author{Role: log.RoleCN, CN: cn}, Ops: ops})
	return result.Refusal
}

// W1: a compute node makes as many objects as it may own, in one change or in
// many, and no more; what a change deletes makes room; operators are not bound.
func TestObjectsOfACN(t *testing.T) {
	s, cn, seq := ownedWorld(t)
	limited := func(r *log.Refusal) bool {
		return r != nil && r.Code == log.CodeLimit && strings.Contains(r.Message, "limit cn_vms") && strings.Contains(r.Message, "3 vms")
	}
	if r := decideBy(s, cn, vmOf(cn, 2), vmOf(cn, 3)); r != nil {
		t.Errorf("as many as it may: %v", r)
	}
	if r := decideBy(s, cn, vmOf(cn, 2), vmOf(cn, 3), vmOf(cn, 4)); !limited(r) {
		t.Errorf("one more in one change: %v", r)
	}
	seq = applyBy(t, s, seq, log.Author{Role: log.RoleCN, CN: cn}, vmOf(cn, 2), vmOf(cn, 3))
	if r := decideBy(s, cn, vmOf(cn, 4)); !limited(r) {
		t.Errorf("one more in another: %v", r)
	}
	if r := decideBy(s, cn, removeVM(2), vmOf(cn, 4)); r != nil {
		t.Errorf("one in place of another: %v", r)
	}
	if r := decideBy(s, cn, removeVM(2), vmOf(cn, 4), vmOf(cn, 5)); !limited(r) {
		t.Errorf("two in place of one: %v", r)
	}
	if r := decideBy(s, cn, log.Op{Action: log.Update, Kind: log.KindVM, ID: log.UUID{0xaa, 15: 2}.String(), Set: []string{"state"}, Object: &log.VM{State: "stopped"}}); r != nil {
		t.Errorf("an update of what it has: %v", r)
	}
	seq = applyBy(t, s, seq, log.Author{}, vmOf(cn, 4), vmOf(cn, 5))
	if r := decideBy(s, cn, removeVM(2), vmOf(cn, 6)); !limited(r) {
		t.Errorf("it has more than it may by an operator's word, and made another: %v", r)
	}
	// A VM that was another's counts when it comes.
	other := log.UUID{0xcc, 15: 2}
	seq = applyBy(t, s, seq, log.Author{}, vmOf(other, 7))
	applyBy(t, s, seq, log.Author{}, log.Op{Action: log.Create, Kind: log.KindVMM, Object: &log.VMM{UUID: log.UUID{0xbb, 15: 7}, InstanceID: log.UUID{0xaa, 15: 7}, SledID: cn, State: "running", Gen: 1}})
	if r := decideBy(s, cn, log.Op{Action: log.Update, Kind: log.KindVM, ID: log.UUID{0xaa, 15: 7}.String(), Set: []string{"server_uuid"}, Object: &log.VM{ServerUUID: cn}}); !limited(r) {
		t.Errorf("it took another's VM, over its limit: %v", r)
	}
}

// The other limits follow from that of VMs, or stand beside it.
func TestOtherObjectsOfACN(t *testing.T) {
	s, cn, seq := ownedWorld(t)
	vm := log.UUID{0xaa, 15: 1}
	source := log.UUID{0xbb, 14: 1} // of the migrations
	applyBy(t, s, seq, log.Author{}, log.Op{Action: log.Create, Kind: log.KindVMM, Object: &log.VMM{UUID: source, InstanceID: vm, SledID: cn, State: "running", Gen: 1}})
	for _, test := range []struct {
		limit string
		most  int
		op    func(n byte) log.Op
	}{
		{"cn_vmms", 3*vmmsPerVM - 1 /* one is there */, func(n byte) log.Op {
			return log.Op{
				Action: log.Create, Kind: log.KindVMM, Set: []string{"gen", "id", "instance_id", "sled_id", "state"},
				Object: &log.VMM{UUID: log.UUID{0xbb, 15: n}, InstanceID: vm, SledID: cn, State: "running", Gen: 1},
			}
		}},
		{"cn_nics", 3 * nicsPerVM, func(n byte) log.Op {
			return log.Op{
				Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "owner_uuid"},
				Object: &log.NIC{MAC: log.MAC{2, 5: n}, BelongsToType: "zone", BelongsToUUID: vm, CNUUID: cn, OwnerUUID: log.UUID{1}},
			}
		}},
		{"cn_nics", 3 * nicsPerVM, func(n byte) log.Op {
			return log.Op{
				Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "mac", "owner_uuid"},
				Object: &log.NIC{MAC: log.MAC{2, 4: 1, 5: n}, BelongsToType: "server", BelongsToUUID: cn, OwnerUUID: log.UUID{1}},
			}
		}},
		{"vm_migrations", maxMigrationsOfVM, func(n byte) log.Op {
			return log.Op{
				Action: log.Create, Kind: log.KindMigration, Set: []string{"id", "instance_id", "source_gen", "source_propolis_id", "source_state"},
				Object: &log.Migration{UUID: log.UUID{0xdd, 15: n}, InstanceID: vm, SourceVMM: source, SourceState: "pending", SourceGen: 1},
			}
		}},
	} {
		var ops []log.Op
		for i := range test.most {
			ops = append(ops, test.op(byte(i+1)))
		}
		if r := decideBy(s, cn, ops...); r != nil {
			t.Errorf("%s: %d were refused: %v", test.limit, test.most, r)
		}
		if r := decideBy(s, cn, append(ops, test.op(byte(test.most+1)))...); r == nil || r.Code != log.CodeLimit || !strings.Contains(r.Message, test.limit) {
			t.Errorf("%s: one more than %d: %v", test.limit, test.most, r)
		}
	}
}

// Servers of before decide without limits, and do not know the setting. While the
// cluster has not agreed on more, every server decides like them.
func TestObjectsOfACNAreGated(t *testing.T) {
	s, cn, _ := ownedWorld(t)
	s.SetFeature(log.FeatureFirst)
	if r := decideBy(s, cn, vmOf(cn, 2), vmOf(cn, 3), vmOf(cn, 4)); r != nil {
		t.Errorf("feature version 1: %v", r)
	}
	_, result := Decide(s, &log.Change{ID: log.UUID{9, 6: 0x70}, Ops: []log.Op{{
		Action: log.Create, Kind: log.KindSetting, Set: []string{"name", "value"}, Object: &log.Setting{Name: "other", Value: "3"},
	}}})
	if result.Refusal == nil || strings.Contains(result.Refusal.Error(), SettingCNMaxVMs) {
		t.Errorf("feature version 1: %v", result.Refusal)
	}
}

func TestSettingOfObjects(t *testing.T) {
	s, _, seq := ownedWorld(t)
	for _, bad := range []string{"", "0", "-1", "x", "03", "1000001"} {
		_, result := Decide(s, &log.Change{ID: log.UUID{9, 6: 0x70}, Ops: []log.Op{{
			Action: log.Update, Kind: log.KindSetting, ID: SettingCNMaxVMs, Set: []string{"value"}, Object: &log.Setting{Value: bad},
		}}})
		if result.Refusal == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	applyBy(t, s, seq, log.Author{}, log.Op{Action: log.Update, Kind: log.KindSetting, ID: SettingCNMaxVMs, Set: []string{"value"}, Object: &log.Setting{Value: "4"}})
	if got := newDraft(s, &log.Change{}, &byKind).setting(SettingCNMaxVMs); got != "4" {
		t.Errorf("the setting is %q", got)
	}
	if got := newDraft(projections.NewState(), &log.Change{}, &byKind).setting(SettingCNMaxVMs); got != "8192" {
		t.Errorf("by default it is %q", got)
	}
}
