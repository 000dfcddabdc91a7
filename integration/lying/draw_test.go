package lying

import (
	"fmt"
	"net/netip"
	"slices"

	"rutter/log"
)

// chooser draws numbers from 0 to n-1.
type chooser func(n int) int

func pick[T any](draw chooser, list ...T) T { return list[draw(len(list))] }

// one draws from list, or, one time in n, from rest.
func one(draw chooser, n int, list, rest []log.UUID) log.UUID {
	if draw(n) == 0 {
		return rest[draw(len(rest))]
	}
	return list[draw(len(list))]
}

// anyID is any UUID of the world, of whatever it is.
var anyID = slices.Concat(cns, ids(16, 16), vms, unmade, networks, vmms, moves, tasks, ids(1, 3), ids(router, router))

// anyVM is a VM in the log or not.
var anyVM = slices.Concat(vms, unmade)

func drawMAC(draw chooser) log.MAC {
	return mac(pick(draw, 1, 2, 3, 0x11, 0x12, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x31, 0x32, 0x33, freeMAC, freeMAC+1, freeMAC+2, maxMAC))
}

// addresses are gateways, resolvers, reserved, in use, free, out of the range to
// provision from, and of no network.
var addresses = []netip.Addr{
	{},
	{},
	address("10.0.0.1"), address("10.0.0.2"), address("10.0.0.10"), address("10.0.0.11"), address("10.0.0.50"), address("10.0.0.77"), address("10.0.0.250"),
	address("10.0.1.1"), address("10.0.1.9"), address("10.0.2.1"), address("10.0.2.3"), address("10.0.2.9"), address("203.0.113.1"), address("203.0.113.2"),
	address("203.0.113.20"), address("203.0.113.60"), address("203.0.113.200"), address("198.51.100.1"), address("198.51.100.9"), address("10.99.99.1"), address("10.99.99.60"),
	address("192.168.0.2"), address("169.254.169.254"),
}

func drawIP(draw chooser) netip.Addr { return pick(draw, addresses...) }

// some draws a part of the names, sorted, at least one.
func some(draw chooser, names ...string) []string {
	var set []string
	for _, name := range names {
		if draw(3) == 0 {
			set = append(set, name)
		}
	}
	if set == nil {
		set = append(set, pick(draw, names...))
	}
	slices.Sort(set)
	return set
}

// lie draws what the CN that lies sends: one operation mostly, or a few in one change.
func lie(draw chooser) []log.Op {
	n := 1
	if draw(4) == 0 {
		n += 1 + draw(2)
	}
	ops := make([]log.Op, n)
	for i := range ops {
		ops[i] = lieOf(draw)
		if draw(20) == 0 {
			ops[i].IfMatch = log.Revision(1 + draw(2))
		}
	}
	return ops
}

func lieOf(draw chooser) log.Op {
	switch at := draw(100); {
	case at < 22:
		return drawNIC(draw, liar)
	case at < 42:
		return drawNICUpdate(draw, liar)
	case at < 46:
		return log.Op{Action: log.Delete, Kind: log.KindNIC, ID: drawMAC(draw).String()}
	case at < 56:
		return drawVM(draw, liar)
	case at < 66:
		return drawVMUpdate(draw, liar)
	case at < 68:
		return log.Op{Action: log.Delete, Kind: log.KindVM, ID: pick(draw, anyVM...).String()}
	case at < 76:
		return drawVMM(draw, liar)
	case at < 82:
		return drawVMMUpdate(draw)
	case at < 88:
		return drawMigration(draw)
	case at < 91:
		return drawServer(draw)
	case at < 93:
		return drawAggregation(draw)
	case at < 96:
		return drawTaskUpdate(draw)
	}
	return drawForbidden(draw)
}

func drawNIC(draw chooser, cn log.UUID) log.Op {
	n := &log.NIC{
		MAC: drawMAC(draw), BelongsToType: "zone", BelongsToUUID: one(draw, 10, anyVM, anyID), OwnerUUID: pick(draw, tenantA, tenantB, admins),
		NetworkUUID: one(draw, 20, networks, anyID), IP: drawIP(draw), State: pick(draw, "running", "provisioning", "bad"), Primary: draw(3) == 0,
		CNUUID: one(draw, 8, []log.UUID{cn}, cns), NICTag: pick(draw, "external", "overlay/10", "overlay/20", "none"), VLANID: uint32(pick(draw, 2, 5, 6)),
		NICTagsProvided: []string{"overlay"}, AllowIPSpoofing: true, Underlay: draw(2) == 0,
	}
	set := []string{"belongs_to_type", "belongs_to_uuid", "owner_uuid", "state"}
	if draw(4) == 0 {
		n.BelongsToType, n.BelongsToUUID = pick(draw, "server", "server", "other"), one(draw, 3, []log.UUID{cn}, anyID)
		set = append(set, some(draw, "nic_tags_provided", "underlay", "nic_tag")...)
	}
	if draw(2) == 0 {
		set = append(set, "mac")
	} else {
		n.MAC = log.MAC{}
	}
	for _, name := range []string{"ip", "network_uuid", "cn_uuid", "primary", "allow_ip_spoofing"} {
		if draw(4) > 0 || name == "cn_uuid" || name == "network_uuid" && draw(4) > 0 {
			set = append(set, name)
		}
	}
	if !slices.Contains(set, "network_uuid") {
		n.NetworkUUID = log.UUID{}
		set = append(set, "nic_tag", "vlan_id")
	}
	if n.State == "bad" && draw(4) > 0 {
		n.State = "running"
	}
	op := log.Op{Action: log.Create, Kind: log.KindNIC, Object: only(n, set), Set: set}
	if draw(4) == 0 {
		op.Options = []log.Option{pick(draw, log.OptionAnyOwner, log.OptionAnyOwner, log.OptionReserveIP, log.OptionReleaseIP)}
	}
	return op
}

// only returns o with the fields of set alone, as a client sends it; it sorts set.
func only(o log.Object, set []string) log.Object {
	slices.Sort(set)
	fresh := log.NewObject(o.Kind())
	log.Assign(fresh, o, set)
	return fresh
}

func drawNICUpdate(draw chooser, cn log.UUID) log.Op {
	n := &log.NIC{
		BelongsToType: pick(draw, "zone", "server"), BelongsToUUID: one(draw, 4, anyVM, anyID), OwnerUUID: pick(draw, tenantA, tenantB), NetworkUUID: pick(draw, networks...),
		IP: drawIP(draw), State: pick(draw, "running", "stopped"), Primary: draw(2) == 0, CNUUID: one(draw, 5, []log.UUID{cn}, cns), Underlay: draw(2) == 0,
		NICTag: pick(draw, "admin", "external", "overlay"), NICTagsProvided: pick(draw, []string{"overlay"}, []string{"admin"}), VLANID: uint32(draw(7)), AllowMACSpoofing: true,
	}
	set := []string{"cn_uuid"}
	if draw(3) == 0 {
		set = some(draw, "belongs_to_type", "belongs_to_uuid", "owner_uuid", "network_uuid", "ip", "state", "primary", "underlay", "nic_tag", "nic_tags_provided", "vlan_id", "allow_mac_spoofing", "cn_uuid")
	} else if draw(2) == 0 {
		set = some(draw, "state", "primary", "cn_uuid", "allow_mac_spoofing")
	}
	return log.Op{Action: log.Update, Kind: log.KindNIC, ID: drawMAC(draw).String(), Object: n, Set: set}
}

func drawVM(draw chooser, cn log.UUID) log.Op {
	m := &log.VM{UUID: one(draw, 10, anyVM, anyID), OwnerUUID: pick(draw, tenantA, tenantB), ServerUUID: one(draw, 8, []log.UUID{cn}, cns), State: "running", Zonename: pick(draw, vms...).String()}
	set := []string{"uuid", "owner_uuid", "server_uuid", "state"}
	if draw(6) == 0 {
		set = append(set, "zonename")
	}
	return log.Op{Action: log.Create, Kind: log.KindVM, Object: only(m, set), Set: set}
}

func drawVMUpdate(draw chooser, cn log.UUID) log.Op {
	m := &log.VM{OwnerUUID: pick(draw, tenantA, tenantB), ServerUUID: one(draw, 5, append([]log.UUID{{}}, cn), cns), State: pick(draw, "stopped", "failed"), Zonename: pick(draw, vms...).String(), Alias: "x"}
	set := []string{"server_uuid"}
	if draw(3) == 0 {
		set = some(draw, "server_uuid", "owner_uuid", "state", "zonename", "alias")
	}
	return log.Op{Action: log.Update, Kind: log.KindVM, ID: pick(draw, anyVM...).String(), Object: m, Set: set}
}

var vmmStates = []string{"running", "stopped", "migrating", "destroyed", "failed", "creating"}

func drawVMM(draw chooser, cn log.UUID) log.Op {
	m := &log.VMM{UUID: pick(draw, vmms...), InstanceID: one(draw, 12, anyVM, anyID), SledID: one(draw, 8, []log.UUID{cn}, cns), State: pick(draw, vmmStates...), Gen: uint64(1 + draw(3))}
	set := []string{"gen", "id", "instance_id", "sled_id", "state"}
	return log.Op{Action: log.Create, Kind: log.KindVMM, Object: m, Set: set}
}

func drawVMMUpdate(draw chooser) log.Op {
	m := &log.VMM{State: pick(draw, vmmStates...), Gen: uint64(1 + draw(5)), SledID: pick(draw, cns...), InstanceID: pick(draw, anyVM...)}
	set := []string{"gen", "state"}
	if draw(5) == 0 {
		set = some(draw, "gen", "state", "sled_id", "instance_id")
	}
	return log.Op{Action: log.Update, Kind: log.KindVMM, ID: pick(draw, vmms...).String(), Object: m, Set: set}
}

func drawMigration(draw chooser) log.Op {
	m := &log.Migration{
		UUID: pick(draw, moves...), InstanceID: pick(draw, anyVM...), SourceVMM: pick(draw, vmms...), SourceState: pick(draw, "pending", "in_progress", "completed"), SourceGen: uint64(1 + draw(3)),
		TargetVMM: pick(draw, vmms...), TargetState: pick(draw, "in_progress", "completed"), TargetGen: uint64(1 + draw(3)),
	}
	source := []string{"source_gen", "source_propolis_id", "source_state"}
	target := []string{"target_gen", "target_propolis_id", "target_state"}
	set := pick(draw, source, target, slices.Concat(source, target))
	if draw(2) == 0 {
		return log.Op{Action: log.Update, Kind: log.KindMigration, ID: m.UUID.String(), Object: m, Set: set}
	}
	set = append([]string{"id", "instance_id"}, set...)
	return log.Op{Action: log.Create, Kind: log.KindMigration, Object: only(m, set), Set: set}
}

func drawServer(draw chooser) log.Op {
	s := &log.Server{
		UUID: pick(draw, append(ids(16, 16), cns...)...), Hostname: "x", Sysinfo: "{}", AdminIP: drawIP(draw), AgentPort: 80, Status: "running",
		VXLANPort: 4790, UnderlayMTU: uint32(pick(draw, 576, 700, 1400)), UnderlayPaths: []string{pick(draw, "192.168.0.2 576", "192.168.0.3 600", "10.0.0.1 700")},
	}
	switch draw(3) {
	case 0:
		set := []string{"hostname", "uuid"}
		return log.Op{Action: log.Create, Kind: log.KindServer, Object: only(s, set), Set: set}
	case 1:
		return log.Op{Action: log.Update, Kind: log.KindServer, ID: s.UUID.String(), Object: s, Set: some(draw, "hostname", "sysinfo", "admin_ip", "agent_port", "status", "vxlan_port", "underlay_mtu", "underlay_paths")}
	}
	return log.Op{Action: log.Delete, Kind: log.KindServer, ID: s.UUID.String()}
}

func drawAggregation(draw chooser) log.Op {
	a := &log.Aggregation{Name: pick(draw, "aggr0", "aggr1"), MACs: []log.MAC{drawMAC(draw)}, BelongsToUUID: pick(draw, cns...), NICTagsProvided: []string{"overlay"}}
	if draw(2) == 0 {
		set := []string{"macs", "name"}
		return log.Op{Action: log.Create, Kind: log.KindAggregation, Object: only(a, set), Set: set}
	}
	return log.Op{Action: pick(draw, log.Update, log.Delete), Kind: log.KindAggregation, ID: a.ID(), Object: a, Set: some(draw, "macs", "nic_tags_provided")}
}

func drawTaskUpdate(draw chooser) log.Op {
	task := &log.Task{ClaimedBy: uint64(1 + draw(2)), Status: pick(draw, log.TaskActive, log.TaskComplete, log.TaskFailure), Failure: "x", ServerUUID: liar, Params: "{}"}
	set := []string{"claimed_by", "status"}
	if draw(3) == 0 {
		set = some(draw, "claimed_by", "status", "failure", "params", "server_uuid")
	}
	return log.Op{Action: log.Update, Kind: log.KindTask, ID: pick(draw, tasks...).String(), Object: task, Set: set}
}

// drawForbidden draws what no CN may do.
func drawForbidden(draw chooser) log.Op {
	network := pick(draw, networks...)
	return pick(draw,
		log.Op{Action: log.Update, Kind: log.KindNetwork, ID: network.String(), Object: &log.Network{Gateway: drawIP(draw)}, Set: []string{"gateway"}},
		log.Op{Action: log.Delete, Kind: log.KindNetwork, ID: network.String()},
		log.Op{Action: log.Update, Kind: log.KindIP, ID: log.IPID(network, address("10.0.0.50")), Object: &log.IP{}, Set: []string{"reserved"}},
		log.Op{Action: log.Create, Kind: log.KindIP, Object: &log.IP{NetworkUUID: network, IP: address("10.0.0.51"), Reserved: true}, Set: []string{"ip", "network_uuid", "reserved"}},
		log.Op{Action: log.Delete, Kind: log.KindRouter, ID: id(router).String()},
		log.Op{Action: log.Create, Kind: log.KindTask, Object: &log.Task{UUID: id(75), Task: "nop", ServerUUID: pick(draw, cns...)}, Set: []string{"id", "server_uuid", "task"}},
		log.Op{Action: log.Delete, Kind: log.KindVMM, ID: pick(draw, vmms...).String()},
		log.Op{Action: log.Delete, Kind: log.KindMigration, ID: pick(draw, moves...).String()},
		log.Op{Action: log.Create, Kind: log.KindSetting, Object: &log.Setting{Name: "napi.network_immutable", Value: "true"}, Set: []string{"name", "value"}},
		log.Op{Action: log.Update, Kind: log.KindNICTag, ID: "overlay", Object: &log.NICTag{MTU: 1500}, Set: []string{"mtu"}},
	)
}

// operate draws an act of an operator.
func operate(draw chooser) log.Op {
	cn := pick(draw, cns...)
	switch draw(10) {
	case 0:
		return drawVM(draw, cn)
	case 1:
		return drawVMUpdate(draw, cn)
	case 2, 3:
		return drawNIC(draw, cn)
	case 4:
		return drawNICUpdate(draw, cn)
	case 5, 6:
		return drawVMM(draw, cn)
	case 7:
		return pick(draw,
			log.Op{Action: log.Delete, Kind: log.KindNIC, ID: drawMAC(draw).String()},
			log.Op{Action: log.Delete, Kind: log.KindVM, ID: pick(draw, anyVM...).String()},
			log.Op{Action: log.Delete, Kind: log.KindVMM, ID: pick(draw, vmms...).String()},
			drawVMMUpdate(draw))
	case 8:
		return pick(draw, drawMigration(draw), createTask(draw, cn), openNetwork(draw))
	}
	return drawForbidden(draw)
}

// openNetwork opens a network, or all fabrics, to NICs that nodes make, or closes it.
func openNetwork(draw chooser) log.Op {
	to := pick(draw, log.SelfProvisionOff, log.SelfProvisionJoined, log.SelfProvisionAny)
	if draw(3) == 0 {
		return log.Op{Action: log.Create, Kind: log.KindSetting, Object: &log.Setting{Name: fabricSetting, Value: to}, Set: []string{"name", "value"}}
	}
	return log.Op{Action: log.Update, Kind: log.KindNetwork, ID: pick(draw, networks...).String(), Object: &log.Network{SelfProvision: to}, Set: []string{"self_provision"}}
}

func createTask(draw chooser, cn log.UUID) log.Op {
	return log.Op{Action: log.Create, Kind: log.KindTask, Set: []string{"id", "params", "server_uuid", "task"}, Object: &log.Task{
		UUID: id(75), Task: "machine_create", ServerUUID: cn, Params: fmt.Sprintf(`{"uuid": %q}`, pick(draw, unmade...).String()),
	}}
}
