package vmdoc

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// ErrJSON is in the chain of each error about invalid JSON.
var ErrJSON = errors.New("vminfo: not JSON")

// maxDepth bounds how deep arrays and objects may be nested; a VM has four levels.
const maxDepth = 64

type valueKind uint8

const (
	kindNull valueKind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// Value is a JSON value as JavaScript has it, because Diff must agree with a program
// written in JavaScript. An object keeps the order of its keys, except that keys which
// look like array indices come first, ascending. The last of equal keys wins. Numbers
// are IEEE doubles. The zero Value is null. Values are not changed once made;
// goroutines may share them.
type Value struct {
	kind  valueKind
	text  string   // of a string; of a number, as JavaScript prints it; "true" or ""
	keys  []string // of an object
	items []Value  // of an array; of an object, one for each key
}

// String returns the value of v as a JSON string, and whether it is one.
func (v Value) String() (string, bool) { return v.text, v.kind == kindString }

// IsObject reports whether v is an object.
func (v Value) IsObject() bool { return v.kind == kindObject }

// IsNull reports whether v is null.
func (v Value) IsNull() bool { return v.kind == kindNull }

// Items are the elements of an array; of another value, none.
func (v Value) Items() []Value {
	if v.kind != kindArray {
		return nil
	}
	return v.items
}

// Keys are the names of an object's fields, in their order.
func (v Value) Keys() []string {
	if v.kind != kindObject {
		return nil
	}
	return slices.Clone(v.keys)
}

// Get returns the field name of an object.
func (v Value) Get(name string) (Value, bool) {
	if v.kind != kindObject {
		return Value{}, false
	}
	if i := slices.Index(v.keys, name); i >= 0 {
		return v.items[i], true
	}
	return Value{}, false
}

// text returns the field name of an object, "" unless it is a string.
func (v Value) Text(name string) string {
	field, _ := v.Get(name)
	s, _ := field.String()
	return s
}

// With returns the object v with its field name set: in its place if v has it,
// else at the end. The name must not look like an array index.
func (v Value) With(name string, field Value) Value {
	if i := slices.Index(v.keys, name); i >= 0 {
		v.items = slices.Clone(v.items)
		v.items[i] = field
		return v
	}
	v.keys = append(slices.Clip(v.keys), name)
	v.items = append(slices.Clip(v.items), field)
	return v
}

// Without returns the object v without its field name.
func (v Value) Without(name string) Value {
	if i := slices.Index(v.keys, name); i >= 0 {
		v.keys = slices.Delete(slices.Clone(v.keys), i, i+1)
		v.items = slices.Delete(slices.Clone(v.items), i, i+1)
	}
	return v
}

// StringValue returns s as a Value.
func StringValue(s string) Value { return Value{kind: kindString, text: s} }

// IntValue returns n as a Value; it must be one that a double can hold.
func IntValue(n int64) Value { return Value{kind: kindNumber, text: strconv.FormatInt(n, 10)} }

// BoolValue returns b as a Value.
func BoolValue(b bool) Value {
	if b {
		return Value{kind: kindBool, text: "true"}
	}
	return Value{kind: kindBool}
}

// ArrayValue returns an array of items, which it keeps.
func ArrayValue(items ...Value) Value { return Value{kind: kindArray, items: items} }

// same is JavaScript's === of two values that were parsed separately: never true of
// objects and arrays.
func (v Value) same(w Value) bool {
	return v.kind == w.kind && v.kind < kindArray && v.text == w.text
}

// Equal reports whether v and w print the same: key order counts.
func (v Value) Equal(w Value) bool {
	return v.kind == w.kind && v.text == w.text && slices.Equal(v.keys, w.keys) &&
		slices.EqualFunc(v.items, w.items, Value.Equal)
}

// AppendJSON appends v to b, byte for byte as JSON.stringify prints it.
func (v Value) AppendJSON(b []byte) []byte {
	switch v.kind {
	case kindNull:
		return append(b, "null"...)
	case kindBool:
		return strconv.AppendBool(b, v.text != "")
	case kindNumber:
		return append(b, v.text...)
	case kindString:
		return AppendString(b, v.text)
	case kindArray:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.AppendJSON(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, key := range v.keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(AppendString(b, key), ':')
		b = v.items[i].AppendJSON(b)
	}
	return append(b, '}')
}

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return v.AppendJSON(nil), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(text []byte) (err error) {
	*v, err = ParseValue(text)
	return err
}

const hexDigits = "0123456789abcdef"

// AppendString quotes s as JSON.stringify does: <, > and U+2028 stay as they are.
func AppendString[T string | []byte](b []byte, s T) []byte {
	return append(AppendEscaped(append(b, '"'), s), '"')
}

// AppendEscaped appends the part within the quotes of a JSON string.
func AppendEscaped[T string | []byte](b []byte, s T) []byte {
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		if at := strings.IndexByte("\"\\\b\f\n\r\t", c); at >= 0 {
			b = append(b, '\\', `"\bfnrt`[at])
		} else {
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(b, s[start:]...)
}

// plainDigits is how many digits an integer may have so that JavaScript prints it
// unchanged: 2^53 has 16.
const plainDigits = 15

// usualKeys is the initial capacity, enough for the fields of a NIC: growing is
// expensive.
const usualKeys = 12

// manyKeys is the number of keys from which a map is faster.
const manyKeys = 16

// Includes reports whether every field of want is in v with an equal value; nested
// objects are compared the same way.
func (v Value) Includes(want Value) bool {
	if !want.IsObject() {
		return v.Equal(want)
	}
	if !v.IsObject() {
		return false
	}
	for i, key := range want.keys {
		if field, ok := v.Get(key); !ok || !field.Includes(want.items[i]) {
			return false
		}
	}
	return true
}

// IsArray reports whether v is an array.
func (v Value) IsArray() bool { return v.kind == kindArray }

// IsNumber reports whether v is a number.
func (v Value) IsNumber() bool { return v.kind == kindNumber }

// Literal returns the text of a string, or a number as it was written; empty for other
// values.
func (v Value) Literal() string {
	if v.kind != kindString && v.kind != kindNumber {
		return ""
	}
	return v.text
}
