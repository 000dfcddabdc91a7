package log

import (
	"bytes"
	"errors"

	"github.com/vmihailenco/msgpack/v5"
)

// Field counts of the arrays that this program writes; format.go has the tables.
const (
	eventFields = 11
	// eventFieldsBefore is how many of them stand before the object.
	eventFieldsBefore = 9
	changeFields      = 5
	authorFields      = 2 // more of a change, unless they are both zero
	opFields          = 6
	resultFields      = 6
	refusalFields     = 3
	elementFields     = 6
)

// encodeRaw hands what write makes to the library's encoder.
func encodeRaw(enc *msgpack.Encoder, write func(*encoder)) error {
	var v encoder
	if write(&v); v.err != nil {
		return v.err
	}
	_, err := enc.Writer().Write(v.b)
	return err
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (e *Event) EncodeMsgpack(enc *msgpack.Encoder) error { return encodeRaw(enc, e.encode) }

func (e *Event) encode(v *encoder) {
	more := len(e.raw)
	if more > 0 || len(e.Reverts) > 0 {
		more++ // what stands behind it keeps its place
	}
	v.array(eventFields + more)
	v.uint(uint64(e.Kind))
	v.uint(uint64(e.Action))
	v.text(e.ID)
	v.uint(uint64(e.Revision))
	v.time("", &e.Time)
	v.text(e.Actor)
	v.id(&e.ChangeID)
	v.uint(uint64(e.More))
	v.array(len(e.Scopes))
	var b [17]byte
	for _, s := range e.Scopes {
		scope, _ := s.AppendBinary(b[:0])
		v.bin(scope)
	}
	v.object(e.Object)
	v.array(2 * len(e.Changed))
	for _, c := range e.Changed {
		v.text(c.Path)
		v.value(c.Old)
	}
	if more > 0 {
		e.Reverts.encode(v)
	}
	v.extras(e.raw)
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (e *Event) DecodeMsgpack(dec *msgpack.Decoder) error { return decodeRaw(dec, e.decode) }

// decodeRaw hands the next element's bytes to get.
func decodeRaw(dec *msgpack.Decoder, get func(*decoder)) error {
	raw, err := dec.DecodeRaw()
	if err != nil {
		return err
	}
	v := newDecoder(raw)
	get(v)
	return v.err
}

func (e *Event) decode(v *decoder) {
	outer := e.decodeHead(v)
	e.Object = v.object(e.Kind, e.ID)
	changed := v.enter()
	for v.left > 1 && v.err == nil {
		var c FieldChange
		v.str("", &c.Path)
		c.Old = v.value()
		e.Changed = append(e.Changed, c)
	}
	v.leave(changed)
	e.Reverts.decode(v)
	e.raw = v.leave(outer)
}

// decodeHead reads what stands before the object.
func (e *Event) decodeHead(v *decoder) (outer int) {
	outer = v.enter()
	v.u8((*uint8)(&e.Kind))
	v.u8((*uint8)(&e.Action))
	v.str("", &e.ID)
	v.u64("", (*uint64)(&e.Revision))
	v.time("", &e.Time)
	v.str("", &e.Actor)
	v.uuid("", &e.ChangeID)
	v.u32("", &e.More)
	e.Scopes = list(v, func(s *Scope) {
		if !v.more() {
			return
		}
		b, err := v.u.shared()
		if err == nil {
			err = s.UnmarshalBinary(b)
		}
		v.fail(err)
	})
	return outer
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (c *Change) EncodeMsgpack(enc *msgpack.Encoder) error { return encodeRaw(enc, c.encode) }

func (c *Change) encode(v *encoder) {
	v.array(changeFields + c.stampFields())
	v.id(&c.ID)
	v.text(c.Actor)
	v.time("", &c.Time)
	v.uint(c.Seed)
	v.array(len(c.Ops))
	for i := range c.Ops {
		v.op(&c.Ops[i])
	}
	c.encodeStamps(v)
}

func (v *encoder) op(op *Op) {
	n := opFields
	switch {
	case op.IfSeq != 0:
		n += 2 // options stand before it
	case len(op.Options) > 0:
		n++
	}
	v.array(n)
	v.uint(uint64(op.Action))
	v.uint(uint64(op.Kind))
	v.text(op.ID)
	v.uint(uint64(op.IfMatch))
	v.strs("", &op.Set)
	if op.Object == nil {
		v.null()
	} else {
		v.object(withoutUnread(op.Object))
	}
	if n > opFields {
		v.array(len(op.Options))
		for _, o := range op.Options {
			v.text(string(o))
		}
	}
	if op.IfSeq != 0 {
		v.uint(uint64(op.IfSeq))
	}
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (c *Change) DecodeMsgpack(dec *msgpack.Decoder) error { return decodeRaw(dec, c.decode) }

func (c *Change) decode(v *decoder) {
	if v.strict == 0 {
		v.strict = FeatureVersion
	}
	outer := v.enter()
	v.uuid("", &c.ID)
	v.str("", &c.Actor)
	v.time("", &c.Time)
	v.u64("", &c.Seed)
	c.Ops = list(v, v.op)
	c.decodeStamps(v)
	v.leave(outer)
}

func (v *decoder) op(op *Op) {
	outer := v.enter()
	v.u8((*uint8)(&op.Action))
	v.u8((*uint8)(&op.Kind))
	v.str("", &op.ID)
	v.u64("", (*uint64)(&op.IfMatch))
	if v.sets != nil {
		v.sets.read(v, &op.Set)
	} else {
		v.strs("", &op.Set)
	}
	if v.err == nil && v.left > 0 {
		if len(v.u.b) > 0 && v.u.b[0] != codeNil {
			op.Object = v.object(op.Kind, op.ID)
		} else {
			v.value()
		}
	}
	op.Options = list(v, func(o *Option) { v.str("", (*string)(o)) })
	v.u64("", (*uint64)(&op.IfSeq))
	v.leave(outer)
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (r *Result) EncodeMsgpack(enc *msgpack.Encoder) error { return encodeRaw(enc, r.encode) }

func (r *Result) encode(v *encoder) {
	v.array(resultFields)
	v.id(&r.ChangeID)
	v.uint(uint64(r.First))
	v.uint(uint64(r.Last))
	v.uint(uint64(r.Events))
	v.strs("", &r.IDs)
	if r.Refusal == nil {
		v.array(0)
		return
	}
	v.array(refusalFields)
	v.text(r.Refusal.Code)
	v.text(r.Refusal.Message)
	v.array(len(r.Refusal.Errors))
	for _, e := range r.Refusal.Errors {
		n := elementFields
		if len(e.Invalid) > 0 {
			n++
		}
		v.array(n)
		for _, s := range [...]string{e.Field, e.Code, e.Message, e.Remedy, e.Type, e.ID} {
			v.text(s)
		}
		if len(e.Invalid) > 0 {
			v.strs("", &e.Invalid)
		}
	}
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (r *Result) DecodeMsgpack(dec *msgpack.Decoder) error { return decodeRaw(dec, r.decode) }

func (r *Result) decode(v *decoder) {
	outer := v.enter()
	v.uuid("", &r.ChangeID)
	v.u64("", (*uint64)(&r.First))
	v.u64("", (*uint64)(&r.Last))
	v.u32("", &r.Events)
	v.strs("", &r.IDs)
	inner := v.enter()
	if v.left > 0 {
		r.Refusal = new(Refusal)
		v.str("", &r.Refusal.Code)
		v.str("", &r.Refusal.Message)
		r.Refusal.Errors = list(v, v.element)
	}
	v.leave(inner)
	v.leave(outer)
}

func (v *decoder) element(e *FieldError) {
	outer := v.enter()
	for _, p := range [...]*string{&e.Field, &e.Code, &e.Message, &e.Remedy, &e.Type, &e.ID} {
		v.str("", p)
	}
	v.strs("", &e.Invalid)
	v.leave(outer)
}

// value reads a plain value.
func (v *decoder) value() Value {
	if !v.more() {
		return nil
	}
	raw, err := v.u.skip()
	if err != nil {
		v.fail(err)
		return nil
	}
	if x, ok := simpleValue(raw); ok {
		return x
	}
	// The rest are rare and of any type: the library reads them. It goes down into
	// what is nested by calling itself, so that input must not make it do that for long.
	if !flat(raw) {
		v.fail(errNested)
		return nil
	}
	x, err := msgpack.NewDecoder(bytes.NewReader(raw)).DecodeInterfaceLoose()
	v.fail(err)
	return v.plain(x)
}

var errNested = errors.New("old value with a list inside a list")

// flat reports whether a value is no list or map, or one without such inside.
func flat(raw []byte) bool {
	u := unpacker{raw}
	inside, err := u.skipOne()
	for ; inside > 0 && err == nil; inside-- {
		var more uint64
		if more, err = u.skipOne(); more > 0 {
			return false
		}
	}
	return err == nil
}
