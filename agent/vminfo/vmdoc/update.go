package vmdoc

import "strings"

// listVerbs change the list of NICs, as vmadm update has them.
const (
	addNICs    = "add_nics"
	updateNICs = "update_nics"
	removeNICs = "remove_nics"
)

// objectFields are the fields whose members set_FIELD sets and remove_FIELD removes by
// name.
var objectFields = []string{"customer_metadata", "internal_metadata", "routes", "tags"}

// IsVerb reports whether a field of an update is a change to a field of a VM rather
// than a field: add_nics, update_nics, remove_nics, set_tags, remove_tags and similar
// ones.
func IsVerb(name string) bool {
	if name == addNICs || name == updateNICs || name == removeNICs {
		return true
	}
	_, _, is := mapVerb(name)
	return is
}

// mapVerb reads set_FIELD and remove_FIELD.
func mapVerb(name string) (field string, set, is bool) {
	for _, field := range objectFields {
		if name == "set_"+field || name == "remove_"+field {
			return field, strings.HasPrefix(name, "set_"), true
		}
	}
	return "", false, false
}

// Updated is a manifest with the fields of an update; null removes a field. One NIC is
// primary: the last for which an update says so. A verb about something that does not
// exist changes nothing.
func Updated(manifest, fields Value) Value {
	for _, name := range fields.Keys() {
		field, _ := fields.Get(name)
		if attribute, set, is := mapVerb(name); is {
			manifest = withMembers(manifest, attribute, field, set)
			continue
		}
		switch {
		case name == addNICs || name == updateNICs || name == removeNICs: // after nics
		case field.IsNull():
			manifest = manifest.Without(name)
		default:
			manifest = manifest.With(name, field)
		}
	}
	list, _ := manifest.Get("nics")
	nics := append([]Value(nil), list.Items()...)
	added, _ := fields.Get(addNICs)
	for _, nic := range added.Items() {
		nics = updatedNIC(append(nics, nic), nic)
	}
	updates, _ := fields.Get(updateNICs)
	for _, update := range updates.Items() {
		nics = updatedNIC(nics, update)
	}
	removed, named := fields.Get(removeNICs)
	nics = withoutNICs(nics, removed.Items())
	if len(added.Items())+len(updates.Items()) == 0 && !named {
		return manifest
	}
	return manifest.With("nics", ArrayValue(nics...))
}

func textIn(v Value, name string) string {
	field, _ := v.Get(name)
	text, _ := field.String()
	return text
}

// updatedNIC sets the fields of an update in the NIC with its MAC.
func updatedNIC(nics []Value, update Value) []Value {
	primary, _ := update.Get("primary")
	takes := string(primary.AppendJSON(nil)) == "true"
	mac := textIn(update, "mac")
	for i := range nics {
		if !strings.EqualFold(textIn(nics[i], "mac"), mac) {
			if _, has := nics[i].Get("primary"); takes && has {
				nics[i] = nics[i].Without("primary")
			}
			continue
		}
		for _, name := range update.Keys() {
			if field, _ := update.Get(name); name != "mac" {
				nics[i] = nics[i].With(name, field)
			}
		}
	}
	return nics
}

// withoutNICs removes NICs by their MACs. If the primary NIC is removed, the first of
// the rest becomes primary.
func withoutNICs(nics, macs []Value) []Value {
	if len(macs) == 0 {
		return nics
	}
	left, lost := []Value{}, false
	for _, nic := range nics {
		gone := false
		for _, mac := range macs {
			text, _ := mac.String()
			gone = gone || strings.EqualFold(text, textIn(nic, "mac"))
		}
		if !gone {
			left = append(left, nic)
			continue
		}
		primary, _ := nic.Get("primary")
		lost = lost || string(primary.AppendJSON(nil)) == "true"
	}
	if lost && len(left) > 0 {
		yes, _ := ParseValue([]byte("true")) // it is valid JSON
		left[0] = left[0].With("primary", yes)
	}
	return left
}

// withMembers sets members of a field that is an object, or removes them by name.
func withMembers(manifest Value, name string, change Value, set bool) Value {
	object, has := manifest.Get(name)
	if !has || !object.IsObject() {
		object, _ = ParseValue([]byte("{}")) // it is valid JSON
	}
	if set {
		for _, member := range change.Keys() {
			field, _ := change.Get(member)
			object = object.With(member, field)
		}
		return manifest.With(name, object)
	}
	for _, member := range change.Items() {
		text, _ := member.String()
		object = object.Without(text)
	}
	if has {
		manifest = manifest.With(name, object)
	}
	return manifest
}
