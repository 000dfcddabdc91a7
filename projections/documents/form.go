package documents

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// Kinds are the kinds of objects that documents declare, in the order in which objects of
// a set are made: each refers only to those of the kinds before it.
func Kinds() []log.Kind { return slices.Clone(kinds) }

var kinds = []log.Kind{
	log.KindNICTag, log.KindServer, log.KindVM, log.KindFabricVLAN, log.KindNetwork, log.KindNetworkPool, log.KindRouter,
	log.KindIP, log.KindNIC, log.KindAggregation, log.KindGrant, log.KindSetting,
}

// notDeclared says of the other kinds why documents do not declare them.
var notDeclared = map[log.Kind]string{
	log.KindVMM:         "a compute node runs VMMs; see rutter vmm",
	log.KindMigration:   "a migration is an act; see rutter migration",
	log.KindTask:        "a task is an act; see rutter task",
	log.KindTicket:      "a ticket is a place in a line, which CNAPI's clients take",
	log.KindToken:       "a token is an act with a secret; see rutter token",
	log.KindRevocation:  "a revocation is an act; see rutter cert",
	log.KindAuthority:   "authorities are the cluster's own; see rutter cert",
	log.KindCertificate: "certificates are the cluster's own; see rutter cert",
}

// Declared reports whether documents declare objects of a kind; why is the reason if not.
func Declared(kind log.Kind) (ok bool, why string) {
	if slices.Contains(kinds, kind) {
		return true, ""
	}
	if why = notDeclared[kind]; why == "" {
		why = "this program does not know the kind"
	}
	return false, why
}

// NameField is the JSON name of the field that a document's name is; "" if the kind has
// none.
func NameField(kind log.Kind) string {
	switch kind {
	case log.KindServer:
		return "hostname"
	case log.KindVM:
		return "alias"
	case log.KindGrant:
		return "subject"
	case log.KindIP, log.KindNIC:
		return ""
	}
	return "name"
}

// UUIDField is the JSON name of the field that a document's uuid is; "" if the kind has
// none.
func UUIDField(kind log.Kind) string {
	switch kind {
	case log.KindNICTag, log.KindServer, log.KindVM, log.KindNetwork, log.KindNetworkPool, log.KindRouter:
		return "uuid"
	}
	return ""
}

// Field is a field of the documents of a kind, under spec.
type Field struct {
	Name string // in documents
	// FieldDoc is what the table of kinds says of the field; its Name is that in JSON.
	log.FieldDoc
}

// Fields are those of the documents of a kind, under spec, in the order in which Export's
// documents are written.
func Fields(kind log.Kind) []Field { return forms[kind] }

var forms = func() map[log.Kind][]Field {
	all := make(map[log.Kind][]Field, len(kinds))
	for _, kind := range kinds {
		for _, doc := range log.FieldDocs(kind) {
			if doc.By != log.SetByPeople || doc.Name == NameField(kind) || doc.Name == UUIDField(kind) || doc.Name == labelsField {
				continue
			}
			if doc.Name == belongsToType {
				all[kind] = append(all[kind], ownersOf(kind)...)
			}
			all[kind] = append(all[kind], Field{documentName(doc), doc})
		}
	}
	return all
}()

func documentName(doc log.FieldDoc) string {
	if doc.Document != "" {
		return doc.Document
	}
	return doc.Name
}

// The fields that say in the log what a NIC or an address belongs to. In documents the
// fields vm and server stand for both.
const (
	belongsToType = "belongs_to_type"
	belongsToUUID = "belongs_to_uuid"
)

// belongsTo are the values of belongs_to_type that have a field of their own.
var belongsTo = map[string]string{"vm": "zone", "server": "server"}

// ownersOf are the fields vm and server of NICs and addresses.
func ownersOf(kind log.Kind) []Field {
	noun := kind.Describe().Noun
	return []Field{
		{"vm", log.FieldDoc{Name: belongsToUUID, Text: fmt.Sprintf("The VM that the %s belongs to, by its alias or UUID.", noun), Refers: log.KindVM, Type: log.TypeUUID, Since: log.FeatureFirst}},
		{"server", log.FieldDoc{Name: belongsToUUID, Text: fmt.Sprintf("The server that the %s belongs to, by its hostname or UUID.", noun), Refers: log.KindServer, Type: log.TypeUUID, Since: log.FeatureFirst}},
	}
}

// fieldOf returns the field of a kind that a document names: by its name there, or by its
// JSON name.
func fieldOf(kind log.Kind, name string) (Field, bool) {
	fields := forms[kind]
	if i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name }); i >= 0 {
		return fields[i], true
	}
	i := slices.IndexFunc(fields, func(f Field) bool { return f.FieldDoc.Name == name && f.Document != "" })
	if i < 0 {
		return Field{}, false
	}
	return fields[i], true
}

// declaredObject reports whether an object of a declared kind is something that people
// declare, and not what follows from another object.
func declaredObject(state *projections.State, o log.Object) bool {
	switch o := o.(type) {
	case *log.IP:
		if o.BelongsToType == "router" {
			_, ok := state.Get(log.KindRouter, o.BelongsToUUID.String())
			return !ok
		}
	case *log.Setting:
		return o.Name != projections.SettingClusterTime
	}
	return true
}
