package rules

import (
	"strings"
	"testing"

	"rutter/log"
)

// Whose a VM is a node says once, of a VM that it makes. After that it is the operators'.
func TestANodeDoesNotChangeAnOwner(t *testing.T) {
	w := newPlacementWorld(t)
	w.by(w.cn, madeVM(9, w.cn))
	for _, n := range []byte{1, 9} {
		op := updateOf(vmNo(n).String(), &log.VM{OwnerUUID: log.UUID{2}, State: "stopped"}, "owner_uuid", "state")
		if r := decideBy(w.s, w.cn, op); r == nil || !strings.Contains(r.Error(), "may not write these fields") {
			t.Errorf("VM %d: %v", n, r)
		}
		op.Object.(*log.VM).OwnerUUID = tenant // as it is
		if r := decideBy(w.s, w.cn, op); r != nil {
			t.Errorf("VM %d with the owner that it has: %v", n, r)
		}
		w.do(updateOf(vmNo(n).String(), &log.VM{OwnerUUID: log.UUID{2}}, "owner_uuid"))
	}
}

// A VM that leaves its node, and is placed on another one later, leaves no NIC behind, and
// the node that it left cannot write them.
func TestAVMMovesInTwoSteps(t *testing.T) {
	w := newPlacementWorld(t)
	third := log.UUID{0xcc, 15: 3}
	w.do(placedNIC(8, vmNo(2), third, log.UUID{}, "")) // stays where an operator placed it
	for _, to := range []log.UUID{{}, w.cn} {
		w.do(takeVM(2, to))
		for n, want := range map[byte]log.UUID{2: to, 3: to, 4: to, 8: third} { // 3: on a fabric
			r, _ := w.s.Get(log.KindNIC, macNo(n).String())
			if got := r.Object.(*log.NIC).CNUUID; got != want {
				t.Errorf("the VM is on %s, its NIC %d on %s, want %s", to, n, got, want)
			}
		}
		c := &log.Change{ID: log.UUID{9, 6: 0x70}, By: log.Author{Role: log.RoleCN, CN: w.other}, Ops: []log.Op{updateOf(macNo(2).String(), &log.NIC{State: "stopped"}, "state")}}
		if _, result := Decide(w.s, c); result.Refusal == nil {
			t.Errorf("the VM is on %s, and the node that it left writes its NIC", to)
		}
	}
}

// A node names a pool as it names a network: it gets an address on a network of the pool
// that is open to it. A pool without such a network is the same to it as none.
func TestANodeNamesAPool(t *testing.T) {
	w := newPlacementWorld(t)
	both, closed := log.UUID{0xef, 15: 1}, log.UUID{0xef, 15: 2}
	w.do(opOf(log.Create, &log.NetworkPool{UUID: both, Name: "both", Networks: []log.UUID{closedNet, externalNet}}, "name", "networks", "uuid"))
	w.do(opOf(log.Create, &log.NetworkPool{UUID: closed, Name: "closed", Networks: []log.UUID{closedNet}}, "name", "networks", "uuid"))
	w.by(w.cn, placedNIC(9, vmNo(1), w.cn, both, ""))
	r, _ := w.s.Get(log.KindNIC, macNo(9).String())
	if n := r.Object.(*log.NIC); n.NetworkUUID != externalNet || !n.IP.IsValid() {
		t.Errorf("the NIC is on network %s at %s", n.NetworkUUID, n.IP)
	}
	there, gone := decideBy(w.s, w.cn, placedNIC(10, vmNo(1), w.cn, closed, "")), decideBy(w.s, w.cn, placedNIC(10, vmNo(1), w.cn, log.UUID{0xef, 15: 9}, ""))
	if there == nil || gone == nil || there.Error() != gone.Error() || !strings.Contains(there.Error(), denied) {
		t.Errorf("of a closed pool: %v\nof none: %v", there, gone)
	}
	// A pool does not lead past an open network that is full.
	w.do(updateOf(externalNet.String(), &log.Network{ProvisionStart: addr("10.2.0.1"), ProvisionEnd: addr("10.2.0.4")}, "provision_end_ip", "provision_start_ip"))
	if r := decideBy(w.s, w.cn, placedNIC(10, vmNo(1), w.cn, both, "")); r == nil || r.Code != log.CodeSubnetFull {
		t.Errorf("with a closed network that has room: %v", r)
	}
}

// Two compute nodes are not reached at one address: the second is refused, whichever author
// writes it. One that does not come back keeps none.
func TestAnAddressReachesOneNode(t *testing.T) {
	w := newPlacementWorld(t)
	reach := func(cn log.UUID, ip string) log.Op {
		return updateOf(cn.String(), &log.Server{AdminIP: addr(ip)}, "admin_ip")
	}
	w.do(reach(w.other, "10.4.0.9"))
	for _, ip := range []string{"10.4.0.9", "::ffff:10.4.0.9"} {
		if _, result := Decide(w.s, &log.Change{ID: log.UUID{9, 6: 0x70}, Ops: []log.Op{reach(w.cn, ip)}}); result.Refusal == nil || !strings.Contains(result.Refusal.Error(), "reached at it") {
			t.Errorf("%s for a second node: %v", ip, result.Refusal)
		}
	}
	w.do(reach(w.cn, "10.4.0.8"), reach(w.other, "10.4.0.7"), reach(w.cn, "10.4.0.9"))
	w.do(updateOf(w.other.String(), &log.Server{Status: "expunged"}, "status"), reach(w.cn, "10.4.0.7"))
	if _, result := Decide(w.s, &log.Change{ID: log.UUID{9, 6: 0x70}, Ops: []log.Op{updateOf(w.other.String(), &log.Server{Status: "running"}, "status")}}); result.Refusal == nil {
		t.Error("a node comes back at an address that is another's now")
	}
	w.s.SetFeature(log.FeatureContained)
	w.do(reach(w.other, "10.4.0.7"))
}

// An address at which another node is reached is not chosen either, when a node, or an
// operator, leaves the choice to the log.
func TestNoAddressOfAnAgentIsChosen(t *testing.T) {
	w := newPlacementWorld(t)
	w.do(updateOf(w.other.String(), &log.Server{AdminIP: addr("10.4.0.2")}, "admin_ip"))
	op := hostNICAt(10, w.cn, adminNet, "")
	op.Set = []string{"belongs_to_type", "belongs_to_uuid", "mac", "network_uuid", "owner_uuid", "state"}
	w.by(w.cn, op)
	if r, _ := w.s.Get(log.KindNIC, macNo(10).String()); r.Object.(*log.NIC).IP != addr("10.4.0.3") {
		t.Errorf("the node got %s", r.Object.(*log.NIC).IP)
	}
}
