package log

import (
	"bytes"
	"slices"
)

// Late fields whose bytes are not what this program would write.
//
// A program stores fields that it does not know as they came, so that there may be any
// bytes where a later program has a field of a type. Such fields are kept unread: those of
// one feature version together, all others by themselves, so that programs of all later
// versions agree on which are. An object says nothing in them, and is encoded with the same
// bytes, until one of them is set: then all of that version are written by their types.

// chooseLate decides how the late fields of an object are written: up to the last feature
// version of which it has something, those that were not read as they came. It returns how
// many fields are not written.
func (v *encoder) chooseLate(o Object, row *kind) (omitted int) {
	omitted, v.before = row.late.unwritten(o)
	tail := o.tail()
	if len(tail.unread) == 0 {
		return omitted
	}
	v.unread = make(map[uint32][][]byte, len(tail.unread))
	for _, version := range row.late.versions() {
		raw := tail.unread[version]
		if raw == nil || !row.late.isUnset(o, version) {
			continue
		}
		if missing := row.late.count(version) - len(raw); missing > 0 {
			if last := len(tail.raw) == 0 && row.late.after(version) == omitted; last {
				omitted += missing
			} else { // what stands behind them keeps its place
				raw = append(slices.Clip(raw), slices.Repeat([][]byte{{codeNil}}, missing)...)
			}
		}
		v.unread[version] = raw
	}
	return omitted
}

func (v *encoder) takes(version uint32) bool {
	if v.after != 0 && v.afterAt == 0 && version >= v.after {
		v.afterAt = len(v.b)
	}
	if v.before != 0 && version >= v.before {
		return false
	}
	if v.unread == nil || v.unread[version] == nil {
		return true
	}
	v.extras(v.unread[version])
	return false
}

// lateReader is a decoder's way to read an object whose late fields may be kept unread.
type lateReader struct {
	row    *kind
	aside  uint64 // a bit for each feature version whose fields are kept unread
	unread map[uint32][][]byte
	at     int // bytes that were left before the first field that may be kept unread; -1: it has not come
}

func (l *lateReader) takes(v *decoder, version uint32) bool {
	if version <= v.strict {
		return true
	}
	if l.at < 0 {
		l.at = len(v.u.b)
	}
	if l.aside&(1<<version) == 0 {
		return true
	}
	var raw [][]byte
	for range l.row.late.count(version) {
		if !v.more() {
			break
		}
		b, err := v.u.skip()
		v.fail(err)
		raw = append(raw, bytes.Clone(b))
	}
	if raw != nil {
		if l.unread == nil {
			l.unread = map[uint32][][]byte{}
		}
		l.unread[version] = raw
	}
	return false
}

// lateObject reads the elements of an object that has late fields beyond those that must be
// of their types.
func (v *decoder) lateObject(row *kind) Object {
	from, left := v.u.b, v.left
	read := func(aside uint64) (o Object, same bool) {
		v.u.b, v.left, v.err = from, left, nil
		l := lateReader{row: row, aside: aside, at: -1}
		v.late = &l
		defer func() { v.late = nil }()
		o = row.fields.newObject()
		row.fields.visit(o, v)
		raw := v.leave(0)
		if v.err != nil {
			return o, false
		}
		o.tail().raw, o.tail().unread = raw, l.unread
		e := encoder{after: v.strict + 1}
		e.b = make([]byte, 0, len(from)-len(v.u.b)+longHeader)
		e.object(o)
		return o, bytes.Equal(e.b[e.afterAt:], from[len(from)-l.at:len(from)-len(v.u.b)])
	}
	o, same := read(0)
	if same {
		return o
	}
	var all, aside uint64
	for _, version := range row.late.versions() {
		if version > v.strict {
			all |= 1 << version
		}
	}
	for _, version := range row.late.versions() { // each by itself, the others as they came
		if bit := all & (1 << version); bit != 0 {
			if _, same := read(all &^ bit); !same {
				aside |= bit
			}
		}
	}
	o, _ = read(aside)
	return o
}

// Settled returns an object as it is read from its bytes: without what it kept unread of
// fields that were set since. Objects are settled before they come into a state, so that a
// server that reads them from its files has the same.
func Settled(o Object) Object {
	if len(o.tail().unread) == 0 {
		return o
	}
	var e encoder
	e.object(o)
	read := newDecoder(e.b).object(o.Kind(), o.ID())
	return read
}

// withoutUnread returns an object as a change carries it: a sender does not pass on what it
// could not read.
func withoutUnread(o Object) Object {
	if len(o.tail().unread) == 0 {
		return o
	}
	c := rowOf(o).fields.shallow(o)
	c.tail().unread = nil
	return c
}

// lateBytes returns how many bytes those fields of an object take encoded that later
// feature versions than this brought: to programs of this version they are fields that they
// do not know.
func lateBytes(o Object, version uint32) int {
	row := rowOf(o)
	if row == nil || row.late == nil || row.late.after(version) == 0 { // the last: mostly so
		return 0
	}
	var all, known encoder
	all.chooseLate(o, row)
	known.before, known.unread = version+1, all.unread
	row.fields.visit(o, &all)
	row.fields.visit(o, &known)
	return max(0, len(all.b)-len(known.b))
}

// unreadBytes returns how many bytes those fields of an object take that were kept unread
// and that this feature version or one before brought.
func unreadBytes(o Object, version uint32) (n int) {
	if len(o.tail().unread) == 0 {
		return 0
	}
	for _, from := range rowOf(o).late.versions() {
		if from > version {
			break
		}
		for _, raw := range o.tail().unread[from] {
			n += len(raw)
		}
	}
	return n
}
