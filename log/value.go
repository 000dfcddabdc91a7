package log

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Value is the plain form of a field: nil (the field's zero value), bool,
// uint64, string, []string (sorted only if the field is), or
// map[string]string. It is what `changed` keeps of old values, and what their
// JSON form shows.
type Value any

// value returns the plain form of the field; its zero value is nil, so that a
// field that was not set reads as null.
func (s slot) value() Value {
	switch p := s.p.(type) {
	case *string:
		return orNil(*p, *p != "")
	case *bool:
		return *p
	case *uint32:
		return uint64(*p)
	case *uint64:
		return *p
	case *Time:
		// Nanoseconds, not the text form: it would lose what is below a
		// millisecond, and an event must fold backwards exactly.
		return orNil(uint64(*p), *p != 0)
	case *UUID:
		return textOrNil(*p, !p.IsZero())
	case *MAC:
		return textOrNil(*p, !p.IsZero())
	case *netip.Addr:
		return textOrNil(*p, p.IsValid())
	case *netip.Prefix:
		return textOrNil(*p, p.IsValid())
	case *[]string:
		return orNil(*p, len(*p) > 0)
	case *[]UUID:
		return texts(*p)
	case *[]MAC:
		return texts(*p)
	case *[]uint32:
		return numbers(*p)
	case *[]netip.Addr:
		return texts(*p)
	case *Routes:
		return p.value()
	}
	panic(fmt.Sprintf("log: field %s has type %T, which no field has", s.name, s.p))
}

func orNil[T any](v T, set bool) Value {
	if !set {
		return nil
	}
	return v
}

func textOrNil(v fmt.Stringer, set bool) Value {
	if !set {
		return nil
	}
	return v.String()
}

func texts[T fmt.Stringer](list []T) Value {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

// numbers are kept as texts, as a Value has no list of numbers.
func numbers(list []uint32) Value {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = strconv.FormatUint(uint64(n), 10)
	}
	return out
}

func parseNumber(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

// setValue is the inverse of value.
func (s slot) setValue(v Value) error {
	text, isText := v.(string)
	number, isNumber := v.(uint64)
	list, isList := v.([]string)
	if v == nil {
		isText, isNumber, isList = true, true, true
	}
	ok, err := true, error(nil)
	switch p := s.p.(type) {
	case *string:
		*p, ok = text, isText
	case *bool:
		if *p, ok = v.(bool); v == nil {
			ok = true
		}
	case *uint32:
		*p, ok = uint32(number), isNumber && number <= 1<<32-1
	case *uint64:
		*p, ok = number, isNumber
	case *Time:
		*p, ok = Time(number), isNumber
	case *UUID:
		err = parseInto(p, text, ParseUUID)
		ok = isText
	case *MAC:
		err = parseInto(p, text, ParseMAC)
		ok = isText
	case *netip.Addr:
		err = parseInto(p, text, netip.ParseAddr)
		ok = isText
	case *netip.Prefix:
		err = parseInto(p, text, netip.ParsePrefix)
		ok = isText
	case *[]string:
		*p, ok = slices.Clone(list), isList
	case *[]UUID:
		err = parseList(p, list, ParseUUID)
		ok = isList
	case *[]MAC:
		err = parseList(p, list, ParseMAC)
		ok = isList
	case *[]uint32:
		err = parseList(p, list, parseNumber)
		ok = isList
	case *[]netip.Addr:
		err = parseList(p, list, netip.ParseAddr)
		ok = isList
	case *Routes:
		ok = p.setValue(v)
	}
	if !ok {
		return fmt.Errorf("field %s: value %v does not fit", s.name, v)
	}
	if err != nil {
		return fmt.Errorf("field %s: %w", s.name, err)
	}
	return nil
}

func parseInto[T any](p *T, text string, parse func(string) (T, error)) (err error) {
	var zero T
	if *p = zero; text != "" {
		*p, err = parse(text)
	}
	return err
}

func parseList[T any](p *[]T, texts []string, parse func(string) (T, error)) error {
	*p = nil
	for _, text := range texts {
		v, err := parse(text)
		if err != nil {
			return err
		}
		*p = append(*p, v)
	}
	return nil
}

// copyFrom copies a field of the same name and type; slices are cloned.
func (s slot) copyFrom(from slot) {
	switch p := s.p.(type) {
	case *string:
		*p = *from.p.(*string)
	case *bool:
		*p = *from.p.(*bool)
	case *uint32:
		*p = *from.p.(*uint32)
	case *uint64:
		*p = *from.p.(*uint64)
	case *Time:
		*p = *from.p.(*Time)
	case *UUID:
		*p = *from.p.(*UUID)
	case *MAC:
		*p = *from.p.(*MAC)
	case *netip.Addr:
		*p = *from.p.(*netip.Addr)
	case *netip.Prefix:
		*p = *from.p.(*netip.Prefix)
	case *[]string:
		*p = slices.Clone(*from.p.(*[]string))
	case *[]UUID:
		*p = slices.Clone(*from.p.(*[]UUID))
	case *[]MAC:
		*p = slices.Clone(*from.p.(*[]MAC))
	case *[]uint32:
		*p = slices.Clone(*from.p.(*[]uint32))
	case *[]netip.Addr:
		*p = slices.Clone(*from.p.(*[]netip.Addr))
	case *Routes:
		*p = slices.Clone(*from.p.(*Routes))
	}
}

// equalValues compares two plain values.
func equalValues(a, b Value) bool {
	switch x := a.(type) {
	case []string:
		y, ok := b.([]string)
		return ok && slices.Equal(x, y)
	case map[string]string:
		y, ok := b.(map[string]string)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || v != w {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case []string, map[string]string:
		return false
	}
	return a == b
}

// Routes are the static routes of a network, sorted by Dst, each Dst once. The
// JSON form is NAPI's: an object of destination to gateway.
type Routes []Route

// value gives the plain form.
func (r Routes) value() Value {
	if len(r) == 0 {
		return nil
	}
	m := make(map[string]string, len(r))
	for _, route := range r {
		m[route.Dst] = route.Gateway
	}
	return m
}

func (r *Routes) setValue(v Value) bool {
	m, ok := v.(map[string]string)
	if v != nil && !ok {
		return false
	}
	*r = routesOf(m)
	return true
}

func routesOf(m map[string]string) Routes {
	if len(m) == 0 {
		return nil
	}
	r := make(Routes, 0, len(m))
	for dst, gateway := range m {
		r = append(r, Route{dst, gateway})
	}
	slices.SortFunc(r, func(a, b Route) int { return strings.Compare(a.Dst, b.Dst) })
	return r
}

// simpleValue reads what most old values are: nil, a boolean, a number that is
// not negative, or a text.
func simpleValue(raw []byte) (x Value, ok bool) {
	u := unpacker{raw}
	switch c := raw[0]; {
	case c == codeNil:
		return nil, true
	case c == codeFalse, c == codeTrue:
		return c == codeTrue, true
	case c < codeFixMap, c >= codeUint8 && c <= codeUint64:
		n, err := u.uint64()
		return n, err == nil
	case c >= codeFixStr && c < codeNil, c >= codeStr8 && c <= codeStr32:
		s, err := u.string()
		return s, err == nil
	}
	return nil, false
}

// plain turns what msgpack or JSON read into the types that Value lists.
func (v *decoder) plain(x any) Value {
	p, err := plainValue(x)
	v.fail(err)
	return p
}

func plainValue(x any) (Value, error) {
	switch x := x.(type) {
	case nil, bool, string, uint64:
		return x, nil
	case int64:
		if x < 0 {
			return nil, fmt.Errorf("old value %d is negative", x)
		}
		return uint64(x), nil
	case []any:
		out := make([]string, len(x))
		for i, e := range x {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("old value has a list with a %T", e)
			}
			out[i] = s
		}
		return out, nil
	case map[string]any:
		out := make(map[string]string, len(x))
		for k, e := range x {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("old value has an object with a %T", e)
			}
			out[k] = s
		}
		return out, nil
	}
	return nil, fmt.Errorf("old value of type %T", x)
}
