package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
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
