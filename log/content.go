package log

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
)

// Content says what a change asks for: the first 128 bits of a SHA-256. A change id
// belongs to one content, and a retry has the same. The zero one is none: it is not
// known what was asked for.
type Content [16]byte

// IsZero reports whether there is none.
func (c Content) IsZero() bool { return c == Content{} }

func contentOf(b []byte) Content {
	full := sha256.Sum256(b)
	return Content(full[:16])
}

// Content returns the content of a change's operations. Stamps, author and actor
// are no part of it, nor is anything that another encoding of the same operations
// would have otherwise: the order of Set and Options, for an update the fields that
// are not in Set, and fields at the end that are not set, of which a newer program
// may write more.
func (e *Encoder) Content(c *Change) (Content, error) {
	e.begin()
	for i := range c.Ops {
		e.v.opContent(&c.Ops[i])
	}
	return contentOf(e.v.b), e.v.err
}

func (v *encoder) opContent(op *Op) {
	v.uint(uint64(op.Action))
	v.uint(uint64(op.Kind))
	v.text(op.ID)
	v.uint(uint64(op.IfMatch))
	v.uint(uint64(op.IfSeq))
	set := sorted(op.Set)
	v.strs("", &set)
	options := sorted(op.Options)
	v.array(len(options))
	for _, o := range options {
		v.text(string(o))
	}
	if op.Object == nil {
		v.null()
		return
	}
	f := fieldsMeant{v: v, set: set, all: op.Action == Create, end: len(v.b)}
	visit(op.Object, &f)
	for _, raw := range op.Object.tail().raw {
		from := len(v.b)
		v.b = append(v.b, raw...)
		f.ends(from)
	}
	v.b = append(v.b[:f.end], codeNever) // where the fields end
}

// sorted returns a list in order; it is nearly always that already.
func sorted[T ~string](list []T) []T {
	if slices.IsSorted(list) {
		return list
	}
	return slices.Sorted(slices.Values(list))
}

// codeNever begins no value of msgpack.
const codeNever = 0xc1

// fieldsMeant is the visitor that writes the fields that an operation means, and
// nil in the place of each other one. end is after the last that is not empty.
type fieldsMeant struct {
	v   *encoder
	set []string // sorted
	all bool     // every field is meant
	end int
}

// means reports whether a field is meant; else it has written nil for it.
func (f *fieldsMeant) means(name string) (from int, ok bool) {
	if !f.all {
		if _, ok := slices.BinarySearch(f.set, name); !ok {
			f.v.null()
			return 0, false
		}
	}
	return len(f.v.b), true
}

// ends notes a field that was written from a place on.
func (f *fieldsMeant) ends(from int) {
	switch b := f.v.b[from:]; {
	case len(b) == 1 && (b[0] == 0 || b[0] == codeNil || b[0] == codeFalse || b[0] == codeFixStr || b[0] == codeFixArray):
	case len(b) == 2 && b[0] == codeBin8 && b[1] == 0:
	default:
		f.end = len(f.v.b)
	}
}

// show writes a field, if it is meant, by the method of the encoder for its type.
func show[T any](f *fieldsMeant, name string, p *T, write func(v *encoder, name string, p *T)) {
	if from, ok := f.means(name); ok {
		write(f.v, name, p)
		f.ends(from)
	}
}

func (f *fieldsMeant) str(name string, p *string)          { show(f, name, p, (*encoder).str) }
func (f *fieldsMeant) boolean(name string, p *bool)        { show(f, name, p, (*encoder).boolean) }
func (f *fieldsMeant) u32(name string, p *uint32)          { show(f, name, p, (*encoder).u32) }
func (f *fieldsMeant) u64(name string, p *uint64)          { show(f, name, p, (*encoder).u64) }
func (f *fieldsMeant) time(name string, p *Time)           { show(f, name, p, (*encoder).time) }
func (f *fieldsMeant) uuid(name string, p *UUID)           { show(f, name, p, (*encoder).uuid) }
func (f *fieldsMeant) mac(name string, p *MAC)             { show(f, name, p, (*encoder).mac) }
func (f *fieldsMeant) addr(name string, p *netip.Addr)     { show(f, name, p, (*encoder).addr) }
func (f *fieldsMeant) prefix(name string, p *netip.Prefix) { show(f, name, p, (*encoder).prefix) }
func (f *fieldsMeant) strs(name string, p *[]string)       { show(f, name, p, (*encoder).strs) }
func (f *fieldsMeant) uuids(name string, p *[]UUID)        { show(f, name, p, (*encoder).uuids) }
func (f *fieldsMeant) macs(name string, p *[]MAC)          { show(f, name, p, (*encoder).macs) }
func (f *fieldsMeant) u32s(name string, p *[]uint32)       { show(f, name, p, (*encoder).u32s) }
func (f *fieldsMeant) addrs(name string, p *[]netip.Addr)  { show(f, name, p, (*encoder).addrs) }
func (f *fieldsMeant) routes(name string, p *Routes)       { show(f, name, p, (*encoder).routes) }

// RequestContent is the content of a change that a server makes of a request and of
// what there is: a retry of the same request may find something else, make other
// operations of it, and is the same change. Of a JSON body neither blanks nor the
// order of keys count.
func RequestContent(method, path, query string, body []byte) Content {
	if canonical, ok := canonicalJSON(body); ok {
		body = canonical
	}
	var b []byte
	for _, part := range [...]string{method, path, query, string(body)} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return contentOf(b)
}

// canonicalJSON returns a value with sorted keys and without blanks; numbers stay
// as they are written.
func canonicalJSON(raw []byte) ([]byte, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil, false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	b, err := json.Marshal(v)
	return b, err == nil
}

// Asker names who asks for a change, as far as that stays the same from one try to
// the next: the first 128 bits of a SHA-256.
type Asker [16]byte

// anonymous begins the actor of who was not asked for a name; an address follows,
// and a program has several.
const anonymous = "anonymous@"

// Asker returns who asks for the change: the role, and the compute node or the
// actor. All who reached a server without a name are one, and all programs that
// are known by their address are one.
func (c *Change) Asker() Asker {
	actor := c.Actor
	switch {
	case c.By.Role == RoleCN, c.By.Role == RoleForeign:
		actor = ""
	case strings.HasPrefix(actor, anonymous):
		actor = anonymous
	}
	b := make([]byte, 0, 128) // most fit: nothing on the heap
	b = append(b, byte(c.By.Role))
	b = append(append(b, c.By.CN[:]...), actor...)
	return Asker(contentOf(b))
}
