package vmdoc

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
