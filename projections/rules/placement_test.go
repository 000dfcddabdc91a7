package rules

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// placementWorld is two compute nodes with a VM each. The second is on a fabric, and both
// are on the network "external".
type placementWorld struct {
	t         *testing.T
	s         *projections.State
	seq       log.Seq
	cn, other log.UUID // the node that lies, and another
}

var (
	fabricNet   = log.UUID{0xee, 15: 1}
	externalNet = log.UUID{0xee, 15: 2}
	closedNet   = log.UUID{0xee, 15: 3} // the second node's
	adminNet    = log.UUID{0xee, 15: 4}
	tenant      = log.UUID{1}
)

func vmNo(n byte) log.UUID  { return log.UUID{0xaa, 15: n} }
func vmmNo(n byte) log.UUID { return log.UUID{0xbb, 15: n} }
func macNo(n byte) log.MAC  { return log.MAC{2, 5: n} }
func addr(text string) (ip netip.Addr) {
	if text != "" {
		ip = netip.MustParseAddr(text)
	}
	return ip
}

func newPlacementWorld(t *testing.T) *placementWorld {
	t.Helper()
	w := &placementWorld{t: t, s: projections.NewState(), cn: log.UUID{0xcc, 15: 1}, other: log.UUID{0xcc, 15: 2}}
	for _, tag := range []string{"admin", "external", "overlay"} {
		w.do(opOf(log.Create, &log.NICTag{Name: tag}, "name"))
	}
	for i, n := range []*log.Network{
		{UUID: fabricNet, Name: "fabric", NICTag: "overlay", Fabric: true, VNetID: 7, VLANID: 4, OwnerUUIDs: []log.UUID{tenant}, Gateway: addr("10.1.0.1")},
		{UUID: externalNet, Name: "external", NICTag: "external", Gateway: addr("10.2.0.1"), Resolvers: []netip.Addr{addr("10.2.0.20")}},
		{UUID: closedNet, Name: "closed", NICTag: "external", VLANID: 9},
		{UUID: adminNet, Name: "admin", NICTag: "admin", Gateway: addr("10.4.0.1")},
	} {
		n.Subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i + 1)}), 24)
		n.ProvisionStart, n.ProvisionEnd = netip.AddrFrom4([4]byte{10, byte(i + 1), 0, 1}), netip.AddrFrom4([4]byte{10, byte(i + 1), 0, 99})
		w.do(log.Op{Action: log.Create, Kind: log.KindNetwork, Object: n, Set: []string{"provision_end_ip", "provision_start_ip", "resolvers", "subnet"}})
	}
	for i, cn := range []log.UUID{w.cn, w.other} {
		n := byte(i + 1)
		w.do(opOf(log.Create, &log.Server{UUID: cn, Hostname: "cn"}, "hostname", "uuid"))
		w.do(opOf(log.Create, &log.VM{UUID: vmNo(n), OwnerUUID: tenant, ServerUUID: cn, State: "running"}))
		w.do(opOf(log.Create, &log.NIC{MAC: macNo(n), BelongsToType: "zone", BelongsToUUID: vmNo(n), OwnerUUID: tenant, NetworkUUID: externalNet, CNUUID: cn, State: "running"}))
		w.do(opOf(log.Create, &log.VMM{UUID: vmmNo(n), InstanceID: vmNo(n), SledID: cn, State: "running", Gen: 1}))
	}
	w.do(placedNIC(3, vmNo(2), w.other, fabricNet, "10.1.0.9"), placedNIC(4, vmNo(2), w.other, closedNet, "10.3.0.9"))
	return w
}

// do does an operator's operations.
func (w *placementWorld) do(ops ...log.Op) {
	w.t.Helper()
	w.seq = applyBy(w.t, w.s, w.seq, log.Author{}, ops...)
}

// by does operations of a compute node, which must be accepted.
func (w *placementWorld) by(cn log.UUID, ops ...log.Op) {
	w.t.Helper()
	w.seq = applyBy(w.t, w.s, w.seq, log.Author{Role: log.RoleCN, CN: cn}, ops...)
}

func opOf(action log.Action, o log.Object, set ...string) log.Op {
	return log.Op{Action: action, Kind: o.Kind(), Set: set, Object: o}
}

func updateOf(id string, o log.Object, set ...string) log.Op {
	op := opOf(log.Update, o, set...)
	op.ID = id
	return op
}

// placedNIC makes a NIC of a VM; no network: none; no ip: one is chosen.
func placedNIC(n byte, vm, cn, network log.UUID, ip string) log.Op {
	nic := &log.NIC{MAC: macNo(n), BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: tenant, CNUUID: cn, NetworkUUID: network, IP: addr(ip), State: "running"}
	set := []string{"belongs_to_type", "belongs_to_uuid", "mac", "owner_uuid", "state"}
	if !cn.IsZero() {
		set = append(set, "cn_uuid")
	}
	if !network.IsZero() {
		set = append(set, "network_uuid")
	}
	if ip != "" {
		set = append(set, "ip")
	}
	return opOf(log.Create, nic, set...)
}

func madeVM(n byte, cn log.UUID) log.Op {
	return opOf(log.Create, &log.VM{UUID: vmNo(n), OwnerUUID: tenant, ServerUUID: cn, State: "running"}, "owner_uuid", "server_uuid", "state", "uuid")
}

func madeVMM(n byte, vm, cn log.UUID) log.Op {
	return opOf(log.Create, &log.VMM{UUID: vmmNo(n), InstanceID: vm, SledID: cn, State: "running", Gen: 1}, "gen", "id", "instance_id", "sled_id", "state")
}

func hostNICAt(n byte, cn, network log.UUID, ip string) log.Op {
	return opOf(log.Create, &log.NIC{MAC: macNo(n), BelongsToType: "server", BelongsToUUID: cn, OwnerUUID: tenant, NetworkUUID: network, IP: addr(ip), State: "running"},
		"belongs_to_type", "belongs_to_uuid", "ip", "mac", "network_uuid", "owner_uuid", "state")
}

func taskFor(n byte, cn log.UUID, name, vm string) log.Op {
	return opOf(log.Create, &log.Task{UUID: log.UUID{0xdd, 15: n}, ServerUUID: cn, Task: name, Params: `{"uuid":"` + vm + `"}`}, "id", "params", "server_uuid", "task")
}

func takeNIC(n byte, cn log.UUID) log.Op {
	return updateOf(macNo(n).String(), &log.NIC{CNUUID: cn}, "cn_uuid")
}

func takeVM(n byte, cn log.UUID) log.Op {
	return updateOf(vmNo(n).String(), &log.VM{ServerUUID: cn}, "server_uuid")
}

const denied = "is not one of compute node"

// Each attack of a compute node on what others have been given, with what an operator or
// another did before. As the first programs and feature version 2 decided it, those of
// before are accepted.
func TestPlacementIsAnOperatorsAct(t *testing.T) {
	noCN := log.UUID{}
	for _, c := range []struct {
		name   string
		setup  func(w *placementWorld)
		ops    func(w *placementWorld) []log.Op // of the lying node, one change
		want   string                           // of the refusal; "": accepted
		before bool                             // feature version 2 accepted it
	}{
		{
			"a VM of which a NIC of another node is there", func(w *placementWorld) { w.do(placedNIC(9, vmNo(9), w.other, fabricNet, "")) },
			func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true,
		},
		{
			"and its NIC", func(w *placementWorld) { w.do(placedNIC(9, vmNo(9), w.other, fabricNet, "")); w.squat(9) },
			func(w *placementWorld) []log.Op { return []log.Op{takeNIC(9, w.cn)} }, denied, true,
		},
		{
			"both in one change", func(w *placementWorld) { w.do(placedNIC(9, vmNo(9), w.other, fabricNet, "")) },
			func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn), takeNIC(9, w.cn)} }, denied, true,
		},
		{
			"a VM of which a NIC is there that is on no node", func(w *placementWorld) { w.do(placedNIC(9, vmNo(9), noCN, externalNet, "")) },
			func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true,
		},
		{
			"a VM of which another's VMM is there", func(w *placementWorld) { w.do(madeVMM(9, vmNo(9), w.other)) },
			func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true,
		},
		{"a VM of which another's VMM has ended", func(w *placementWorld) {
			op := madeVMM(9, vmNo(9), w.other)
			op.Object.(*log.VMM).State = "failed"
			w.do(op)
		}, func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true},
		{
			"a VM that a task makes elsewhere", func(w *placementWorld) { w.do(taskFor(1, w.other, createMachine, vmNo(9).String())) },
			func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true,
		},
		{"a VM that a task here only asks for", func(w *placementWorld) {
			w.do(placedNIC(9, vmNo(9), noCN, externalNet, ""), taskFor(1, w.cn, "machine_load", vmNo(9).String()))
		}, func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true},
		{"a VM whose task here failed", func(w *placementWorld) {
			w.do(placedNIC(9, vmNo(9), noCN, externalNet, ""), taskFor(1, w.cn, createMachine, vmNo(9).String()))
			w.do(updateOf(log.UUID{0xdd, 15: 1}.String(), &log.Task{Status: log.TaskFailure, Failure: "x"}, "failure", "status"))
		}, func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true},
		{"a VM that is migrated", func(w *placementWorld) {
			w.do(opOf(log.Create, &log.Migration{UUID: log.UUID{0xdd}, InstanceID: vmNo(9), SourceVMM: vmmNo(2), SourceGen: 1, SourceState: "pending"}))
		}, func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true},
		{"a VM to which an address belongs", func(w *placementWorld) {
			w.do(opOf(log.Create, &log.IP{NetworkUUID: externalNet, IP: addr("10.2.0.50"), BelongsToType: "zone", BelongsToUUID: vmNo(9), OwnerUUID: tenant}, "ip", "network_uuid"))
		}, func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true},
		{"a VM for which a ticket of another node waits", func(w *placementWorld) {
			w.do(opOf(log.Create, &log.Ticket{UUID: log.UUID{0xdd}, ServerUUID: w.other, Scope: "vm", OfID: vmNo(9).String()}))
		}, func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn)} }, denied, true},
		{"a VMM of a VM that is not there yet", nil, func(w *placementWorld) []log.Op { return []log.Op{madeVMM(9, vmNo(9), w.cn)} }, denied, true},
		{"a VM by a VMM that the node made before it was there", func(w *placementWorld) {
			w.s.SetFeature(log.FeatureContained)
			w.by(w.cn, madeVMM(9, vmNo(9), w.cn))
			w.s.SetFeature(log.FeatureVersion)
			w.do(madeVM(9, w.other))
		}, func(w *placementWorld) []log.Op { return []log.Op{takeVM(9, w.cn)} }, denied, true},
		{
			"a VM that is not placed", func(w *placementWorld) { w.do(opOf(log.Create, &log.VM{UUID: vmNo(9), OwnerUUID: tenant})) },
			func(w *placementWorld) []log.Op { return []log.Op{takeVM(9, w.cn)} }, denied, false,
		},
		{
			"a VM that moved away, by the VMM that it left", func(w *placementWorld) { w.do(takeVM(1, w.other)) },
			func(w *placementWorld) []log.Op { return []log.Op{takeVM(1, w.cn)} }, denied, true,
		},
		{"a VM that moved away, by the VMM that an operator made here", func(w *placementWorld) {
			w.do(madeVM(9, w.other), madeVMM(9, vmNo(9), w.cn))
			w.by(w.cn, takeVM(9, w.cn))
			w.do(takeVM(9, w.other))
		}, func(w *placementWorld) []log.Op { return []log.Op{takeVM(9, w.cn)} }, denied, true},
		{"a VM whose migration to it has failed", func(w *placementWorld) {
			w.do(madeVM(9, w.other), madeVMM(9, vmNo(9), w.cn))
			w.do(updateOf(vmmNo(9).String(), &log.VMM{State: "failed", Gen: 2}, "gen", "state"))
		}, func(w *placementWorld) []log.Op { return []log.Op{takeVM(9, w.cn)} }, denied, false},
		{"a VM by a VMM that has ended and begins again", func(w *placementWorld) {
			w.do(madeVM(9, w.other), madeVMM(9, vmNo(9), w.cn))
			w.by(w.cn, updateOf(vmmNo(9).String(), &log.VMM{State: "destroyed", Gen: 2}, "gen", "state"))
			w.by(w.cn, updateOf(vmmNo(9).String(), &log.VMM{State: "running", Gen: 3}, "gen", "state"))
		}, func(w *placementWorld) []log.Op { return []log.Op{takeVM(9, w.cn)} }, denied, true},
		{
			"a NIC of its VM that an operator placed elsewhere", func(w *placementWorld) { w.do(placedNIC(9, vmNo(1), w.other, externalNet, "")) },
			func(w *placementWorld) []log.Op { return []log.Op{takeNIC(9, w.cn)} }, denied, true,
		},
		{
			"a NIC of its VM on another node, deleted", func(w *placementWorld) { w.do(placedNIC(9, vmNo(1), w.other, externalNet, "")) },
			func(w *placementWorld) []log.Op {
				return []log.Op{{Action: log.Delete, Kind: log.KindNIC, ID: macNo(9).String()}}
			}, denied, true,
		},
		{
			"a VM that may come to it, deleted", func(w *placementWorld) { w.do(madeVM(9, w.other), madeVMM(9, vmNo(9), w.cn)) },
			func(w *placementWorld) []log.Op {
				return []log.Op{{Action: log.Delete, Kind: log.KindVM, ID: vmNo(9).String()}}
			}, denied, false,
		},
		{"a NIC on a third node, of a VM that may come to it", func(w *placementWorld) {
			w.do(madeVM(9, w.other), madeVMM(9, vmNo(9), w.cn), placedNIC(9, vmNo(9), log.UUID{0xcc, 15: 3}, externalNet, ""))
		}, func(w *placementWorld) []log.Op { return []log.Op{takeNIC(9, w.cn)} }, denied, true},
		{"the mark of another's primary NIC", func(w *placementWorld) {
			w.do(placedNIC(8, vmNo(1), w.other, externalNet, ""), updateOf(macNo(8).String(), &log.NIC{Primary: true}, "primary"))
		}, func(w *placementWorld) []log.Op {
			return []log.Op{updateOf(macNo(1).String(), &log.NIC{Primary: true}, "primary")}
		}, denied, true},
		{
			"a NIC on a fabric of which it has a part", func(w *placementWorld) { w.do(placedNIC(9, vmNo(1), w.cn, fabricNet, "")) },
			func(w *placementWorld) []log.Op { return []log.Op{placedNIC(10, vmNo(1), w.cn, fabricNet, "")} }, denied, true,
		},
		{
			"a host NIC on a fabric of which it has a part", func(w *placementWorld) { w.do(placedNIC(9, vmNo(1), w.cn, fabricNet, "")) },
			func(w *placementWorld) []log.Op { return []log.Op{hostNICAt(10, w.cn, fabricNet, "10.1.0.30")} }, denied, true,
		},
		{"a NIC on a network that is closed", func(w *placementWorld) {
			w.do(updateOf(externalNet.String(), &log.Network{SelfProvision: log.SelfProvisionOff}, "self_provision"))
		}, func(w *placementWorld) []log.Op { return []log.Op{placedNIC(10, vmNo(1), w.cn, externalNet, "")} }, denied, true},
		{"a NIC by a pool", func(w *placementWorld) {
			w.do(updateOf(externalNet.String(), &log.Network{SelfProvision: log.SelfProvisionOff}, "self_provision"))
			w.do(opOf(log.Create, &log.NetworkPool{UUID: log.UUID{0xef}, Name: "p", Networks: []log.UUID{externalNet}}, "networks"))
		}, func(w *placementWorld) []log.Op { return []log.Op{placedNIC(10, vmNo(1), w.cn, log.UUID{0xef}, "")} }, denied, true},
		{"the gateway of a fabric that is open", func(w *placementWorld) {
			w.do(updateOf(fabricNet.String(), &log.Network{SelfProvision: log.SelfProvisionAny}, "self_provision"))
		}, func(w *placementWorld) []log.Op { return []log.Op{placedNIC(10, vmNo(1), w.cn, fabricNet, "10.1.0.1")} }, "neither gateway", false},
		{"the gateway", nil, func(w *placementWorld) []log.Op {
			return []log.Op{placedNIC(10, vmNo(1), w.cn, externalNet, "10.2.0.1")}
		}, "neither gateway", true},
		{
			"the gateway, in its IPv6-mapped form", nil,
			func(w *placementWorld) []log.Op {
				return []log.Op{placedNIC(10, vmNo(1), w.cn, externalNet, "::ffff:10.2.0.1")}
			}, "neither gateway", true,
		},
		{"the gateway that was set after it left", func(w *placementWorld) {
			w.by(w.cn, placedNIC(9, vmNo(1), w.cn, externalNet, "10.2.0.30"))
			w.do(updateOf(externalNet.String(), &log.Network{Gateway: addr("10.2.0.30")}, "gateway"))
			w.by(w.cn, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macNo(9).String()})
		}, func(w *placementWorld) []log.Op {
			return []log.Op{placedNIC(9, vmNo(1), w.cn, externalNet, "10.2.0.30")}
		}, "neither gateway", true},
		{"a resolver's address", nil, func(w *placementWorld) []log.Op {
			return []log.Op{placedNIC(10, vmNo(1), w.cn, externalNet, "10.2.0.20")}
		}, "neither gateway", true},
		{"the gateway of a route", func(w *placementWorld) {
			w.do(updateOf(externalNet.String(), &log.Network{Routes: log.Routes{{Dst: "10.9.0.0/16", Gateway: "10.2.0.40"}}}, "routes"))
		}, func(w *placementWorld) []log.Op {
			return []log.Op{placedNIC(10, vmNo(1), w.cn, externalNet, "10.2.0.40")}
		}, "neither gateway", true},
		{"the gateway of a route, as the only address left", func(w *placementWorld) {
			w.do(updateOf(externalNet.String(), &log.Network{Routes: log.Routes{{Dst: "10.9.0.0/16", Gateway: "10.2.0.40"}}, ProvisionStart: addr("10.2.0.40"), ProvisionEnd: addr("10.2.0.40")}, "provision_end_ip", "provision_start_ip", "routes"))
		}, func(w *placementWorld) []log.Op { return []log.Op{placedNIC(10, vmNo(1), w.cn, externalNet, "")} }, "no more free IPs", true},
		{"a reserved address", func(w *placementWorld) {
			w.do(opOf(log.Create, &log.IP{NetworkUUID: externalNet, IP: addr("10.2.0.50"), Reserved: true}, "ip", "network_uuid"))
		}, func(w *placementWorld) []log.Op {
			return []log.Op{placedNIC(10, vmNo(1), w.cn, externalNet, "10.2.0.50")}
		}, "neither gateway", true},
		{"an address out of the range", nil, func(w *placementWorld) []log.Op {
			return []log.Op{placedNIC(10, vmNo(1), w.cn, externalNet, "10.2.0.100")}
		}, "neither gateway", true},
		{"the gateway of the admin network, for a host NIC", nil, func(w *placementWorld) []log.Op { return []log.Op{hostNICAt(10, w.cn, adminNet, "10.4.0.1")} }, "neither gateway", true},
		{"the address at which servers reach another node", func(w *placementWorld) {
			w.do(updateOf(w.other.String(), &log.Server{AdminIP: addr("10.4.0.8")}, "admin_ip"))
		}, func(w *placementWorld) []log.Op { return []log.Op{hostNICAt(10, w.cn, adminNet, "10.4.0.8")} }, "neither gateway", true},
		{"the address at which servers reach it", func(w *placementWorld) {
			w.do(updateOf(w.cn.String(), &log.Server{AdminIP: addr("10.4.0.8")}, "admin_ip"))
		}, func(w *placementWorld) []log.Op { return []log.Op{hostNICAt(10, w.cn, adminNet, "10.4.0.8")} }, "", true},
		{"an address out of the admin network's range", nil, func(w *placementWorld) []log.Op { return []log.Op{hostNICAt(10, w.cn, adminNet, "10.4.0.200")} }, "neither gateway", true},
		{
			"the gateway, by a change of its host NIC", func(w *placementWorld) { w.by(w.cn, hostNICAt(10, w.cn, adminNet, "10.4.0.8")) },
			func(w *placementWorld) []log.Op {
				return []log.Op{updateOf(macNo(10).String(), &log.NIC{IP: addr("10.4.0.1")}, "ip")}
			}, "neither gateway", true,
		},
		{"a field that it may not write, without its name", nil, func(w *placementWorld) []log.Op {
			op := hostNICAt(10, w.cn, adminNet, "10.4.0.8")
			op.Object.(*log.NIC).Underlay = true
			return []log.Op{op}
		}, "", true}, // what is not named is not there
		{"a VMM that it says is placed", nil, func(w *placementWorld) []log.Op {
			op := madeVMM(9, vmNo(1), w.cn)
			op.Object.(*log.VMM).Placed, op.Set = true, append(op.Set, "placed")
			return []log.Op{op}
		}, "placed", false},
		{"a migration of another's VM, between its own VMMs", nil, func(w *placementWorld) []log.Op {
			return []log.Op{opOf(log.Create, &log.Migration{UUID: log.UUID{0xdd}, InstanceID: vmNo(2), SourceVMM: vmmNo(1), SourceGen: 1, SourceState: "pending"}, "id", "instance_id", "source_gen", "source_propolis_id", "source_state")}
		}, denied, true},
		{"the other side of a migration", func(w *placementWorld) {
			w.do(madeVM(9, w.other), madeVMM(8, vmNo(9), w.other), madeVMM(9, vmNo(9), w.cn))
			w.by(w.other, opOf(log.Create, &log.Migration{UUID: log.UUID{0xdd}, InstanceID: vmNo(9), SourceVMM: vmmNo(8), SourceGen: 1, SourceState: "pending"}, "id", "instance_id", "source_gen", "source_propolis_id", "source_state"))
		}, func(w *placementWorld) []log.Op {
			return []log.Op{updateOf(log.UUID{0xdd}.String(), &log.Migration{SourceVMM: vmmNo(9), SourceGen: 2, SourceState: "failed"}, "source_gen", "source_propolis_id", "source_state")}
		}, denied, true},

		// What a real node does.
		{"its own VM, which nothing names", nil, func(w *placementWorld) []log.Op {
			return []log.Op{madeVM(9, w.cn), placedNIC(9, vmNo(9), w.cn, externalNet, "10.2.0.30"), madeVMM(9, vmNo(9), w.cn)}
		}, "", true},
		{
			"a VM whose NICs are placed on it", func(w *placementWorld) { w.do(placedNIC(9, vmNo(9), w.cn, fabricNet, "")) },
			func(w *placementWorld) []log.Op {
				return []log.Op{madeVM(9, w.cn), updateOf(macNo(9).String(), &log.NIC{State: "stopped"}, "state")}
			}, "", true,
		},
		{"a VM that a task makes on it, and its NICs", func(w *placementWorld) {
			w.do(placedNIC(9, vmNo(9), noCN, externalNet, ""), taskFor(1, w.other, createMachine, vmNo(9).String()))
			w.s.SetFeature(log.FeatureVersion)
			w.do(updateOf(log.UUID{0xdd, 15: 1}.String(), &log.Task{Status: log.TaskFailure, Failure: "x"}, "failure", "status"), taskFor(2, w.cn, createMachine, vmNo(9).String()))
		}, func(w *placementWorld) []log.Op { return []log.Op{madeVM(9, w.cn), takeNIC(9, w.cn)} }, "", true},
		{"a NIC on no node of a VM that an operator placed", func(w *placementWorld) {
			w.do(placedNIC(9, vmNo(9), noCN, externalNet, ""), madeVM(9, w.cn))
		}, func(w *placementWorld) []log.Op { return []log.Op{takeNIC(9, w.cn)} }, "", true},
		{"a VM that comes by a migration, and its NIC before it", func(w *placementWorld) {
			w.do(madeVM(9, w.other), placedNIC(9, vmNo(9), w.other, fabricNet, ""), madeVMM(8, vmNo(9), w.other), madeVMM(9, vmNo(9), w.cn))
		}, func(w *placementWorld) []log.Op { return []log.Op{takeNIC(9, w.cn), takeVM(9, w.cn)} }, "", true},
		{"both sides of a migration, the target first", func(w *placementWorld) {
			w.do(madeVM(9, w.cn), madeVMM(8, vmNo(9), w.cn), madeVMM(9, vmNo(9), w.other))
			w.by(w.other, opOf(log.Create, &log.Migration{UUID: log.UUID{0xdd}, InstanceID: vmNo(9), TargetVMM: vmmNo(9), TargetGen: 1, TargetState: "completed"}, "id", "instance_id", "target_gen", "target_propolis_id", "target_state"))
			w.by(w.other, takeVM(9, w.other))
		}, func(w *placementWorld) []log.Op {
			return []log.Op{
				updateOf(vmmNo(8).String(), &log.VMM{State: "destroyed", Gen: 2}, "gen", "state"),
				updateOf(log.UUID{0xdd}.String(), &log.Migration{SourceVMM: vmmNo(8), SourceGen: 1, SourceState: "completed"}, "source_gen", "source_propolis_id", "source_state"),
			}
		}, "", false},
		{"a host NIC on the admin network", nil, func(w *placementWorld) []log.Op { return []log.Op{hostNICAt(10, w.cn, adminNet, "10.4.0.9")} }, "", true},
		{"a NIC on a fabric that is open to those on it", func(w *placementWorld) {
			w.do(placedNIC(9, vmNo(1), w.cn, fabricNet, ""))
			w.do(opOf(log.Create, &log.Setting{Name: SettingFabricSelfProvision, Value: log.SelfProvisionJoined}, "name", "value"))
		}, func(w *placementWorld) []log.Op { return []log.Op{placedNIC(10, vmNo(1), w.cn, fabricNet, "")} }, "", true},
		{"a NIC on a network that its owner opened to all", func(w *placementWorld) {
			w.do(updateOf(closedNet.String(), &log.Network{SelfProvision: log.SelfProvisionAny}, "self_provision"))
		}, func(w *placementWorld) []log.Op { return []log.Op{placedNIC(10, vmNo(1), w.cn, closedNet, "")} }, "", false},
		{"the state of a NIC at what has become the gateway", func(w *placementWorld) {
			w.do(updateOf(externalNet.String(), &log.Network{Gateway: addr("10.2.0.2")}, "gateway"))
			if n, _ := w.s.NICAt(externalNet, addr("10.2.0.2")); n.Object.ID() != macNo(1).String() {
				t.Fatalf("10.2.0.2 is %v's", n.Object)
			}
		}, func(w *placementWorld) []log.Op {
			return []log.Op{updateOf(macNo(1).String(), &log.NIC{State: "stopped"}, "state")}
		}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newPlacementWorld(t)
			if c.setup != nil {
				c.setup(w)
			}
			r := decideBy(w.s, w.cn, c.ops(w)...)
			switch {
			case c.want == "" && r != nil:
				t.Errorf("refused: %v", r)
			case c.want != "" && (r == nil || !strings.Contains(r.Error(), c.want)):
				t.Errorf("got %v, want a refusal with %q", r, c.want)
			}
			if w.s.SetFeature(log.FeatureContained); c.before != (decideBy(w.s, w.cn, c.ops(w)...) == nil) {
				t.Errorf("by feature version 2: %v", decideBy(w.s, w.cn, c.ops(w)...))
			}
		})
	}
}

// squat makes a VM of the lying node's own, as it could before feature version 3.
func (w *placementWorld) squat(n byte) {
	w.t.Helper()
	w.s.SetFeature(log.FeatureContained)
	w.by(w.cn, madeVM(n, w.cn))
	w.s.SetFeature(log.FeatureVersion)
}

// A compute node gets the same refusal for what is another's and for what is not there.
func TestACNLearnsNothingFromARefusal(t *testing.T) {
	w := newPlacementWorld(t)
	w.do(placedNIC(9, vmNo(9), w.other, fabricNet, ""), placedNIC(10, vmNo(10), log.UUID{}, externalNet, ""))
	w.do(opOf(log.Create, &log.Server{UUID: log.UUID{0xcc, 15: 3}}, "uuid"))
	gone := log.UUID{0xee, 15: 99}
	// atTag names a network by its tag, VLAN and address.
	atTag := func(tag string, vlan uint32, ip string) log.Op {
		op := hostNICAt(20, w.cn, log.UUID{}, ip)
		n := op.Object.(*log.NIC)
		n.NICTag, n.VLANID = tag, vlan
		op.Set = []string{"belongs_to_type", "belongs_to_uuid", "ip", "mac", "nic_tag", "owner_uuid", "state", "vlan_id"}
		return op
	}
	mac := func(op log.Op, n byte) log.Op {
		op.Object.(*log.NIC).MAC = macNo(n)
		return op
	}
	same := func(o log.Object) log.Op { // ids in the text are those that were sent
		return opOf(log.Create, o, log.FieldNames(o.Kind())...)
	}
	for _, c := range []struct {
		name string
		ops  []log.Op // that get the same, but for the id that was sent
	}{
		{"networks", []log.Op{
			placedNIC(20, vmNo(1), w.cn, gone, ""), placedNIC(20, vmNo(1), w.cn, closedNet, ""), placedNIC(20, vmNo(1), w.cn, fabricNet, ""),
			placedNIC(20, vmNo(1), w.cn, closedNet, "10.3.0.30"), placedNIC(20, vmNo(1), w.cn, closedNet, "10.3.0.9"), placedNIC(20, vmNo(1), w.cn, closedNet, "192.0.2.1"),
			placedNIC(20, vmNo(1), w.cn, gone, "10.3.0.9"), hostNICAt(20, w.cn, closedNet, "10.3.0.9"), hostNICAt(20, w.cn, gone, "10.3.0.9"),
			atTag("external", 9, "10.3.0.30"), atTag("external", 9, "10.3.0.9"), atTag("external", 9, "10.33.0.9"), atTag("external", 8, "10.3.0.9"),
			atTag("overlay/7", 4, "10.1.0.9"), atTag("overlay/7", 4, "10.11.0.9"), atTag("overlay/8", 4, "10.1.0.9"), atTag("none", 4, "10.1.0.9"),
		}},
		{"VMs of a NIC", []log.Op{
			placedNIC(20, vmNo(2), w.cn, externalNet, ""), placedNIC(20, vmNo(9), w.cn, externalNet, ""), placedNIC(20, vmNo(99), w.cn, externalNet, ""),
			placedNIC(20, vmNo(2), w.cn, gone, ""), placedNIC(20, vmNo(1), w.other, externalNet, ""),
		}},
		{"MACs", []log.Op{
			mac(placedNIC(20, vmNo(1), w.cn, externalNet, ""), 2), mac(placedNIC(20, vmNo(1), w.cn, gone, ""), 2), mac(placedNIC(20, vmNo(99), w.cn, externalNet, ""), 99),
			mac(placedNIC(20, vmNo(1), w.cn, externalNet, ""), 10), takeNIC(2, w.cn), takeNIC(98, w.cn), takeNIC(9, w.cn), takeNIC(10, w.cn),
			{Action: log.Delete, Kind: log.KindNIC, ID: macNo(2).String()},
			{Action: log.Delete, Kind: log.KindNIC, ID: macNo(97).String()},
		}},
		{"VMs", []log.Op{madeVM(2, w.cn), madeVM(9, w.cn), madeVM(10, w.cn), madeVM(99, w.other), takeVM(2, w.cn), takeVM(98, w.cn), takeVM(9, w.cn)}},
		{"VMMs", []log.Op{madeVMM(2, vmNo(2), w.cn), madeVMM(99, vmNo(2), w.cn), madeVMM(98, vmNo(99), w.cn), madeVMM(97, vmNo(9), w.cn), madeVMM(2, vmNo(1), w.cn)}},
		{"migrations", []log.Op{
			same(&log.Migration{UUID: log.UUID{0xdd, 15: 1}, InstanceID: vmNo(2), TargetVMM: vmmNo(2), TargetGen: 1, TargetState: "pending"}),
			same(&log.Migration{UUID: log.UUID{0xdd, 15: 2}, InstanceID: vmNo(99), TargetVMM: vmmNo(99), TargetGen: 1, TargetState: "pending"}),
			same(&log.Migration{UUID: log.UUID{0xdd, 15: 3}, InstanceID: vmNo(2), TargetVMM: vmmNo(1), TargetGen: 1, TargetState: "pending"}),
			same(&log.Migration{UUID: log.UUID{0xdd, 15: 4}, InstanceID: vmNo(2), TargetGen: 0}),
		}},
		{"servers", []log.Op{
			opOf(log.Create, &log.Server{UUID: w.other}, "uuid"), opOf(log.Create, &log.Server{UUID: log.UUID{0xcc, 15: 99}}, "uuid"),
			updateOf(w.other.String(), &log.Server{RAM: 1}, "ram"), updateOf(log.UUID{0xcc, 15: 98}.String(), &log.Server{RAM: 1}, "ram"),
		}},
		{"NICs of a bond", []log.Op{
			opOf(log.Create, &log.Aggregation{Name: "aggr0", MACs: []log.MAC{macNo(2)}}, "macs", "name"), opOf(log.Create, &log.Aggregation{Name: "aggr0", MACs: []log.MAC{macNo(99)}}, "macs", "name"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var first *log.Refusal
			for i, op := range c.ops {
				r := decideBy(w.s, w.cn, op)
				if r == nil {
					t.Fatalf("%d: accepted", i)
				}
				id := op.ID
				if id == "" {
					id = op.Object.ID()
				}
				r = withoutID(r, id)
				if first == nil {
					first = r
				}
				if r.Code != log.CodeNotAuthorized || !reflect.DeepEqual(r, first) {
					t.Errorf("%d: %+v\nthe first: %+v", i, r, first)
				}
			}
		})
	}
}

// A primary NIC's update does not tell whether another VM has one.
func TestPrimaryTellsNothing(t *testing.T) {
	w := newPlacementWorld(t)
	w.do(updateOf(macNo(2).String(), &log.NIC{Primary: true}, "primary"))
	w.by(w.cn, hostNICAt(10, w.cn, adminNet, "10.4.0.9"))
	var refusals []*log.Refusal
	for _, vm := range []log.UUID{vmNo(2), vmNo(99)} {
		refusals = append(refusals, decideBy(w.s, w.cn, updateOf(macNo(10).String(), &log.NIC{BelongsToType: "zone", BelongsToUUID: vm, Primary: true}, "belongs_to_type", "belongs_to_uuid", "primary")))
	}
	if refusals[0] == nil || !reflect.DeepEqual(refusals[0], refusals[1]) {
		t.Errorf("got %v and %v", refusals[0], refusals[1])
	}
}

// withoutID is a refusal without the id that was sent.
func withoutID(r *log.Refusal, id string) *log.Refusal {
	out := *r
	out.Message, out.Errors = strings.ReplaceAll(r.Message, id, "ID"), nil
	for _, e := range r.Errors {
		e.Message = strings.ReplaceAll(e.Message, id, "ID")
		out.Errors = append(out.Errors, e)
	}
	return &out
}

// A VM that moves takes the NICs along that were on the node that it leaves, and ends the claims of its VMMs.
func TestAVMMovesWithItsNICs(t *testing.T) {
	w := newPlacementWorld(t)
	third := log.UUID{0xcc, 15: 3}
	w.do(placedNIC(8, vmNo(1), third, log.UUID{}, ""), madeVMM(9, vmNo(1), w.other), madeVMM(8, vmNo(1), third))
	w.by(w.other, takeVM(1, w.other))
	cnOf := func(n byte) log.UUID {
		r, _ := w.s.Get(log.KindNIC, macNo(n).String())
		return r.Object.(*log.NIC).CNUUID
	}
	if cnOf(1) != w.other || cnOf(8) != third {
		t.Errorf("the NICs are on %s and %s", cnOf(1), cnOf(8))
	}
	for _, n := range []byte{1, 8, 9} {
		if r, _ := w.s.Get(log.KindVMM, vmmNo(n).String()); r.Object.(*log.VMM).Placed {
			t.Errorf("VMM %d gives a claim still", n)
		}
	}
	many := make([]log.Op, 0, maxMovedNICs)
	for i := range maxMovedNICs {
		op := placedNIC(0, vmNo(1), w.other, log.UUID{}, "")
		op.Object.(*log.NIC).MAC = log.MAC{2, 1, 0, 0, byte(i >> 8), byte(i)}
		many = append(many, op)
	}
	w.do(many...) // with NIC 1, one more than the limit
	on := func(cn log.UUID) (n int) {
		for r := range w.s.NICsOf(vmNo(1)) {
			if r.Object.(*log.NIC).CNUUID == cn {
				n++
			}
		}
		return n
	}
	events, result := Decide(w.s, &log.Change{ID: log.UUID{8, 6: 0x70}, Ops: []log.Op{takeVM(1, w.cn)}})
	if r := result.Refusal; r == nil || len(events) != 0 || !strings.Contains(r.Error(), "limit moved_nics") {
		t.Errorf("a VM with %d NICs moves: %v, %d events", on(w.other), r, len(events))
	}
	w.do(updateOf(macNo(1).String(), &log.NIC{CNUUID: w.cn}, "cn_uuid")) // as the refusal says
	w.do(takeVM(1, w.cn))
	if left, moved := on(w.other), on(w.cn); left != 0 || moved != maxMovedNICs+1 {
		t.Errorf("%d NICs moved, %d are left", moved, left)
	}
}

// Programs of before do not know the fields and the setting; while the cluster has not
// agreed on more, every server answers as they do.
func TestPlacementIsGated(t *testing.T) {
	w := newPlacementWorld(t)
	for _, c := range []struct {
		op        log.Op
		old, want string
	}{
		{updateOf(fabricNet.String(), &log.Network{SelfProvision: "any"}, "self_provision"), `network has no field "self_provision"`, ""},
		{updateOf(fabricNet.String(), &log.Network{SelfProvision: "x"}, "self_provision"), `network has no field "self_provision"`, `self_provision: "x" is not known`},
		{updateOf(fabricNet.String(), &log.Network{SelfProvision: "any"}, "zzz", "self_provision"), `network has no field "zzz"`, `network has no field "zzz"`},
		{updateOf(vmmNo(1).String(), &log.VMM{Placed: true, Gen: 9}, "gen", "placed"), `vmm has no field "placed"`, "placed: VMM updates for this field are not supported"},
		{opOf(log.Create, &log.Setting{Name: SettingFabricSelfProvision, Value: "any"}, "name", "value"), "there is no setting", ""},
		{opOf(log.Create, &log.Setting{Name: SettingFabricSelfProvision, Value: "x"}, "name", "value"), "there is no setting", "send one of: off, joined, any"},
	} {
		for feature, want := range map[uint32]string{log.FeatureContained: c.old, log.FeatureConfined: c.want} {
			w.s.SetFeature(feature)
			_, result := Decide(w.s, &log.Change{ID: log.UUID{9, 6: 0x70}, Ops: []log.Op{c.op}})
			if got := result.Refusal; (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
				t.Errorf("feature version %d: %s %v: %v, want %q", feature, c.op.Kind, c.op.Set, got, want)
			}
		}
	}
	w.s.SetFeature(log.FeatureContained)
	events, _ := Decide(w.s, &log.Change{ID: log.UUID{9, 6: 0x70}, Ops: []log.Op{takeVM(1, w.other)}})
	if len(events) != 1 {
		t.Errorf("a VM that moves makes %d events by feature version 2, want 1", len(events))
	}
}
