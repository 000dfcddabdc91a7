package log

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// This file writes structs as JSON, byte for byte as encoding/json does, in a fraction of
// the time: events and objects are printed by the million. A type that it does not know
// is left to encoding/json.

// jsonField is an exported field of a struct, in the order of JSON.
type jsonField struct {
	key       string // the name in quotes, with the colon
	index     []int
	omitEmpty bool
	omitZero  bool
}

// jsonFields has the []jsonField of a struct type, by its reflect.Type.
var jsonFields sync.Map

// fieldsOfType returns the fields of a struct type.
func fieldsOfType(t reflect.Type) []jsonField {
	if known, ok := jsonFields.Load(t); ok {
		return known.([]jsonField)
	}
	all := listFields(nil, t, nil)
	jsonFields.Store(t, all)
	return all
}

func listFields(all []jsonField, t reflect.Type, at []int) []jsonField {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(at[:len(at):len(at)], i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			all = listFields(all, f.Type, index)
			continue
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" {
			name = f.Name
		}
		has := func(option string) bool { return strings.Contains(","+options+",", ","+option+",") }
		all = append(all, jsonField{key: `"` + name + `":`, index: index, omitEmpty: has("omitempty"), omitZero: has("omitzero")})
	}
	return all
}

// left reports whether a field is left out.
func (f *jsonField) left(v reflect.Value) bool {
	if f.omitZero {
		if is, ok := v.Interface().(interface{ IsZero() bool }); ok {
			return is.IsZero()
		}
		if v.IsZero() {
			return true
		}
	}
	if !f.omitEmpty {
		return false
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// appendStruct appends the struct that p points to. Its own MarshalJSON is not called.
func appendStruct(b []byte, p any) (_ []byte, err error) {
	v := reflect.ValueOf(p).Elem()
	fields := fieldsOfType(v.Type())
	begin := byte('{')
	for i := range fields {
		f := &fields[i]
		field := v.FieldByIndex(f.index)
		if (f.omitEmpty || f.omitZero) && f.left(field) {
			continue
		}
		b = append(append(b, begin), f.key...)
		begin = ','
		if b, err = appendPointed(b, field.Addr().Interface()); err != nil {
			return b, err
		}
	}
	if begin == '{' {
		b = append(b, begin)
	}
	return append(b, '}'), nil
}

// appendPointed appends what p points to.
func appendPointed(b []byte, p any) ([]byte, error) {
	switch p := p.(type) {
	case *string:
		return appendText(b, *p)
	case *bool:
		return strconv.AppendBool(b, *p), nil
	case *uint32:
		return strconv.AppendUint(b, uint64(*p), 10), nil
	case *uint64:
		return strconv.AppendUint(b, *p, 10), nil
	case *Seq:
		return strconv.AppendUint(b, uint64(*p), 10), nil
	case *Revision:
		return strconv.AppendUint(b, uint64(*p), 10), nil
	case *Kind:
		return appendText(b, p.String())
	case *Action:
		return appendText(b, p.String())
	case *Time:
		return appendTime(b, *p), nil
	case *UUID:
		return appendUUID(b, *p), nil
	case *MAC:
		return append(append(append(b, '"'), p.String()...), '"'), nil
	case *netip.Addr:
		if p.IsValid() && p.Zone() == "" {
			return append(p.AppendTo(append(b, '"')), '"'), nil
		}
	case *json.RawMessage:
		if len(*p) > 0 { // as this package made it
			return append(b, *p...), nil
		}
	case *[]string:
		return appendList(b, *p, *p == nil, appendText)
	case *[]UUID:
		return appendList(b, *p, *p == nil, func(b []byte, u UUID) ([]byte, error) { return appendUUID(b, u), nil })
	case *[]Scope:
		return appendList(b, *p, *p == nil, func(b []byte, s Scope) ([]byte, error) { return appendText(b, s.String()) })
	case *[]FieldChange:
		return appendList(b, *p, *p == nil, appendChange)
	}
	text, err := json.Marshal(p)
	return append(b, text...), err
}

func appendChange(b []byte, c FieldChange) (_ []byte, err error) {
	if b, err = appendText(append(b, `{"path":`...), c.Path); err != nil {
		return b, err
	}
	b = append(b, `,"old":`...)
	switch old := c.Old.(type) {
	case string:
		b, err = appendText(b, old)
	case uint64:
		b = strconv.AppendUint(b, old, 10)
	case bool:
		b = strconv.AppendBool(b, old)
	default:
		var text []byte
		text, err = json.Marshal(old)
		b = append(b, text...)
	}
	return append(b, '}'), err
}

func appendList[T any](b []byte, list []T, isNil bool, one func([]byte, T) ([]byte, error)) (_ []byte, err error) {
	if isNil {
		return append(b, "null"...), nil
	}
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = one(b, e); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func appendUUID(b []byte, u UUID) []byte {
	text := u.text()
	return append(append(append(b, '"'), text[:]...), '"')
}

func appendTime(b []byte, t Time) []byte {
	b = append(b, '"')
	if t != 0 {
		b = t.Std().AppendFormat(b, timeLayout)
	}
	return append(b, '"')
}

// appendText appends a string as json.Marshal does, which escapes <, > and & too.
func appendText(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, err := json.Marshal(s)
			return append(b, text...), err
		}
	}
	return append(append(append(b, '"'), s...), '"'), nil
}

// AppendObjectJSON appends an object as json.Marshal encodes it.
func AppendObjectJSON(b []byte, o Object) ([]byte, error) {
	if _, is := o.(json.Marshaler); is || rowOf(o) == nil {
		text, err := json.Marshal(o)
		return append(b, text...), err
	}
	return appendStruct(b, o)
}

// AppendJSON appends the line as json.Marshal encodes it, without a newline.
func (l Line) AppendJSON(b []byte) ([]byte, error) {
	f, err := l.Event.form()
	if err != nil {
		return b, err
	}
	return appendStruct(b, &lineJSON{l.Seq, f, l.Chain.String()})
}
