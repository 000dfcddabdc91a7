package openapi

import (
	"strings"

	"rutter/log"
	kinds "rutter/projections/documents/schema"
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

// kindSchema is the schema of a kind's objects as they are answered, or as they are sent.
func kindSchema(o Object, answered bool) schema {
	sent := kinds.Object(o.Kind)
	fields := sent["properties"].(kinds.Schema)
	properties := make(schema, len(fields))
	for name, field := range fields {
		properties[name] = field
	}
	d := o.Kind.Describe()
	s := schema{"type": "object", "description": strings.TrimSuffix(d.Title+": "+d.Command.Usage, ": "), "properties": properties}
	switch {
	case answered:
		for name, field := range answerFields[o.Kind] {
			properties[name] = field
		}
		return s
	case !o.Update && sent["required"] != nil:
		s["required"] = sent["required"]
	}
	s["additionalProperties"] = false
	return s
}
