package vminfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrJSON is in the chain of each error about text that is no JSON.
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

// Value is a JSON value as JavaScript has it, because Diff must agree with a
// program written in it: an object keeps the order of its keys, but those that
// look like array indices come first, ascending; the last of equal keys wins;
// numbers are IEEE doubles. The zero Value is null. Values are not changed once
// made; they may be shared by goroutines.
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
func (v Value) textOf(name string) string {
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

// ArrayValue returns an array of items, which it keeps.
func ArrayValue(items ...Value) Value { return Value{kind: kindArray, items: items} }

// same is JavaScript's === of two values that were parsed apart: never true of
// objects and arrays.
func (v Value) same(w Value) bool {
	return v.kind == w.kind && v.kind < kindArray && v.text == w.text
}

// Equal reports whether v and w are printed alike: key order counts.
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
		return appendString(b, v.text)
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
		b = append(appendString(b, key), ':')
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

// appendString quotes s as JSON.stringify does: <, > and U+2028 stay as they are.
func appendString[T string | []byte](b []byte, s T) []byte {
	return append(appendEscaped(append(b, '"'), s), '"')
}

func appendEscaped[T string | []byte](b []byte, s T) []byte {
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

// ParseValue reads one JSON value and nothing after it. Errors are ErrJSON with
// the offset and what is wrong there. A number that no double can hold is
// refused, as is nesting deeper than 64.
func ParseValue(text []byte) (Value, error) {
	p := parser{text: text}
	v, err := p.value(0)
	if err != nil {
		return Value{}, err
	}
	if p.space(); p.at < len(text) {
		return Value{}, p.fail("something follows the value")
	}
	return v, nil
}

type parser struct {
	text []byte
	at   int
}

func (p *parser) fail(what string) error {
	if p.at >= len(p.text) {
		what = "the text ends early"
	}
	return fmt.Errorf("%w: at byte %d: %s", ErrJSON, p.at, what)
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// next skips space and returns the byte there, 0 at the end.
func (p *parser) next() byte {
	if p.space(); p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *parser) word(word string, v Value) (Value, error) {
	if !strings.HasPrefix(string(p.text[p.at:min(len(p.text), p.at+len(word))]), word) {
		return v, p.fail("want a value")
	}
	p.at += len(word)
	return v, nil
}

func (p *parser) value(depth int) (Value, error) {
	if depth > maxDepth {
		return Value{}, p.fail("nested too deep")
	}
	switch c := p.next(); c {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		s, err := p.string()
		return StringValue(s), err
	case 't':
		return p.word("true", Value{kind: kindBool, text: "true"})
	case 'f':
		return p.word("false", Value{kind: kindBool})
	case 'n':
		return p.word("null", Value{})
	default:
		return p.number()
	}
}

func (p *parser) array(depth int) (Value, error) {
	v := Value{kind: kindArray}
	p.at++
	if p.next() == ']' {
		p.at++
		return v, nil
	}
	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item)
		switch p.next() {
		case ',':
			p.at++
		case ']':
			p.at++
			return v, nil
		default:
			return v, p.fail("want , or ]")
		}
	}
}

func (p *parser) object(depth int) (Value, error) {
	o := objectMaker{v: Value{keys: make([]string, 0, usualKeys), items: make([]Value, 0, usualKeys)}}
	p.at++
	if p.next() == '}' {
		p.at++
		return o.value(), nil
	}
	for {
		if p.next() != '"' {
			return Value{}, p.fail("want a name in quotes")
		}
		key, err := p.string()
		if err != nil {
			return Value{}, err
		}
		if p.next() != ':' {
			return Value{}, p.fail("want :")
		}
		p.at++
		item, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		o.set(key, item)
		switch p.next() {
		case ',':
			p.at++
		case '}':
			p.at++
			return o.value(), nil
		default:
			return Value{}, p.fail("want , or }")
		}
	}
}

func (p *parser) string() (string, error) {
	start, plain := p.at, true
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			if inner := p.text[start+1 : p.at-1]; plain && utf8.Valid(inner) {
				return string(inner), nil
			}
			var s string
			if err := json.Unmarshal(p.text[start:p.at], &s); err != nil {
				p.at = start
				return "", p.fail("a string with a wrong escape")
			}
			return s, nil
		case c < ' ':
			return "", p.fail("a control character in a string")
		case c == '\\':
			plain = false
			p.at++
		}
	}
	p.at = len(p.text)
	return "", p.fail("")
}

// plainDigits is how many digits an integer may have and surely be printed by
// JavaScript as it stands: 2^53 has 16.
const plainDigits = 15

func (p *parser) number() (Value, error) {
	start := p.at
	for p.at < len(p.text) && strings.IndexByte("+-.0123456789eE", p.text[p.at]) >= 0 {
		p.at++
	}
	raw := p.text[start:p.at]
	if len(raw) == 0 || !json.Valid(raw) {
		p.at = start
		return Value{}, p.fail("want a value")
	}
	text := string(raw)
	if text != "-0" && len(text) <= plainDigits && !strings.ContainsAny(text, ".eE") {
		return Value{kind: kindNumber, text: text}, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		p.at = start
		return Value{}, p.fail("a number too large")
	}
	if f == 0 {
		return IntValue(0), nil // JSON.stringify(-0) is 0
	}
	printed, err := json.Marshal(f) // as ECMAScript prints a Number
	return Value{kind: kindNumber, text: string(printed)}, err
}

// objectMaker gathers the fields of an object.
type objectMaker struct {
	v       Value
	at      map[string]int // by key, from manyKeys on
	indices bool           // a key looks like an array index
}

// usualKeys is room for the fields of a NIC: growing costs more than it.
const usualKeys = 12

// manyKeys is from how many keys on a map pays.
const manyKeys = 16

func (o *objectMaker) set(key string, item Value) {
	if i := o.find(key); i >= 0 {
		o.v.items[i] = item
		return
	}
	o.v.keys, o.v.items = append(o.v.keys, key), append(o.v.items, item)
	_, isIndex := arrayIndex(key)
	o.indices = o.indices || isIndex
	if o.at != nil {
		o.at[key] = len(o.v.keys) - 1
	} else if len(o.v.keys) == manyKeys {
		o.at = positions(o.v.keys)
	}
}

func (o *objectMaker) find(key string) int {
	if o.at == nil {
		return slices.Index(o.v.keys, key)
	}
	if i, ok := o.at[key]; ok {
		return i
	}
	return -1
}

func positions(keys []string) map[string]int {
	at := make(map[string]int, 2*len(keys))
	for i, key := range keys {
		at[key] = i
	}
	return at
}

// value ends the making: array indices to the front, ascending (ECMAScript,
// OrdinaryOwnPropertyKeys).
func (o *objectMaker) value() Value {
	o.v.kind = kindObject
	if !o.indices {
		return o.v
	}
	order := make([]int, len(o.v.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		i, isA := arrayIndex(o.v.keys[a])
		j, isB := arrayIndex(o.v.keys[b])
		switch {
		case isA && isB:
			return int(i) - int(j)
		case isA:
			return -1
		case isB:
			return 1
		}
		return 0
	})
	sorted := Value{kind: kindObject, keys: make([]string, len(order)), items: make([]Value, len(order))}
	for to, from := range order {
		sorted.keys[to], sorted.items[to] = o.v.keys[from], o.v.items[from]
	}
	return sorted
}

// arrayIndex reports whether key is an array index: 0 to 2^32-2 in plain decimal.
func arrayIndex(key string) (uint32, bool) {
	if key == "" || len(key) > 10 || key[0] == '0' && len(key) > 1 || key[0] < '0' || key[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(key, 10, 32)
	return uint32(n), err == nil && n != math.MaxUint32
}
