package napi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// Fields that a request may ask for (the sections "Fabric VLAN fields" and "Fabric Network
// fields" of NAPI's documentation).
var (
	vlanFields    = []string{"description", "name", "owner_uuid", "vlan_id", "vnet_id"}
	networkFields = []string{
		"description", "fabric", "gateway", "internet_nat", "mtu", "name", "nic_tag", "owner_uuid", "owner_uuids",
		"provision_end_ip", "provision_start_ip", "resolvers", "routes", "subnet", "uuid", "vlan_id",
	}
)

// fieldsOf returns the parser of the parameter fields, which is an array or, as in
// queries, one string of several parted by commas.
func fieldsOf(allowed []string) func(v any) ([]string, *element) {
	return func(v any) ([]string, *element) {
		fields, ok := list(v)
		switch {
		case !ok || v == nil:
			return nil, wrong("must be an array of strings")
		case len(fields) == 0:
			return nil, wrong("must not be an empty array")
		case len(fields) > len(allowed):
			return nil, wrong(fmt.Sprintf("can only specify a maximum of %d fields", len(allowed)))
		case slices.ContainsFunc(fields, func(f string) bool { return !slices.Contains(allowed, f) }):
			return nil, wrong("unknown field specified")
		}
		return fields, nil
	}
}

// takeFields reads the parameter fields, and returns shape with its forms cut to them.
func takeFields(in *input, allowed []string, shape shaper) shaper {
	var fields []string
	set := in.set // fields is no field of an object
	if !take(in, "fields", fieldsOf(allowed), &fields) {
		return shape
	}
	in.set = set
	return func(state *projections.State, o log.Object) any { return cutForm{shape(state, o), fields} }
}

// readFields is takeFields of a read of one object, whose other parameters are read
// elsewhere.
func readFields(r *http.Request, allowed []string, shape shaper) (shaper, error) {
	in := &input{values: make(map[string]any)}
	if values, ok := r.URL.Query()["fields"]; ok {
		in.values["fields"] = oneOrAll(values)
	}
	shape = takeFields(in, allowed, shape)
	return shape, in.err()
}

// cutForm is a form of which only some fields are shown.
type cutForm struct {
	form   any
	fields []string
}

// MarshalJSON implements json.Marshaler. A field that the form leaves out is left out.
func (c cutForm) MarshalJSON() ([]byte, error) {
	var whole bytes.Buffer
	enc := json.NewEncoder(&whole)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c.form); err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(whole.Bytes(), &all); err != nil {
		return nil, err
	}
	for name := range all {
		if !slices.Contains(c.fields, name) {
			delete(all, name)
		}
	}
	return json.Marshal(all)
}
