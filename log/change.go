package log

// Change is what a client asks for: accepted or refused as a whole.
//
// The client chooses ID (a version 7 UUID, whose time bounds how long a retry
// is recognised) and sends the same ID when it retries. The leader stamps Time
// and Seed before the change enters the log; from then on every server computes
// the same events from it.
type Change struct {
	ID    UUID
	Actor string
	Time  Time   // stamped by the leader
	Seed  uint64 // stamped by the leader; MACs and vnet ids are drawn from it
	Ops   []Op
	// Reverts are the entries that the change takes back, as its client says; each of its
	// events has them. They are no part of its content.
	Reverts Reverts
	By      Author // stamped by the server that the client asked
	// Content is what the ID belongs to, stamped by the server that the client
	// asked if Ops are not all that it was asked for (RequestContent), else by the
	// leader (Encoder.Content).
	Content Content
}

// Op is one operation of a change.
type Op struct {
	Action Action
	Kind   Kind
	// ID names the object of an update or delete. For a create it is taken
	// from Object; where that has none, it is drawn (MAC) or derived from the
	// change id and the place in Ops (UUID).
	ID string
	// IfMatch, if not 0, is the revision that the object must have.
	IfMatch Revision
	// IfSeq, if not 0, is the seq that its last event must have: a revision comes
	// again when an object is deleted and made again, a seq never. After an earlier
	// operation of the same change it is still that of the object before the
	// change, and 0 if the change made the object.
	IfSeq Seq
	// Set names the fields of Object that are meant, by JSON name, sorted: for
	// a create those that were given, for an update those that change.
	Set []string
	// Object holds the fields; nil for a delete.
	Object Object
	// Options are what the client asks for beside fields, sorted; see Option.
	Options []Option
}

// Option is something that an operation asks for and that is no field of its
// object. One that does not fit the operation is refused.
type Option string

// The options: NAPI's parameters that no object keeps (spec/napi.md section 3.1).
const (
	// OptionAnyOwner: an owner that the network, pool or address has not got is
	// accepted (check_owner: false; also for the administrator's own). NIC, IP.
	OptionAnyOwner Option = "any_owner"
	// OptionReserveIP: the address that a NIC has afterwards becomes reserved
	// (reserved: true). NIC.
	OptionReserveIP Option = "reserve_ip"
	// OptionReleaseIP: it is reserved no longer (reserved: false). NIC.
	OptionReleaseIP Option = "release_ip"
	// OptionNoNIC: refused (PreconditionFailed) if a NIC has the address: the condition of
	// a client that read it without one. IP, from FeatureTriton on.
	OptionNoNIC Option = "no_nic"
	// OptionLockOut: those who lose their last way in by it are meant. Revocation and
	// authority, from FeatureConfined on.
	OptionLockOut Option = "lock_out"
	// OptionAllocateSubnet: the subnet of a new fabric network is chosen among those that
	// are free on its vnet. What is sent is 0.0.0.0 with the prefix length (subnet_prefix).
	// Network, from FeatureTriton on.
	OptionAllocateSubnet Option = "allocate_subnet"
)

// Result is what became of a change. A retry of the same change id gets the
// first one's.
type Result struct {
	ChangeID UUID `json:"change_id"`
	// First and Last are the seqs of the change's events; both 0 if it was
	// refused. A change that altered nothing has First = Last = the seq of the
	// log's head when it was decided, and Events 0.
	First  Seq    `json:"first"`
	Last   Seq    `json:"last"`
	Events uint32 `json:"events"`
	// IDs are those of the objects of each op, in the order of Ops.
	IDs []string `json:"ids"`
	// Refusal, if not nil, says why the change was not accepted.
	Refusal *Refusal `json:"refusal,omitempty"`
}
