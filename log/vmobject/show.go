package vmobject

import (
	"encoding/json"
	"slices"
	"strings"

	"rutter/log"
)

// defaults are the fields that VMAPI always shows, with what it shows if there is
// nothing. An agent of a compute node (vm-agent) compares them at its start, and writes
// each VM again that is not equal.
var defaults = Object{
	"alias": nil, "autoboot": nil, "billing_id": nil, "brand": nil, "cpu_cap": nil, "cpu_shares": nil, "create_timestamp": nil,
	"customer_metadata": Object{}, "datasets": []any{}, "destroyed": nil, "firewall_enabled": false, "image_uuid": nil,
	"internal_metadata": Object{}, "last_modified": nil, "limit_priv": nil, "max_locked_memory": nil, "max_lwps": nil,
	"max_physical_memory": nil, "max_swap": nil, "owner_uuid": nil, "platform_buildstamp": nil, "quota": nil, "ram": nil,
	"server_uuid": nil, "snapshots": []any{}, "state": nil, "tags": Object{}, "uuid": nil, "zfs_filesystem": nil,
	"zfs_io_priority": nil, "zone_state": nil, "zonepath": nil, "zpool": nil,
}

// Always are the names of the fields that VMAPI always shows, sorted.
func Always() []string {
	names := make([]string, 0, len(defaults))
	for name := range defaults {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// hvm are the brands whose image is that of their first disk.
func hvm(brand string) bool { return brand == "kvm" || brand == "bhyve" }

// Properties returns the properties of a VM; none if they are no JSON object.
func Properties(vm *log.VM) Object {
	if vm.Properties == "" {
		return Object{}
	}
	properties, err := Parse([]byte(vm.Properties))
	if err != nil {
		return Object{}
	}
	return properties
}

// Show returns VMAPI's object of a VM without what is in NICs and networks: its own
// fields, its properties, and a default for each field that VMAPI always shows.
func Show(vm *log.VM) Object {
	object := Properties(vm)
	for name, value := range defaults {
		if _, given := object[name]; given {
			continue
		}
		switch value.(type) { // a caller may change its own
		case Object:
			value = Object{}
		case []any:
			value = []any{}
		}
		object[name] = value
	}
	for _, name := range []string{NICExtras, "nics", "resolvers", "routes"} {
		delete(object, name)
	}
	own(object, vm)
	if vm.ImageUUID.IsZero() && hvm(vm.Brand) {
		delete(object, "image_uuid")
	}
	if object["ram"] == nil {
		object["ram"] = object["max_physical_memory"]
	}
	return object
}

// own sets the fields of log.VM that have a value.
func own(object Object, vm *log.VM) {
	for name, id := range map[string]log.UUID{"uuid": vm.UUID, "owner_uuid": vm.OwnerUUID, "server_uuid": vm.ServerUUID, "image_uuid": vm.ImageUUID} {
		if !id.IsZero() {
			object[name] = id.String()
		}
	}
	for name, text := range map[string]string{
		"alias": vm.Alias, "brand": vm.Brand, "state": vm.State, "zone_state": vm.ZoneState, "zonename": vm.Zonename,
		created: Created(vm).String(), "last_modified": vm.LastModified.String(),
	} {
		if text != "" {
			object[name] = text
		}
	}
	for name, number := range map[string]uint64{"cpu_cap": vm.CPUCap, "max_physical_memory": vm.MaxPhysicalMemory, "quota": vm.Quota} {
		if number != 0 {
			object[name] = number
		}
	}
	if vm.DoNotInventory {
		object["do_not_inventory"] = true
	}
}

// created is the field of the time at which a VM was made.
const created = "create_timestamp"

// Created returns when a VM was made. VMAPI shows what the last report said, and the first
// one may be a program's own, from before the VM was there: the log keeps the first, and
// what a later report says in the properties.
func Created(vm *log.VM) log.Time {
	if strings.Contains(vm.Properties, created) {
		text, _ := Properties(vm)[created].(string)
		if at, err := log.ParseTime(text); err == nil && at != 0 {
			return at
		}
	}
	return vm.CreateTimestamp
}

// Destroyed returns a VM as VMAPI has it after its end: destroyed, at the time that it says
// itself, or else at this one.
func Destroyed(vm *log.VM, at log.Time) (*log.VM, error) {
	gone := *vm
	gone.State, gone.ZoneState = "destroyed", "destroyed"
	properties := Properties(vm)
	if properties["destroyed"] == nil {
		properties["destroyed"] = at.String()
	}
	var err error
	gone.Properties, err = Text(properties)
	return &gone, err
}

// ExtrasOfNICs returns what the VM's object has of its NICs beside the fields of the log,
// by MAC in text.
func ExtrasOfNICs(vm *log.VM) map[string]Object {
	all, _ := Properties(vm)[NICExtras].(Object)
	extras := make(map[string]Object, len(all))
	for mac, value := range all {
		if fields, ok := value.(Object); ok {
			extras[mac] = fields
		}
	}
	return extras
}

// RoleTagsOf returns the role tags of a VM, never nil.
func RoleTagsOf(vm *log.VM) []string { return Tags(Properties(vm)) }

// Tags returns the role tags in properties, never nil.
func Tags(properties Object) []string {
	tags := []string{}
	list, _ := properties[RoleTags].([]any)
	for _, element := range list {
		if tag, ok := element.(string); ok {
			tags = append(tags, tag)
		}
	}
	return tags
}

// Replace returns a VM as it is after a whole object of VMAPI or vmadm took its place,
// with the names of the fields that differ, sorted. Set are those that the object has
// (see Take). What is over log.MaxProperties is left out (see Bound). Role tags stay unless the object names them, because VMAPI stores them
// apart; so do fields that VMAPI's objects do not name.
func Replace(before, taken *log.VM, set []string) (*log.VM, []string, error) {
	after := *taken
	properties := Properties(taken)
	if tags := RoleTagsOf(before); len(tags) > 0 && properties[RoleTags] == nil {
		list := make([]any, len(tags))
		for i, tag := range tags {
			list[i] = tag
		}
		properties[RoleTags] = list
	}
	if at := taken.CreateTimestamp; at != 0 && slices.Contains(set, created) && text(taken, created) != text(before, created) {
		properties[created] = at.String()
	}
	var err error
	if after.Properties, _, err = Bound(properties, log.MaxProperties); err != nil {
		return nil, nil, err
	}
	var kept []string
	for _, name := range typed {
		if !takes(taken, set, name) {
			kept = append(kept, name)
		}
	}
	log.Assign(&after, before, kept)
	var changed []string
	for _, name := range append([]string{"properties"}, typed...) {
		if text(before, name) != text(&after, name) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return &after, changed, nil
}

// takes reports whether a typed field is taken from a whole object, and not kept as it is.
func takes(taken *log.VM, set []string, name string) bool {
	switch {
	case name == "uuid", name == "create_timestamp":
		return false
	case slices.Contains(cleared, name):
		return true
	case name == "do_not_inventory":
		return slices.Contains(set, name)
	}
	value, _ := log.Field(taken, name)
	return slices.Contains(set, name) && value != nil && value != ""
}

// text is a field's value, for comparison: times as VMAPI has them, in milliseconds.
func text(vm *log.VM, name string) string {
	value, _ := log.Field(vm, name)
	raw, _ := json.Marshal(value) // plain values have a JSON form
	switch name {
	case "create_timestamp":
		return vm.CreateTimestamp.String()
	case "last_modified":
		return vm.LastModified.String()
	}
	return string(raw)
}
