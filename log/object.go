package log

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// The limits of labels.
const (
	MaxLabels          = 16
	MaxLabelKeyBytes   = 63
	MaxLabelValueBytes = 63
)

// Labelled is an object of a kind that people declare: it has labels, from FeatureDeclared
// on. They are texts KEY=VALUE, sorted, each key once, at most MaxLabels. A key has 1 to
// MaxLabelKeyBytes of [a-z0-9._/-], a value up to MaxLabelValueBytes printable bytes of
// ASCII without a comma.
type Labelled interface {
	Object
	// LabelList returns the object's own list.
	LabelList() *[]string
}

// LabelsOf returns the labels of an object, for those who set them; nil if its kind has none.
func LabelsOf(o Object) *[]string {
	if l, ok := o.(Labelled); ok {
		return l.LabelList()
	}
	return nil
}

// CheckLabels returns what is wrong with labels, and what to do, or nil. They are sorted.
func CheckLabels(labels []string) (problem, remedy string) {
	if len(labels) > MaxLabels {
		return fmt.Sprintf("%d labels are over %d", len(labels), MaxLabels), "send fewer"
	}
	before := ""
	for i, label := range labels {
		key, value, is := strings.Cut(label, "=")
		switch {
		case !is:
			return fmt.Sprintf(`"%s" is no label`, Quote(label)), "send KEY=VALUE, as in set=web"
		case key == "" || len(key) > MaxLabelKeyBytes || strings.ContainsFunc(key, notOfKey):
			return fmt.Sprintf(`the key of label "%s" is none`, Quote(label)), fmt.Sprintf("use 1 to %d of the characters a-z, 0-9, dot, underscore, slash and hyphen", MaxLabelKeyBytes)
		case len(value) > MaxLabelValueBytes || strings.ContainsFunc(value, notPrintable):
			return fmt.Sprintf(`the value of label "%s" is none`, Quote(label)), fmt.Sprintf("use up to %d printable characters of ASCII without a comma", MaxLabelValueBytes)
		case i > 0 && key == before:
			return fmt.Sprintf(`the key of label "%s" is there twice`, Quote(label)), "send each key once"
		}
		before = key
	}
	return "", ""
}

func notOfKey(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._/-", r)
}

// notPrintable: a comma parts labels where a list is one text.
func notPrintable(r rune) bool { return r < ' ' || r > '~' || r == ',' }

// SortLabels sorts labels by key.
func SortLabels(labels []string) {
	slices.SortStableFunc(labels, func(a, b string) int {
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
}

// labelsText is the documentation of labels, which is that of each kind.
const labelsText = "Labels as KEY=VALUE, each key once, by which objects are found and sets of documents named."

// FieldLabels is the JSON name of labels.
const FieldLabels = "labels"

// labels shows the labels of an object to v: the last field of a kind.
func labels(v visitor, p *[]string) {
	if takes(v, FeatureDeclared) {
		v.strs(FieldLabels, p)
	}
}
