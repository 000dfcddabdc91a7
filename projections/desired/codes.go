package desired

import "slices"

// Code is one thing that a Trace can find, as programs know it.
type Code struct {
	Code    string
	Level   string // Fault, Doubt or Note
	Meaning string
}

// Codes returns everything that a Trace can find, in the order in which it looks. A code
// keeps its meaning; its level, text and remedy may change.
func Codes() []Code { return slices.Clone(codes) }

var codes = []Code{
	{"from-unknown", Fault, "the log has no VM and no NIC of the first name"},
	{"to-unknown", Fault, "the log has no VM, NIC or address of the second name, on any vnet of the first end"},
	{"from-ambiguous", Doubt, "the first name is that of several: the trace is of the pair that is in the best order"},
	{"to-ambiguous", Doubt, "the second name is that of several: the trace is of the pair that is in the best order"},
	{"vm-not-running", Fault, "a VM is not running"},
	{"vm-provisioning", Doubt, "a VM is being made"},
	{"no-nic", Fault, "a VM has no NIC"},
	{"nic-no-network", Fault, "a NIC is on no network"},
	{"network-unknown", Fault, "a NIC is on a network that the log does not have"},
	{"nic-no-address", Fault, "a NIC has no address"},
	{"not-a-vm", Doubt, "a NIC is not that of a VM: Rutter does not make its links"},
	{"no-cn", Fault, "a NIC is on no compute node"},
	{"nic-elsewhere", Fault, "a NIC is on another compute node than its VM (`server_uuid`)"},
	{"vmm-elsewhere", Fault, "a NIC is on another compute node than the running VMM of its VM"},
	{"vm-migrating", Doubt, "a VM moves between two compute nodes"},
	{"vm-unplaced", Doubt, "the log does not say on which compute node a VM is"},
	{"cn-not-in-log", Doubt, "a compute node is not in the log"},
	{"cn-unknown", Doubt, "the status of a compute node is `unknown`: it sends nothing"},
	{"other-vnet", Fault, "the ends are on two vnets, or one is on no fabric"},
	{"no-gateway", Fault, "the ends are on two networks, and not both have a gateway"},
	{"routed", Doubt, "the ends are on two networks: a gateway or a router must pass packets on"},
	{"router-nobody", Fault, "no NIC has the address of the router that joins both networks"},
	{"gateway-shared", Doubt, "a gateway's address is one that a NIC may have among others (`allowed_ips`)"},
	{"gateway-nobody", Fault, "no NIC has the address of a fabric's gateway"},
	{"not-a-fabric", Note, "the physical network carries the packets, and no vnet"},
	{"mtu-differs", Doubt, "the networks of both ends have different MTUs"},
	{"no-underlay", Fault, "a compute node has no underlay NIC with an address"},
	{"underlay-family", Fault, "the underlay addresses are one of IPv4 and one of IPv6"},
	{"underlay-mtu", Doubt, "the underlay of a compute node carries less than the network's MTU"},
	{"underlay-differs", Doubt, "the underlay of one compute node sends larger packets than that of the other takes"},
	{"underlay-path", Doubt, "the path between both underlay addresses carries less than the links send"},
	{"entry-absent", Fault, "the log does not give an entry to the kernel that needs it"},
	{"as-of", Note, "the trace is of the past: what kernels had then is not recorded"},
	{"cn-silent", Fault, "a compute node has no session with any server"},
	{"cn-gone", Doubt, "the session of a compute node has ended"},
	{"cn-failing", Doubt, "steps fail in the kernel of a compute node"},
	{"cn-digest", Doubt, "the digest of a compute node differs from the log's"},
	{"cn-lagging", Fault, "a compute node has not programmed the seq that an entry follows from"},
	{"kernel-unknown", Note, "what a kernel has is not known: a doubt with `--live`"},
	{"kernel-part-unknown", Note, "a part of a kernel could not be read: a doubt with `--live`"},
	{"kernel-not-asked", Doubt, "with `--live`: a kernel was not asked, because its NIC is not one of a VM on a fabric"},
	{"kernel-counters-unknown", Note, "which counters of a kernel rise is not known"},
	{"kernel-link", Fault, "a kernel has no fabric link of the NIC"},
	{"kernel-vxlan", Fault, "a kernel has no VXLAN device of the vnet"},
	{"kernel-link-down", Fault, "a link on the way is down"},
	{"kernel-mac", Fault, "the link of a VM has another MAC than its NIC"},
	{"kernel-host-end", Fault, "the host's end of a VM's link is missing"},
	{"kernel-bridge", Fault, "a VM's port is in no bridge"},
	{"kernel-mtu", Doubt, "the link of a VM has a larger MTU than its network"},
	{"kernel-address", Fault, "the link of a VM has not the NIC's address"},
	{"kernel-tap-closed", Fault, "no program has the tap of a VM open"},
	{"kernel-neighbour-asked", Note, "the neighbour entry is asked for with the first packet"},
	{"kernel-neighbour", Fault, "the neighbour entry for the other end is missing"},
	{"kernel-neighbour-failed", Fault, "the neighbour entry for the other end has no MAC"},
	{"kernel-neighbour-mac", Fault, "the neighbour entry for the other end has another MAC"},
	{"kernel-forward-asked", Note, "the forwarding entry is asked for with the first packet"},
	{"kernel-forward", Fault, "the forwarding entry for the other end is missing"},
	{"kernel-forward-vtep", Fault, "the forwarding entry for the other end leads to another compute node"},
	{"kernel-security", Doubt, "a kernel cannot hold the rules of port security"},
	{"kernel-security-off", Note, "a compute node runs without port security"},
	{"kernel-peer", Fault, "a kernel does not take VXLAN packets from the other compute node"},
	{"kernel-rules", Fault, "the port of a NIC has no rules"},
	{"kernel-rules-relaxed", Doubt, "the rules of a port allow other things than the log"},
	{"kernel-rules-mac", Fault, "the rules of a port let through another MAC than the NIC's"},
	{"kernel-rules-address", Fault, "the rules of a port do not let through the NIC's address"},
	{"kernel-underlay-drops", Doubt, "packets were dropped at the underlay while the trace looked"},
	{"kernel-drops", Doubt, "packets were dropped at the port while the trace looked"},
	{"kernel-lost", Doubt, "a link lost packets while the trace looked"},
	{"kernel-dropped", Note, "packets were dropped at the port before"},
}
