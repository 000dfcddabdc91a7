package log

import (
	"fmt"
	"slices"
	"strings"
)

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

// Role is what the author of a change may write, as each server decides it again
// in the log's order. The numbers stand in stored bytes.
type Role uint8

// The roles of authors.
const (
	// RoleTrusted: an operator, a server itself, or a client of a listener
	// that asks for no names. It is also what stands in changes without a role.
	RoleTrusted Role = 0
	// RoleCN: a compute node, Author.CN. It writes about itself.
	RoleCN Role = 1
	// RoleReader writes nothing.
	RoleReader Role = 2
	// RoleForeign: a program without a name that may write objects, but nothing
	// that says who may do what.
	RoleForeign Role = 3
)

var roleNames = [...]string{RoleTrusted: "trusted", RoleCN: "cn", RoleReader: "reader", RoleForeign: "foreign"}

// String returns the role's name, or role(N) for an unknown one.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Author is what the server that took a change knows of who asks for it. Clients
// cannot choose it; servers that forward the change keep it. It is comparable.
type Author struct {
	Role Role
	CN   UUID // of RoleCN
}

// stampFields returns how many fields encodeStamps writes.
func (c *Change) stampFields() int {
	switch {
	case len(c.Reverts) > 0:
		return authorFields + 2
	case !c.Content.IsZero():
		return authorFields + 1
	case c.By != (Author{}):
		return authorFields
	}
	return 0
}

// encodeStamps writes the author, the content and what is reverted, as far as there are any.
func (c *Change) encodeStamps(v *encoder) {
	n := c.stampFields()
	if n > 0 {
		v.uint(uint64(c.By.Role))
		v.id(&c.By.CN)
	}
	if n > authorFields {
		v.bin(c.Content[:])
	}
	if n > authorFields+1 {
		c.Reverts.encode(v)
	}
}

func (c *Change) decodeStamps(v *decoder) {
	v.u8((*uint8)(&c.By.Role))
	v.uuid("", &c.By.CN)
	copy(c.Content[:], v.bin(len(c.Content)))
	if v.strict >= FeatureDeclared { // programs of before pass over it, whatever it is
		c.Reverts.decode(v)
	}
}

// MaxReverts bounds Reverts: each event of a change carries all of it.
const MaxReverts = 32

// SeqRange are the entries from First to Last, both of them included.
type SeqRange struct{ First, Last Seq }

// Reverts names the entries that a change takes back: ranges in the order of the log, none
// of which meets the next, at most MaxReverts. A change that takes back nothing has none.
// From FeatureDeclared on; before, programs do not know it.
type Reverts []SeqRange

// RevertsOf returns the ranges of entries, in any order, each of which may be named twice.
// If they are more than MaxReverts, those with the smallest gaps between them are joined:
// the ranges then say more than was meant, and never less.
func RevertsOf(seqs []Seq) Reverts {
	var r Reverts
	for _, seq := range slices.Sorted(slices.Values(seqs)) {
		if n := len(r); n > 0 && seq <= r[n-1].Last+1 {
			r[n-1].Last = seq
			continue
		}
		r = append(r, SeqRange{seq, seq})
	}
	if len(r) <= MaxReverts {
		return r
	}
	gaps := make([]int, len(r)-1) // places of ranges behind which a gap is, the largest gap first
	for i := range gaps {
		gaps[i] = i
	}
	slices.SortStableFunc(gaps, func(a, b int) int {
		x, y := r[a+1].First-r[a].Last, r[b+1].First-r[b].Last
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	kept := slices.Sorted(slices.Values(gaps[:MaxReverts-1]))
	joined := make(Reverts, 0, MaxReverts)
	first := 0
	for _, i := range append(kept, len(r)-1) {
		joined = append(joined, SeqRange{r[first].First, r[i].Last})
		first = i + 1
	}
	return joined
}

// Check returns what is wrong with ranges that a client sent, or nil.
func (r Reverts) Check() error {
	if len(r) > MaxReverts {
		return fmt.Errorf("%d ranges of entries are over %d: join neighbours", len(r), MaxReverts)
	}
	for i, s := range r {
		switch {
		case s.First == 0 || s.Last < s.First:
			return fmt.Errorf("range %d of entries is #%s-#%s: a range begins at 1 or later, and does not end before", i+1, s.First, s.Last)
		case i > 0 && s.First <= r[i-1].Last:
			return fmt.Errorf("range %d of entries begins at #%s, and the one before ends at #%s: they must be in order", i+1, s.First, r[i-1].Last)
		}
	}
	return nil
}

// Has reports whether an entry is one of them.
func (r Reverts) Has(seq Seq) bool {
	return slices.ContainsFunc(r, func(s SeqRange) bool { return s.First <= seq && seq <= s.Last })
}

// String returns the form that people read, as in "#1042,#1050-#1060"; "" for none.
func (r Reverts) String() string {
	var b strings.Builder
	for i, s := range r {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("#" + s.First.String())
		if s.Last != s.First {
			b.WriteString("-#" + s.Last.String())
		}
	}
	return b.String()
}

// ParseReverts reads what String returns; the # may be missing.
func ParseReverts(text string) (r Reverts, err error) {
	if text == "" {
		return nil, nil
	}
	if n := strings.Count(text, ",") + 1; n > MaxReverts {
		return nil, fmt.Errorf("%d ranges of entries are over %d: join neighbours", n, MaxReverts)
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, is := strings.Cut(part, "-")
		var s SeqRange
		if s.First, err = ParseSeq(strings.TrimPrefix(first, "#")); err == nil {
			if s.Last = s.First; is {
				s.Last, err = ParseSeq(strings.TrimPrefix(last, "#"))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s names no entries: send seqs and ranges of them, as in #1042,#1050-#1060", Quote(text))
		}
		r = append(r, s)
	}
	return r, r.Check()
}

// MarshalText implements encoding.TextMarshaler.
func (r Reverts) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Reverts) UnmarshalText(text []byte) (err error) {
	*r, err = ParseReverts(string(text))
	return err
}

// encode writes the ranges as a flat array of first and last seqs.
func (r Reverts) encode(v *encoder) {
	v.array(2 * len(r))
	for _, s := range r {
		v.uint(uint64(s.First))
		v.uint(uint64(s.Last))
	}
}

func (r *Reverts) decode(v *decoder) {
	flat := list(v, func(n *Seq) { v.u64("", (*uint64)(n)) })
	if len(flat)%2 != 0 {
		v.fail(fmt.Errorf("ranges of entries of %d numbers, which is odd", len(flat)))
		return
	}
	for i := 0; i < len(flat); i += 2 {
		*r = append(*r, SeqRange{flat[i], flat[i+1]})
	}
}
