package log

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// FormatVersion is the first byte of everything that this package encodes. A
// field that is appended to an array does not change it; anything that an older
// reader would misread does.
//
// An event, as it is stored, sent and hashed:
//
//	0      1
//	| vers | msgpack array [kind, action, id, revision, time, actor, change id,
//	|      |   more, scopes, object, changed, reverts, …]
//
//	kind, action, revision, more  unsigned   scopes   array of bin: type byte, then vnet (4) or uuid (16)
//	time      signed, ns since 1970          object   array of fields, in the order of its kind's file
//	id, actor string                         changed  array of alternating path (string) and old value
//	reverts   array of alternating first and last seq, if there are any
//	change id bin 16
//
// A change, as a client's write stream and the raft log carry it:
//
//	0      1
//	| vers | msgpack array [id, actor, time, seed, ops, role, cn, content (bin 16), reverts, …]
//	op: array [action, kind, id, if-match, set (array of strings), object (array, or nil), options (array of
//	    strings, if there are any or if-seq follows), if-seq (unless it is 0), …]
//
// A batch is one raft entry:
//
//	0      1
//	| vers | then for each change: length (4 bytes, big endian), the change's bytes
//
// UUIDs, MACs and addresses are bin of their natural size, or of size 0 for
// "none"; a prefix is the address and one byte of length. Readers skip what
// they do not know and keep it, and default what is missing.
const FormatVersion = 1

// An Encoder turns events and changes into bytes, and keeps its buffers
// between calls. It must not be used concurrently.
type Encoder struct {
	v    encoder
	room Room
}

// NewEncoder returns an Encoder. What it returns are bytes of their own.
func NewEncoder() *Encoder { return new(Encoder) }

// NewSharingEncoder returns an Encoder whose results lie in a Room of this size.
func NewSharingEncoder(size int) *Encoder { return &Encoder{room: Room{Size: size}} }

// Own returns a copy of b, in memory as that of results.
func (e *Encoder) Own(b []byte) []byte { return append(e.room.Take(len(b)), b...) }

// Room is memory for many short slices that are kept, and let go, in their order: taken Size
// bytes at once, which live as long as one of the slices in them. What is longer than a
// quarter of that has memory of its own; the zero Room gives each its own.
type Room struct {
	Size int
	free []byte
}

// Take returns an empty slice to which n bytes can be appended, and nothing beyond.
func (r *Room) Take(n int) []byte {
	if n > r.Size/4 {
		return make([]byte, 0, n)
	}
	if len(r.free) < n {
		r.free = make([]byte, r.Size)
	}
	b := r.free[:0:n]
	r.free = r.free[n:]
	return b
}

// Event returns the encoded event in bytes of their own.
func (e *Encoder) Event(event *Event) ([]byte, error) {
	b, _, err := e.EventAndBody(event)
	return b, err
}

// EventAndBody returns the encoded event in bytes of their own, and the part of
// them that is its object: what Encoder.Object gives, except for the format byte
// before it. Who needs both has the object encoded once.
func (e *Encoder) EventAndBody(event *Event) (encoded, body []byte, err error) {
	e.begin()
	event.encode(&e.v)
	b, err := e.end()
	if err != nil {
		return nil, nil, fmt.Errorf("encode event of %s %s: %w", event.Kind, event.ID, err)
	}
	if len(b) > MaxEventBytes {
		return nil, nil, fmt.Errorf("event of %s %s has %d bytes, over %d: %w", event.Kind, event.ID, len(b), MaxEventBytes, ErrTooLarge)
	}
	from, to := e.v.body.from, e.v.body.to
	return b, b[from:to:to], nil
}

// Change returns the encoded change in bytes of their own.
func (e *Encoder) Change(c *Change) ([]byte, error) {
	e.begin()
	c.encode(&e.v)
	b, err := e.end()
	if err != nil {
		return nil, fmt.Errorf("encode change %s: %w", c.ID, err)
	}
	if len(b) > MaxChangeBytes {
		return nil, fmt.Errorf("change %s has %d bytes, over %d: split it: %w", c.ID, len(b), MaxChangeBytes, ErrTooLarge)
	}
	return b, nil
}

// Result returns the encoded result in bytes of their own.
func (e *Encoder) Result(r *Result) ([]byte, error) {
	e.begin()
	r.encode(&e.v)
	return e.end()
}

// AppendResult appends the encoded result to b, of which it keeps nothing.
func (e *Encoder) AppendResult(b []byte, r *Result) ([]byte, error) {
	e.begin()
	r.encode(&e.v)
	return append(b, e.v.b...), e.v.err
}

// Object returns the encoded object in bytes of their own: the format byte,
// then the object's array.
func (e *Encoder) Object(o Object) ([]byte, error) {
	e.begin()
	e.v.object(o)
	return e.end()
}

// keptEncoded is what an Encoder keeps of its buffer at most between calls.
const keptEncoded = 64 << 10

func (e *Encoder) begin() {
	if cap(e.v.b) > keptEncoded {
		e.v.b = nil
	}
	e.v.b, e.v.err = append(e.v.b[:0], FormatVersion), nil
}

func (e *Encoder) end() ([]byte, error) {
	if e.v.err != nil {
		return nil, e.v.err
	}
	return e.Own(e.v.b), nil
}

// decode checks the format byte and reads what follows with get; nothing may be left.
func decode(b []byte, limit int, what string, get func(*decoder)) error {
	return newDecoder(nil).whole(b, limit, what, get)
}

// whole is decode by a decoder that is made already.
func (v *decoder) whole(b []byte, limit int, what string, get func(*decoder)) error {
	if len(b) == 0 {
		return fmt.Errorf("%s of no bytes: %w", what, ErrCorrupt)
	}
	if len(b) > limit {
		return fmt.Errorf("%s of %d bytes, over %d: %w", what, len(b), limit, ErrTooLarge)
	}
	if b[0] != FormatVersion {
		return fmt.Errorf("%s of format %d, and this program knows %d: %w", what, b[0], FormatVersion, ErrFormat)
	}
	v.u.b = b[1:]
	get(v)
	if v.err == nil && len(v.u.b) > 0 {
		v.fail(fmt.Errorf("%d bytes after the end", len(v.u.b)))
	}
	if v.err != nil {
		return fmt.Errorf("decode %s: %w", what, v.err)
	}
	return nil
}

// DecodeEvent reads an event. Its texts share one piece of memory, as long as b.
// Errors: ErrCorrupt, ErrFormat, ErrTooLarge.
func DecodeEvent(b []byte) (*Event, error) {
	e := new(Event)
	err := decode(b, MaxEventBytes, "event", func(v *decoder) {
		v.text = string(v.u.b)
		e.decode(v)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// DecodeEventAndBody is DecodeEvent, and returns the part of b that is the
// event's object: what EventAndBody gave, or nil if it is not what this program
// would write, since it has other fields.
func DecodeEventAndBody(b []byte) (e *Event, body []byte, err error) {
	e = new(Event)
	err = decode(b, MaxEventBytes, "event", func(v *decoder) {
		e.decode(v)
		body = v.body
	})
	if err != nil {
		return nil, nil, err
	}
	return e, body, nil
}

// DecodeEventHead reads what says whom an event concerns: all but Object, Changed
// and what a newer program wrote, which are not looked at. It costs a fraction of
// DecodeEvent. Errors: as DecodeEvent's, as far as it has looked.
func DecodeEventHead(b []byte) (*Event, error) {
	e := new(Event)
	err := decode(b, MaxEventBytes, "event", func(v *decoder) {
		e.decodeHead(v)
		v.u.b = nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// EventObject reads which object an event is about, what became of it, and the
// part of b that is the object: what EventAndBody gave. Of the event it returns
// Kind, Action, ID and Revision, and looks at nothing else. Errors: as
// DecodeEvent's, as far as it has looked.
func EventObject(b []byte) (e Event, body []byte, err error) {
	err = decode(b, MaxEventBytes, "event", func(v *decoder) {
		v.enter()
		v.u8((*uint8)(&e.Kind))
		v.u8((*uint8)(&e.Action))
		v.str("", &e.ID)
		v.u64("", (*uint64)(&e.Revision))
		for range eventFieldsBefore - 4 {
			_, err := v.u.skip()
			v.fail(err)
		}
		body, err = v.u.skip()
		v.fail(err)
		v.u.b = nil
	})
	return e, body, err
}

// DecodeChange reads a change, as a program reads it in a cluster of its own feature
// version. Errors: ErrCorrupt, ErrFormat, ErrTooLarge.
func DecodeChange(b []byte) (*Change, error) {
	c := new(Change)
	if err := decode(b, MaxChangeBytes, "change", c.decode); err != nil {
		return nil, err
	}
	return c, nil
}

// ChangeDecoder reads one change after the other, which costs less than
// DecodeChange for each: most name the same fields as one before them, so it
// remembers the lists of names. The zero value is ready. Not for concurrent use.
type ChangeDecoder struct {
	v    decoder
	sets fieldSets
}

// Change is DecodeChange. The operations' Set may be shared with other changes.
func (d *ChangeDecoder) Change(b []byte) (*Change, error) { return d.ChangeAt(FeatureVersion, b) }

// ChangeAt is Change in a cluster of a feature version. Late fields that this version or
// one before brought must be those of their types. Those of later versions are carried as
// programs carry them that do not know them: what cannot be read of them is kept unread, so
// that all servers store the same bytes (SAFETY D1).
func (d *ChangeDecoder) ChangeAt(feature uint32, b []byte) (*Change, error) {
	d.v = decoder{left: 1, sets: &d.sets, strict: feature}
	c := new(Change)
	err := d.v.whole(b, MaxChangeBytes, "change", c.decode)
	d.v = decoder{}
	if err != nil {
		return nil, err
	}
	return c, nil
}

const (
	// keptSets is how many lists of names a ChangeDecoder remembers, the newest;
	// maxKeptSet is how long one may be, in bytes.
	keptSets   = 8
	maxKeptSet = 512
)

// fieldSets remembers lists of names, by how they are encoded.
type fieldSets struct {
	kept [keptSets]fieldSet
	next int // place of the oldest
}

type fieldSet struct {
	raw   []byte
	names []string
}

// read reads a list of names. An encoded list says where it ends, so that what
// begins with the bytes of one is that one.
func (f *fieldSets) read(v *decoder, p *[]string) {
	if v.err != nil || v.left == 0 {
		return
	}
	before := v.u.b
	for i := range f.kept {
		if k := &f.kept[i]; len(k.raw) > 0 && bytes.HasPrefix(before, k.raw) {
			v.u.b, *p = before[len(k.raw):], k.names
			v.left--
			return
		}
	}
	v.strs("", p)
	raw := before[:len(before)-len(v.u.b)]
	if v.err == nil && len(*p) > 0 && len(raw) <= maxKeptSet {
		f.kept[f.next] = fieldSet{bytes.Clone(raw), slices.Clip(*p)}
		*p = f.kept[f.next].names
		f.next = (f.next + 1) % keptSets
	}
}

// DecodeResult reads a result of any size: those that servers of the first
// feature version agreed on have no limit, and must be read again after an upgrade.
// Who reads one from a connection bounds its frame. Errors: ErrCorrupt, ErrFormat.
func DecodeResult(b []byte) (*Result, error) {
	r := new(Result)
	if err := decode(b, math.MaxInt, "result", r.decode); err != nil {
		return nil, err
	}
	return r, nil
}

// DecodeObject reads an object of kind; id is kept for kinds that this program
// does not know. Errors: ErrCorrupt, ErrFormat, ErrTooLarge.
func DecodeObject(kind Kind, id string, b []byte) (Object, error) {
	var o Object
	if err := decode(b, MaxEventBytes, kind.String(), func(v *decoder) { o = v.object(kind, id) }); err != nil {
		return nil, err
	}
	return o, nil
}

// DecodeObjectAndBody is DecodeObject, and returns the part of b after the format
// byte, or nil if it is not what this program would write.
func DecodeObjectAndBody(kind Kind, id string, b []byte) (o Object, body []byte, err error) {
	err = decode(b, MaxEventBytes, kind.String(), func(v *decoder) {
		o = v.object(kind, id)
		body = v.body
	})
	if err != nil {
		return nil, nil, err
	}
	return o, body, nil
}

// AppendBatch appends one encoded change to a batch; an empty batch is nil.
func AppendBatch(batch, change []byte) []byte {
	if len(batch) == 0 {
		batch = append(batch, FormatVersion)
	}
	batch = binary.BigEndian.AppendUint32(batch, uint32(len(change)))
	return append(batch, change...)
}

const (
	// usualChange is what a small change takes in a batch, in bytes; maxSplitRoom
	// bounds the changes for which SplitBatch makes room before it finds them.
	usualChange  = 256
	maxSplitRoom = 4096
)

// SplitBatch returns the encoded changes of a batch, which share its memory.
func SplitBatch(batch []byte) ([][]byte, error) {
	if len(batch) == 0 {
		return nil, fmt.Errorf("batch of no bytes: %w", ErrCorrupt)
	}
	if batch[0] != FormatVersion {
		return nil, fmt.Errorf("batch of format %d, and this program knows %d: %w", batch[0], FormatVersion, ErrFormat)
	}
	changes := make([][]byte, 0, min(len(batch)/usualChange+1, maxSplitRoom))
	for rest := batch[1:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, fmt.Errorf("batch ends inside a length: %w", ErrCorrupt)
		}
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if uint64(n) > uint64(len(rest)) {
			return nil, fmt.Errorf("batch ends inside a change of %d bytes: %w", n, ErrCorrupt)
		}
		changes = append(changes, rest[:n:n])
		rest = rest[n:]
	}
	return changes, nil
}

// ChangeID returns the id of an encoded change, also of one that does not decode
// behind its id; false if there is none to be found.
func ChangeID(b []byte) (id UUID, ok bool) {
	if len(b) == 0 || b[0] != FormatVersion {
		return UUID{}, false
	}
	v := newDecoder(nil)
	v.u.b = b[1:]
	v.enter()
	v.uuid("", &id)
	return id, v.err == nil && !id.IsZero()
}
