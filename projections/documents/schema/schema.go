// Package schema makes JSON Schemas (2020-12) of the kinds of objects from the table of
// kinds: of documents, as rutter plan and rutter apply read them, and of objects, as the
// native API has them.
//
// A schema says what a program can check without a state. What an object needs beyond that,
// and what fits to other objects, deciding says. The package is pure.
package schema

import (
	"fmt"
	"strings"

	"rutter/log"
	"rutter/projections/documents"
)

// Dialect is the identifier of the JSON Schema that schemas are written in.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// Schema is a JSON Schema, to be encoded by encoding/json.
type Schema map[string]any

// Documents is the schema of one document of any kind.
func Documents() Schema {
	var any []Schema
	defs := Schema{}
	for _, kind := range documents.Kinds() {
		defs[kind.String()] = Document(kind)
		any = append(any, Schema{
			"if":   Schema{"properties": Schema{"kind": Schema{"const": kind.String()}}},
			"then": Schema{"$ref": "#/$defs/" + kind.String()},
		})
	}
	return Schema{
		"$schema": Dialect, "title": "Rutter document", "type": "object", "required": []string{"kind"}, "$defs": defs, "allOf": any,
		"properties": Schema{"kind": Schema{"enum": kindNames(), "description": "The kind of the object."}},
	}
}

func kindNames() (names []string) {
	for _, kind := range documents.Kinds() {
		names = append(names, kind.String())
	}
	return names
}

// Document is the schema of a document of one kind, in the form that package
// documents/source reads; nil of a kind that documents do not declare.
func Document(kind log.Kind) Schema {
	if ok, _ := documents.Declared(kind); !ok {
		return nil
	}
	spec := Schema{}
	for _, f := range documents.Fields(kind) {
		for _, name := range []string{f.Name, f.FieldDoc.Name} {
			if name == f.Name || f.Document != "" {
				spec[name] = ofField(f.FieldDoc, true)
			}
		}
	}
	properties := Schema{
		"kind": Schema{"const": kind.String()},
		"spec": Schema{"type": []string{"object", "null"}, "description": "The fields of the object. Those that are left out stay as they are.", "properties": spec, "additionalProperties": false},
	}
	if field := documents.NameField(kind); field != "" {
		properties["name"] = Schema{"type": []string{"string", "number", "boolean"}, "description": docOf(kind, field).Text}
	}
	if field := documents.UUIDField(kind); field != "" {
		properties["uuid"] = ofField(docOf(kind, field), true)
	}
	if docOf(kind, "labels").Name != "" {
		properties["labels"] = Schema{
			"type": []string{"object", "null"}, "description": "Words by which objects are found: a map of key to value.",
			"additionalProperties": Schema{"type": []string{"string", "number", "boolean", "null"}},
		}
	}
	if kind == log.KindNIC || kind == log.KindIP {
		properties["options"] = Schema{
			"type": []string{"array", "null"}, "items": Schema{"enum": []string{string(log.OptionAnyOwner)}},
			"description": "any_owner: an owner that the network does not have is accepted.",
		}
	}
	return Schema{
		"title": kind.String(), "type": "object", "required": []string{"kind"}, "properties": properties, "additionalProperties": false,
	}
}

// docOf is the documentation of a field; the zero one if there is none.
func docOf(kind log.Kind, name string) log.FieldDoc {
	for _, f := range log.FieldDocs(kind) {
		if f.Name == name {
			return f
		}
	}
	return log.FieldDoc{}
}

// Object is the schema of an object of a kind as it is sent to the native API; nil of a
// kind that this program does not know. Answers may have more fields, which follow from
// other objects.
func Object(kind log.Kind) Schema {
	if !kind.Known() {
		return nil
	}
	properties, required := Schema{}, []string{}
	for _, f := range log.FieldDocs(kind) {
		properties[f.Name] = ofField(f, false)
		if f.Required {
			required = append(required, f.Name)
		}
	}
	s := Schema{"title": kind.String(), "type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// ofField is the schema of one field. In documents, references are names or ids, JSON is
// written as it is, texts may be written without quotes, and null gives a field its zero
// value.
func ofField(f log.FieldDoc, document bool) Schema {
	s := Schema{}
	of, list := f.Type.Element()
	item := ofType(of, document)
	if document && f.Refers != 0 && of != log.TypeText {
		item = Schema{"type": "string"}
	}
	switch {
	case f.JSON && document:
	case list:
		s["type"], s["items"] = "array", item
	default:
		s = item
	}
	if f.Values != nil {
		var values []any
		for _, v := range f.Values {
			values = append(values, v)
		}
		delete(s, "type")
		if s["enum"] = values; document {
			s["enum"] = append(values, nil)
		}
	} else if typed, is := s["type"]; is && document {
		switch typed := typed.(type) {
		case string:
			s["type"] = []string{typed, "null"}
		case []string:
			s["type"] = append(typed, "null")
		}
	}
	s["description"] = Describe(f)
	if f.By != log.SetByPeople && !document {
		s["readOnly"] = true
	}
	return s
}

// Describe is what people are told of a field: its sentence, unit and default.
func Describe(f log.FieldDoc) string {
	parts := []string{f.Text}
	if f.Unit != "" {
		parts = append(parts, fmt.Sprintf("Unit: %s.", f.Unit))
	}
	if f.Default != "" {
		parts = append(parts, fmt.Sprintf("Default: %s.", f.Default))
	}
	return strings.Join(parts, " ")
}

// uuidPattern is the form of a UUID.
const uuidPattern = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"

// ofType is the schema of one value.
func ofType(t log.FieldType, document bool) Schema {
	switch t {
	case log.TypeBoolean:
		return Schema{"type": "boolean"}
	case log.TypeNumber:
		return Schema{"type": "integer", "minimum": 0, "maximum": log.MaxNumber}
	case log.TypeLarge:
		return Schema{"type": "integer", "minimum": 0}
	case log.TypeTime:
		return Schema{"type": "string", "format": "date-time"}
	case log.TypeUUID:
		return Schema{"type": "string", "pattern": uuidPattern}
	case log.TypeMAC:
		return Schema{"type": "string", "pattern": "^[0-9A-Fa-f]{2}([:-]?[0-9A-Fa-f]{2}){5}$"}
	case log.TypeRoutes:
		return Schema{"type": "object", "additionalProperties": Schema{"type": "string"}}
	}
	if document && t == log.TypeText {
		return Schema{"type": []string{"string", "number", "boolean"}}
	}
	return Schema{"type": "string"}
}
