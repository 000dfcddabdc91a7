package openapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"rutter/log"
)

// types has the schemas of the types that were asked for.
type types struct {
	components schema
	known      map[reflect.Type]*jsonschema.Schema
}

// macPattern is how a MAC address is written.
const macPattern = "^([0-9a-f]{2}:){5}[0-9a-f]{2}$"

// entryName is the component of an entry of the log as a line of JSON, whose type writes
// itself.
const entryName = "entry"

func newTypes() *types {
	t := &types{components: schema{}, known: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[log.Time]():        {Type: "string", Format: "date-time"},
		reflect.TypeFor[log.UUID]():        {Type: "string", Format: "uuid"},
		reflect.TypeFor[log.MAC]():         {Type: "string", Pattern: macPattern},
		reflect.TypeFor[netip.Addr]():      {Type: "string"},
		reflect.TypeFor[netip.Prefix]():    {Type: "string"},
		reflect.TypeFor[netip.AddrPort]():  {Type: "string"},
		reflect.TypeFor[log.Value]():       {},
		reflect.TypeFor[log.Object]():      {Type: "object"},
	}}
	t.components[entryName] = entrySchema()
	t.known[reflect.TypeFor[log.Line]()] = &jsonschema.Schema{Ref: "#/components/schemas/" + entryName}
	return t
}

// of returns the schema of a value of About.
func (t *types) of(v any) (schema, error) {
	switch v := v.(type) {
	case List:
		return schema{"type": "array", "items": t.object(Object{Kind: log.Kind(v)}, true)}, nil
	case Object:
		return t.object(v, false), nil
	case log.Object:
		return t.object(Object{Kind: v.Kind()}, true), nil
	}
	goType := reflect.TypeOf(v)
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	t.learn(goType, map[reflect.Type]bool{})
	s, err := jsonschema.ForType(goType, &jsonschema.ForOptions{TypeSchemas: t.known})
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var form schema
	if err := json.Unmarshal(raw, &form); err != nil {
		return nil, err
	}
	open(form)
	return form, nil
}

var (
	writesText = reflect.TypeFor[encoding.TextMarshaler]()
	writesJSON = reflect.TypeFor[json.Marshaler]()
	anObject   = reflect.TypeFor[log.Object]()
)

// learn finds the types below one that write themselves: as a text, or as JSON of which
// nothing is known, or as an object of the log.
func (t *types) learn(of reflect.Type, seen map[reflect.Type]bool) {
	if seen[of] || t.known[of] != nil {
		return
	}
	seen[of] = true
	switch {
	case of.Kind() == reflect.Pointer && of.Implements(anObject):
		kind := reflect.New(of.Elem()).Interface().(log.Object).Kind()
		t.known[of.Elem()] = &jsonschema.Schema{Ref: t.object(Object{Kind: kind}, true)["$ref"].(string)}
		return
	case of.Implements(writesJSON) || reflect.PointerTo(of).Implements(writesJSON):
		t.known[of] = &jsonschema.Schema{}
		return
	case of.Implements(writesText) || reflect.PointerTo(of).Implements(writesText):
		t.known[of] = &jsonschema.Schema{Type: "string"}
		return
	}
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		t.learn(of.Elem(), seen)
	case reflect.Struct:
		for i := range of.NumField() {
			t.learn(of.Field(i).Type, seen)
		}
	}
}

// open takes away what a later version of the program may break: an answer may have fields
// that a client does not know.
func open(v any) {
	switch v := v.(type) {
	case schema:
		if rest, is := v["additionalProperties"].(bool); is && !rest {
			delete(v, "additionalProperties")
		}
		for _, below := range v {
			open(below)
		}
	case []any:
		for _, below := range v {
			open(below)
		}
	}
}

// object returns a reference to the component of a kind, which it makes the first time.
func (t *types) object(o Object, answered bool) schema {
	name := o.Kind.String()
	switch {
	case o.Update:
		name += "_update"
	case !answered:
		name += "_create"
	}
	if t.components[name] == nil {
		t.components[name] = kindSchema(o, answered)
	}
	return schema{"$ref": "#/components/schemas/" + name}
}

// filter describes a list's filter that is a field of the kind.
func (t *types) filter(kind log.Kind, name string) (parameter, bool) {
	return parameter{fmt.Sprintf("only those whose %s is this%s", strings.ReplaceAll(name, "_", " "), listWords), schema{"type": "string"}}, true
}

// entrySchema is log.Line as JSON (log/entryjson.go).
func entrySchema() schema {
	word, count := schema{"type": "string"}, schema{"type": "integer", "minimum": 0}
	return schema{
		"type": "object", "description": "an entry of the log",
		"required": []string{"seq", "time", "kind", "action", "id", "revision", "actor", "change_id", "more", "scopes", "object", "chain"},
		"properties": schema{
			"seq": count, "time": schema{"type": "string", "format": "date-time"}, "kind": word, "action": schema{"enum": []string{"create", "update", "delete"}},
			"id": word, "revision": count, "actor": word, "change_id": schema{"type": "string", "format": "uuid"},
			"more":    schema{"type": "integer", "minimum": 0, "description": "so many entries of the same change follow"},
			"scopes":  schema{"type": "array", "items": word},
			"object":  schema{"type": "object", "description": "the object after the event; after a delete, the last state"},
			"changed": schema{"type": "array", "items": schema{"type": "object", "description": "a field of an update, with its old value"}},
			"chain":   word,
		},
	}
}
