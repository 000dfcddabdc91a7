package log

// FeatureVersion is the highest version of behaviour that this program can
// apply. The replicated one decides what is written (SAFETY D1): whatever servers
// agree on, an event, a result, a refusal's text, what is remembered of change
// ids, is what the program of that version made, byte for byte.
const FeatureVersion = 7

// The feature versions. Code asks for the one that brought what it does.
const (
	// FeatureFirst is what there was before there was a second.
	FeatureFirst = 1
	// FeatureContained: what one change, client or clock can do to others ends at
	// limits that deciding knows. Refusals quote at most a part of what was sent,
	// results have a limit, an event that would be too large is refused, a change id
	// is bound to its content and its author, what is remembered of ids depends on
	// no client's clock, and an operator's entry can set the log's time back.
	FeatureContained = 2
	// FeatureConfined: what an author may mean ends at what was given to it. A compute
	// node makes and takes only what an operator, a task, a migration or an import has
	// placed on it, or what belongs to no other; a revocation reaches what stands before
	// it in the log, whatever any clock says.
	FeatureConfined = 3
	// FeaturePerNode: what differs from node to node is the log's. A compute node has a
	// VXLAN port of its own and the MTU of its underlay, each other node reads them at
	// its underlay NIC, and what a network of a vnet needs is compared with what the
	// underlays carry.
	FeaturePerNode = 4
	// FeatureWire: the log says what a fabric's wire does for its VMs. A fabric network has
	// DHCP answers and broadcast if it asks for them, and a VM's NIC may send from more
	// addresses than its own.
	FeatureWire = 5
	// FeatureTriton: the log keeps NAPI's and VMAPI's own rules. Network names are unique
	// per cloud, and per owner for fabrics; a fabric network says whether a NIC has its
	// gateway's address; a VM has VMAPI's other properties.
	FeatureTriton = 6
	// FeatureDeclared: the log says what people declare and what they take back. A change
	// may name the entries that it reverts, and each of its events does; objects of the
	// kinds that people declare have labels.
	FeatureDeclared = 7
)
