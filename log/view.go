package log

import (
	"fmt"
	"math"
)

// EventView reads single fields of an encoded event in place, for readers of
// many events that want few: it neither decodes the object nor takes memory.
// The zero value is ready for Read. Its texts share the event's memory; it must
// not be used concurrently.
type EventView struct {
	Kind     Kind
	Action   Action
	ID       []byte
	Revision Revision
	Time     Time
	Actor    []byte
	ChangeID UUID
	More     uint32

	arrays [viewArrays]unpacker // scopes, object, changed and what is behind them
	known  int                  // how many of arrays have been found
	left   int                  // elements behind the head
	place  unpacker             // of the method that runs
}

// Read looks at an encoded event up to its scopes. What follows is looked at by
// the methods, when they are asked. Errors: ErrCorrupt, ErrFormat.
func (v *EventView) Read(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("event of no bytes: %w", ErrCorrupt)
	}
	if b[0] != FormatVersion {
		return fmt.Errorf("event of format %d, and this program knows %d: %w", b[0], FormatVersion, ErrFormat)
	}
	*v = EventView{}
	if err := v.head(unpacker{b[1:]}); err != nil {
		return fmt.Errorf("view event: %w: %w", ErrCorrupt, err)
	}
	return nil
}

// head reads the fields before the scopes; those that are missing stay zero.
func (v *EventView) head(u unpacker) error {
	n, err := u.arrayLen()
	if err != nil {
		return err
	}
	read := 0
	for ; read < headFields && read < n; read++ {
		var number uint64
		var bytes []byte
		switch read {
		case 2, 5, 6:
			bytes, err = u.shared()
		default:
			number, err = u.uint64()
		}
		if err != nil {
			return err
		}
		switch read {
		case 0:
			v.Kind = Kind(number)
		case 1:
			v.Action = Action(number)
		case 2:
			v.ID = bytes
		case 3:
			v.Revision = Revision(number)
		case 4:
			v.Time = Time(number)
		case 5:
			v.Actor = bytes
		case 6:
			copy(v.ChangeID[:], bytes)
		case 7:
			v.More = uint32(number)
		}
	}
	v.arrays[0], v.known, v.left = u, 1, n-read
	return nil
}

const (
	headFields = 8 // fields of an event before its scopes
	viewArrays = 3 // that are looked at behind them
)

// EachScope calls fn with each scope of the event, as Scope.AppendBinary writes
// it, until fn returns false. Errors: ErrCorrupt.
func (v *EventView) EachScope(fn func(scope []byte) bool) error {
	return v.each(0, func(_ int, u *unpacker) (bool, error) {
		scope, err := u.shared()
		return err == nil && fn(scope), err
	})
}

// FieldHas reports whether a field of the object, by its place in FieldNames, is
// want in its stored form, or a list with such an element: the bytes of a UUID,
// of an address (4 or 16) or of a text. Errors: ErrCorrupt.
func (v *EventView) FieldHas(place int, want string) (has bool, err error) {
	err = v.each(1, func(i int, u *unpacker) (more bool, err error) {
		if i < place {
			return true, u.pass(1)
		}
		has, err = u.has(want)
		return false, err
	})
	return has, err
}

// Old reports whether the event changed the field at path, and whether the value
// before was the text want or a list with it. Errors: ErrCorrupt.
func (v *EventView) Old(path, want string) (changed, was bool, err error) {
	err = v.each(2, func(i int, u *unpacker) (bool, error) {
		if i%2 == 0 {
			name, err := u.shared()
			changed = string(name) == path
			return true, err
		}
		if !changed {
			return true, u.pass(1)
		}
		var err error
		was, err = u.has(want)
		return false, err
	})
	return changed, was, err
}

// has reads one value, and reports whether it is want, as text or binary, or an
// array that has it. It may stop reading when that is known.
func (u *unpacker) has(want string) (bool, error) {
	if len(u.b) == 0 {
		return false, errShort
	}
	switch c := u.b[0]; {
	case c >= codeFixStr && c < codeNil, c >= codeBin8 && c <= codeBin32, c >= codeStr8 && c <= codeStr32:
		b, err := u.shared()
		return string(b) == want, err
	case c >= codeFixArray && c < codeFixStr, c == codeArray16, c == codeArray32:
		n, err := u.arrayLen()
		for ; n > 0 && err == nil; n-- {
			if c := u.nextCode(); c >= codeFixArray && c < codeFixStr || c == codeArray16 || c == codeArray32 {
				err = u.pass(1) // no value of ours is as deep
				continue
			}
			var has bool
			if has, err = u.has(want); has {
				return true, nil
			}
		}
		return false, err
	}
	return false, u.pass(1)
}

// nextCode is the code of the value that comes, or nil's at the end.
func (u *unpacker) nextCode() byte {
	if len(u.b) == 0 {
		return codeNil
	}
	return u.b[0]
}

// each calls fn with the elements of one array behind the head: 0 the scopes, 1
// the object's fields, 2 what changed. fn reads exactly one element, and returns
// whether it wants more.
func (v *EventView) each(array int, fn func(i int, u *unpacker) (bool, error)) error {
	if v.left <= array {
		return nil
	}
	err := v.find(array)
	u := &v.place
	n := 0
	if err == nil {
		*u = v.arrays[array]
		n, err = u.arrayLen()
	}
	more := true
	for i := 0; i < n && more && err == nil; i++ {
		more, err = fn(i, u)
	}
	if err != nil {
		return fmt.Errorf("view event: %w: %w", ErrCorrupt, err)
	}
	return nil
}

// find finds where an array begins.
func (v *EventView) find(array int) error {
	for ; v.known <= array; v.known++ {
		next := v.arrays[v.known-1]
		if err := next.pass(1); err != nil {
			return err
		}
		v.arrays[v.known] = next
	}
	return nil
}

// sizes has the bytes of a value by its code, where those are fixed and nothing
// is inside; 0 elsewhere.
var sizes = func() (sizes [256]uint8) {
	for c := range sizes {
		switch {
		case c < codeFixMap, c >= codeNegFix, c == codeNil, c == codeFalse, c == codeTrue:
			sizes[c] = 1
		case c >= codeFixStr && c < codeNil:
			sizes[c] = uint8(c-codeFixStr) + 1
		case c >= codeUint8 && c <= codeUint64:
			sizes[c] = 1 + 1<<(c-codeUint8)
		case c >= codeInt8 && c <= codeInt64:
			sizes[c] = 1 + 1<<(c-codeInt8)
		}
	}
	return sizes
}()

// pass is skip for n values, in a hurry: what nearly all values are has a path
// of its own, and the rest goes to skipOne.
func (u *unpacker) pass(n uint64) error {
	b, at := u.b, 0
	for ; n > 0; n-- {
		if at >= len(b) {
			return errShort
		}
		c := b[at]
		switch size := int(sizes[c]); {
		case size > 0:
			at += size
		case (c == codeBin8 || c == codeStr8) && at+1 < len(b):
			at += 2 + int(b[at+1])
		case c >= codeFixArray && c < codeFixStr:
			n += uint64(c - codeFixArray)
			at++
		default:
			rest := unpacker{b[at:]}
			inside, err := rest.skipOne()
			if err != nil {
				return err
			}
			at = len(b) - len(rest.b)
			if n += inside; n > math.MaxUint32*4 {
				return errShort // more than any input holds
			}
		}
	}
	if at > len(b) {
		return errShort
	}
	u.b = b[at:]
	return nil
}
