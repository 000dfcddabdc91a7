package log

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// FieldDoc is what people and programs are told of one field of a kind. It is what
// rutter explain prints, and what documents and JSON Schemas are made from.
type FieldDoc struct {
	Name    string   // JSON name
	Text    string   // one sentence
	Unit    string   // of a number; "" if it is a plain one
	Default string   // in words, of a new object that leaves the field out; "": nothing
	Values  []string // all that the field may have; nil: others too
	By      Setter   // who sets it

	// Document is the name that documents have for the field, where it is another than
	// Name; Refers is the kind whose ids are its values, which documents write as names.
	Document string
	Refers   Kind
	// JSON reports that the text holds JSON, which documents write as it is.
	JSON bool

	// The rest follows from the table of kinds.
	Type      FieldType
	Immutable bool   // no update may change it
	Required  bool   // every object has it
	Since     uint32 // the feature version that brought it
}

// Setter is who sets a field.
type Setter uint8

// Who sets a field. Only fields that people set are in documents.
const (
	SetByPeople   Setter = iota // operators, and programs with their rights
	SetByDeciding               // it follows from other fields, other objects or the time
	SetByNodes                  // compute nodes report it, or servers judge it
)

// String returns the setter as a sentence has it.
func (s Setter) String() string {
	return [...]string{"operators and programs", "the servers: it follows from the rest", "compute nodes report it"}[s]
}

// FieldType is the form of a field's values.
type FieldType uint8

// The forms of values. The lists come last, in the order of their elements.
const (
	TypeText FieldType = iota + 1
	TypeBoolean
	TypeNumber  // 0 to MaxNumber
	TypeLarge   // a number of 0 to 1<<64-1
	TypeTime    // RFC 3339
	TypeUUID    // 36 characters
	TypeMAC     // with colons
	TypeAddress // of IPv4 or IPv6
	TypeSubnet  // CIDR
	TypeRoutes  // an object of destination to gateway
	TypeTexts
	TypeNumbers
	TypeUUIDs
	TypeMACs
	TypeAddresses
)

// MaxNumber is the largest value of a field of TypeNumber.
const MaxNumber = math.MaxUint32

// String returns the form in words.
func (t FieldType) String() string {
	return [...]string{
		"", "text", "true or false", "number", "number", "time", "UUID", "MAC address", "IP address", "subnet", "routes",
		"list of texts", "list of numbers", "list of UUIDs", "list of MAC addresses", "list of IP addresses",
	}[t]
}

// Element returns the form of a list's elements, and whether t is a list.
func (t FieldType) Element() (of FieldType, list bool) {
	switch t {
	case TypeTexts:
		return TypeText, true
	case TypeNumbers:
		return TypeNumber, true
	case TypeUUIDs:
		return TypeUUID, true
	case TypeMACs:
		return TypeMAC, true
	case TypeAddresses:
		return TypeAddress, true
	}
	return t, false
}

// FieldDocs returns the fields of a kind in the order of the codec; nil of a kind that this
// program does not know. It is shared, and must not be changed.
func FieldDocs(kind Kind) []FieldDoc {
	if int(kind) >= len(fieldDocs) {
		return nil
	}
	return fieldDocs[kind]
}

// fieldDocs are FieldDocs of each kind. A field without a row in its kind's docs has an
// empty text, which a test refuses.
var fieldDocs = func() (all [len(kinds)][]FieldDoc) {
	for k, row := range kinds {
		if row == nil {
			continue
		}
		for _, s := range slots(row.fields.newObject()) {
			d := FieldDoc{Name: s.name}
			if i := slices.IndexFunc(row.docs, func(d FieldDoc) bool { return d.Name == s.name }); i >= 0 {
				d = row.docs[i]
			} else if s.name == FieldLabels {
				d.Text = labelsText
			}
			d.Type = typeOf(s)
			d.Since = Kind(k).since(s.name)
			d.Immutable = slices.Contains(row.Immutable, s.name)
			d.Required = slices.ContainsFunc(row.Required, func(r Required) bool { return r.Field == s.name })
			all[k] = append(all[k], d)
		}
	}
	return all
}()

// since is the feature version that brought a field.
func (k Kind) since(name string) uint32 {
	for version := uint32(FeatureVersion); version > FeatureFirst; version-- {
		if slices.Contains(k.FieldsAfter(version-1), name) {
			return version
		}
	}
	return FeatureFirst
}

// typeOf returns the form of a field.
func typeOf(s slot) FieldType {
	switch s.p.(type) {
	case *string:
		return TypeText
	case *bool:
		return TypeBoolean
	case *uint32:
		return TypeNumber
	case *uint64:
		return TypeLarge
	case *Time:
		return TypeTime
	case *UUID:
		return TypeUUID
	case *MAC:
		return TypeMAC
	case *netip.Addr:
		return TypeAddress
	case *netip.Prefix:
		return TypeSubnet
	case *Routes:
		return TypeRoutes
	case *[]string:
		return TypeTexts
	case *[]uint32:
		return TypeNumbers
	case *[]UUID:
		return TypeUUIDs
	case *[]MAC:
		return TypeMACs
	case *[]netip.Addr:
		return TypeAddresses
	}
	panic(fmt.Sprintf("log: field %s has type %T, which no field has", s.name, s.p))
}
