package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"rutter/log"
	"rutter/projections/documents"
	"rutter/projections/documents/schema"
	"rutter/projections/documents/source"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// compiled is a schema as a validator has it, which checks the schema itself first.
func compiled(t *testing.T, s schema.Schema) *jsonschema.Resolved {
	t.Helper()
	s["$schema"] = schema.Dialect
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	form := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, form); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	made, err := form.Resolve(nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	return made
}

func parsed(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

// TestSchemaTakesExports: each document of an export is valid, and each of a document that
// a person would write.
func TestSchemaTakesExports(t *testing.T) {
	s := compiled(t, schema.Documents())
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`create setting {"name": "napi.network_immutable", "value": "true"}`)
	w.Must(`update vm #21# {"alias": "web", "properties": "{\"tags\":{\"a\":1}}"}`)
	w.Must(`create ip {"network_uuid": "#31#", "ip": "10.0.0.9", "reserved": true}`)
	seen := make(map[log.Kind]bool)
	for _, doc := range documents.Export(w.State, documents.Selection{}) {
		seen[doc.Kind] = true
		text, err := source.AppendJSON(nil, &doc)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(parsed(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if len(seen) < 7 {
		t.Errorf("only %d kinds were seen", len(seen))
	}
	for text, valid := range map[string]bool{
		`{"kind":"network","name":"blue","labels":{"app":"web"},"spec":{"nic_tag":"one","subnet":"10.0.0.0/24","routes":{"10.2.0.0/16":"10.0.0.1"}}}`: true,
		`{"kind":"nic","spec":{"vm":"web","network":"blue","ip":null}}`:                                                                               true,
		`{"kind":"nic","spec":{"vm":"web","network_uuid":"blue"}}`:                                                                                    true,
		`{"kind":"nic","options":["any_owner"],"spec":{"vm":"web"}}`:                                                                                  true,
		`{"kind":"network","name":"blue","spec":{"nic_tags":"one"}}`:                                                                                  false,
		`{"kind":"network","name":"blue","subnet":"10.0.0.0/24"}`:                                                                                     false,
		`{"kind":"network","name":"blue","spec":{"mtu":"1500"}}`:                                                                                      false,
		`{"kind":"network","name":"blue","spec":{"self_provision":"maybe"}}`:                                                                          false,
		`{"kind":"network","name":"blue","spec":{"gateway_provisioned":1}}`:                                                                           false,
		`{"kind":"task","spec":{}}`:                                                                                                                   false,
		`{"name":"blue"}`:                                                                                                                             false,
	} {
		if err := s.Validate(parsed(t, []byte(text))); (err == nil) != valid {
			t.Errorf("%s: got %v, want valid: %t", text, err, valid)
		}
	}
}

// TestSchemaOfObjects: the objects of a state are valid by the schema of their kind, each
// kind has one, and it knows each field.
func TestSchemaOfObjects(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	for _, kind := range log.Kinds() {
		s := compiled(t, schema.Object(kind))
		for rec := range w.State.List(kind) {
			raw, err := json.Marshal(rec.Object)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(parsed(t, raw)); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
		}
		if err := s.Validate(parsed(t, []byte(`{"colour": 1}`))); err == nil || !strings.Contains(err.Error(), "colour") {
			t.Errorf("%s: an unknown field: %v", kind, err)
		}
	}
}
