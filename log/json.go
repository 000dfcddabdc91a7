package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MarshalJSON implements json.Marshaler: an array, also for nil.
func (a Addresses) MarshalJSON() ([]byte, error) {
	if a == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]netip.Addr(a))
}

// MarshalJSON implements json.Marshaler: NAPI's form, {"dst": "gateway"}.
func (r Routes) MarshalJSON() ([]byte, error) {
	v := r.value()
	if v == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(v)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Routes) UnmarshalJSON(data []byte) error {
	var m map[string]string
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	*r = routesOf(m)
	return nil
}

// ParseObject reads an object of kind from its JSON form. It returns the
// object, and the names of the fields that the text had, sorted: an update
// changes just those. The error is a *Refusal that names each bad field.
func ParseObject(kind Kind, data []byte) (Object, []string, error) {
	return parseObject(kind, data, false)
}

// parseObject is ParseObject, which may leave out fields that kind does not have.
func parseObject(kind Kind, data []byte, leaveOut bool) (Object, []string, error) {
	o := NewObject(kind)
	if o == nil {
		return nil, nil, &Refusal{Code: CodeInvalidParameters, Message: fmt.Sprintf("kind %s is not known to this program", kind)}
	}
	fields := make(map[string]json.RawMessage)
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&fields); err != nil {
		return nil, nil, badJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, badJSON(errors.New("text after the object"))
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	known := slots(o)
	refusal := &Refusal{Code: CodeInvalidParameters, Message: "Invalid parameters"}
	for _, name := range names {
		i := slices.IndexFunc(known, func(s slot) bool { return s.name == name })
		if i < 0 && leaveOut {
			continue
		}
		if i < 0 {
			refusal.Errors = append(refusal.Errors, FieldError{
				Field: name, Code: ElementUnknown, Message: fmt.Sprintf("%s has no field %q", kind, name),
				Remedy: "leave it out, or use one of: " + strings.Join(FieldNames(kind), ", "),
			})
			continue
		}
		if err := json.Unmarshal(fields[name], known[i].p); err != nil {
			refusal.Errors = append(refusal.Errors, FieldError{
				Field: name, Code: ElementInvalid, Message: fieldMessage(known[i], err), Remedy: "send " + shape(known[i].p),
			})
		}
	}
	if refusal.Errors != nil {
		return nil, nil, refusal
	}
	return o, names, nil
}

func badJSON(err error) *Refusal {
	return &Refusal{
		Code: CodeInvalidParameters, Message: "the body is not one JSON object: " + err.Error(),
		Errors: []FieldError{{Field: "body", Code: ElementInvalid, Message: err.Error(), Remedy: "send one JSON object, as in {\"name\": \"external\"}"}},
	}
}

func fieldMessage(s slot, err error) string {
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		return fmt.Sprintf("got a JSON %s", typeErr.Value)
	}
	return err.Error()
}

// shape says in words what JSON a field takes.
func shape(p any) string {
	switch p.(type) {
	case *string:
		return "a string"
	case *bool:
		return "true or false"
	case *uint32, *uint64:
		return "a whole number of 0 or more"
	case *Time:
		return "an RFC 3339 time, as in \"2026-11-21T09:00:00.123Z\""
	case *UUID:
		return "a UUID of 36 characters"
	case *MAC:
		return "a MAC address, as in \"90:b8:d0:01:02:03\""
	case *Routes:
		return "an object of destination to gateway, as in {\"10.2.0.0/16\": \"10.1.0.1\"}"
	case *[]uint32:
		return "a list of whole numbers of 0 or more"
	case *[]string, *[]UUID, *[]MAC, *[]netip.Addr:
		return "a list of strings"
	case *netip.Prefix:
		return "a subnet, as in \"10.1.0.0/24\""
	}
	return "an IP address"
}

// What follows writes structs as JSON, byte for byte as encoding/json does, in a fraction
// of the time: events and objects are printed by the million. A type that it does not know
// is left to encoding/json.

// jsonField is an exported field of a struct, in the order of JSON.
type jsonField struct {
	key       string // the name in quotes, with the colon
	index     []int
	omitEmpty bool
	omitZero  bool
}

// jsonFields are the fields of the struct types that are written.
var jsonFields = func() map[reflect.Type][]jsonField {
	all := map[reflect.Type][]jsonField{}
	types := []reflect.Type{reflect.TypeFor[lineJSON](), reflect.TypeFor[eventJSON]()}
	for _, row := range kinds {
		if row != nil {
			types = append(types, reflect.TypeOf(row.fields.newObject()).Elem())
		}
	}
	for _, t := range types {
		all[t] = listFields(nil, t, nil)
	}
	return all
}()

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
	fields := jsonFields[v.Type()]
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
