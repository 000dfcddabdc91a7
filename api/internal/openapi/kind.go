package openapi

import (
	"slices"
	"strings"

	"rutter/log"
)

// answerFields are fields that answers have beside those of a kind, which follow from other
// fields and from other objects (spec/napi.md section 3.1).
var answerFields = map[log.Kind]schema{
	log.KindNetwork: {
		"netmask":    schema{"type": "string", "description": "of IPv4 networks: the mask of the subnet"},
		"owner_uuid": schema{"type": "string", "format": "uuid", "description": "of fabric networks: the owner"},
	},
	log.KindNIC: {
		"fabric": boolean("of its network"), "gateway": word("of its network"), "gateway_provisioned": boolean("of its network"),
		"internet_nat": boolean("of its network"), "mtu": schema{"type": "integer", "description": "of its network, in bytes"}, "netmask": word("of its network"),
		"resolvers": schema{"type": "array", "items": schema{"type": "string"}, "description": "of its network"},
		"routes":    schema{"type": "object", "additionalProperties": schema{"type": "string"}, "description": "of its network"},
	},
}

func word(text string) schema    { return schema{"type": "string", "description": text} }
func boolean(text string) schema { return schema{"type": "boolean", "description": text} }

// kindSchema is the schema of a kind's objects, from the table of kinds: as they are
// answered, or as they are sent.
func kindSchema(o Object, answered bool) schema {
	d := o.Kind.Describe()
	properties := schema{}
	if answered {
		for name, s := range answerFields[o.Kind] {
			properties[name] = s
		}
	}
	required := []string{}
	for _, f := range log.FieldDocs(o.Kind) {
		properties[f.Name] = fieldSchema(f, answered)
		if f.Required && !answered && !o.Update {
			required = append(required, f.Name)
		}
	}
	s := schema{"type": "object", "description": d.Title + ": " + d.Command.Usage, "properties": properties}
	if d.Command.Usage == "" {
		s["description"] = d.Title
	}
	if len(required) > 0 {
		slices.Sort(required)
		s["required"] = required
	}
	if !answered {
		s["additionalProperties"] = false
	}
	return s
}

// fieldSchema is that of one field.
func fieldSchema(f log.FieldDoc, answered bool) schema {
	s := typeSchema(f.Type)
	if f.JSON {
		s = schema{}
	}
	text := []string{f.Text}
	if f.Unit != "" {
		text = append(text, "Unit: "+f.Unit+".")
	}
	if f.Default != "" {
		text = append(text, "Default: "+f.Default+".")
	}
	if f.Immutable {
		text = append(text, "No update may change it.")
	}
	s["description"] = strings.Join(text, " ")
	if f.By != log.SetByPeople {
		s["readOnly"] = true
	}
	if f.Values != nil && !answered {
		s["enum"] = f.Values
	}
	return s
}

// typeSchema is that of a form of values. A value that is sent may be null, which takes the
// field away.
func typeSchema(t log.FieldType) schema {
	if of, list := t.Element(); list {
		return schema{"type": "array", "maxItems": log.MaxListElements, "items": typeSchema(of)}
	}
	switch t {
	case log.TypeBoolean:
		return schema{"type": "boolean"}
	case log.TypeNumber:
		return schema{"type": "integer", "minimum": 0, "maximum": log.MaxNumber}
	case log.TypeLarge:
		return schema{"type": "integer", "minimum": 0}
	case log.TypeTime:
		return schema{"type": "string", "format": "date-time"}
	case log.TypeUUID:
		return schema{"type": "string", "format": "uuid"}
	case log.TypeMAC:
		return schema{"type": "string", "pattern": macPattern}
	case log.TypeRoutes:
		return schema{"type": "object", "additionalProperties": schema{"type": "string"}, "description": "gateways by destination"}
	}
	return schema{"type": "string"}
}
