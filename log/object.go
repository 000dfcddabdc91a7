package log

import (
	"net/netip"
	"slices"
)

// Object is a thing with an id: a pointer to the struct of one of the kinds, each
// of which has a file (kind_nic.go), or *Unknown for a kind that a newer program
// wrote.
//
// An object may be changed by the code that made it until it is handed to an event or
// a state; from then on it must not be changed (Clone first).
type Object interface {
	// Kind says which of the types it is.
	Kind() Kind
	// ID is the object's key within its kind, in text: a MAC with colons, a
	// tag's name, a UUID.
	ID() string
	// tail holds the encoded fields that this program does not know.
	tail() *extra
}

// extra carries fields that this program did not read, so that a round trip loses
// nothing. They have no JSON form.
type extra struct {
	raw [][]byte // the trailing fields of a newer program
	// unread are late fields whose bytes are not what a program writes that knows them, by
	// the feature version that brought them: all that were there of one version, encoded.
	// The fields themselves are unset. It is shared by clones, and never changed.
	unread map[uint32][][]byte
}

func (e *extra) tail() *extra { return e }

// HasUnknownFields reports whether an object carries fields of a newer program, or others
// that could not be read, which a copy of the fields that are known would lose.
func HasUnknownFields(o Object) bool { return len(o.tail().raw) > 0 || len(o.tail().unread) > 0 }

// Route is one static route of a network: packets to Dst (an address or a
// prefix, in text) leave through Gateway (an address, or "linklocal").
type Route struct{ Dst, Gateway string }

// Addresses is a list of addresses. None and an empty one, which the codec does
// not tell apart, have one JSON form: [].
type Addresses []netip.Addr

// Unknown is an object of a kind that this program does not know: its bytes are
// carried as they came.
type Unknown struct {
	OfKind Kind   `json:"kind"`
	Key    string `json:"id"`
	extra
}

// Kind implements Object.
func (u *Unknown) Kind() Kind { return u.OfKind }

// ID implements Object.
func (u *Unknown) ID() string { return u.Key }

// NewObject returns an empty object of kind k, or nil if this program does not
// know the kind.
func NewObject(k Kind) Object {
	row := k.row()
	if row == nil {
		return nil
	}
	return row.fields.newObject()
}

// Clone returns a copy of o that shares nothing which a writer of fields could
// change: slices are copied.
func Clone(o Object) Object {
	if u, is := o.(*Unknown); is {
		c := *u
		return &c
	}
	fields := rowOf(o).fields
	c := fields.shallow(o)
	fields.visit(c, unshare{})
	return c
}

// unshare is the visitor that gives every slice memory of its own.
type unshare struct{}

func (unshare) str(string, *string)             {}
func (unshare) boolean(string, *bool)           {}
func (unshare) u32(string, *uint32)             {}
func (unshare) u64(string, *uint64)             {}
func (unshare) time(string, *Time)              {}
func (unshare) uuid(string, *UUID)              {}
func (unshare) mac(string, *MAC)                {}
func (unshare) addr(string, *netip.Addr)        {}
func (unshare) prefix(string, *netip.Prefix)    {}
func (unshare) strs(_ string, p *[]string)      { *p = slices.Clone(*p) }
func (unshare) uuids(_ string, p *[]UUID)       { *p = slices.Clone(*p) }
func (unshare) macs(_ string, p *[]MAC)         { *p = slices.Clone(*p) }
func (unshare) u32s(_ string, p *[]uint32)      { *p = slices.Clone(*p) }
func (unshare) addrs(_ string, p *[]netip.Addr) { *p = slices.Clone(*p) }
func (unshare) routes(_ string, p *Routes)      { *p = slices.Clone(*p) }
