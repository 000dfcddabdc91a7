package vmobject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/log"
)

// typed are the fields of the object that are fields of log.VM with the same name.
var typed = []string{
	"alias", "brand", "cpu_cap", "create_timestamp", "do_not_inventory", "image_uuid", "last_modified", "max_physical_memory",
	"owner_uuid", "quota", "server_uuid", "state", "uuid", "zone_state", "zonename",
}

// cleared are the typed fields that a whole object without them does not have. The
// others stay as they are: VMAPI's object never names them, or always does.
var cleared = []string{"alias", "brand", "cpu_cap", "image_uuid", "max_physical_memory", "quota", "zone_state"}

// elsewhere are the fields that the log has in NICs and networks, and those of vmadm that
// no object of VMAPI has: they say how a compute node is about to work, or number a zone
// of its kernel.
var elsewhere = []string{
	"nics", "properties", "resolvers", "routes", "transition_expire", "transition_to", "v", "zone_id", "zonedid", "zoneid",
}

// RoleTags and NICExtras are fields of properties that VMAPI's object shows on request
// only, and in its NICs.
const (
	RoleTags  = "role_tags"
	NICExtras = "nic_extras"
	// LeftOut lists what Bound left out.
	LeftOut = "rutter_left_out"
)

// ofLogNIC are the fields of a NIC that the log has in NICs and networks. The others,
// such as interface, are kept in NICExtras by the NIC's MAC. kernel_ips is what a node
// found on its own interface, for its own programs.
var ofLogNIC = func() []string {
	names := append(log.FieldNames(log.KindNIC), "gateway", "gateways", "gateway_provisioned", "ips", "kernel_ips", "mtu", "netmask", "resolvers", "routes")
	names = slices.DeleteFunc(names, func(name string) bool { return name == log.FieldLabels }) // VMAPI does not know the log's
	slices.Sort(names)
	return names
}()

// timestamps are the times in properties that VMAPI prints in one form, whatever form
// they came in.
var timestamps = []string{"destroyed"}

// Object is a VM's object in its JSON form, numbers as json.Number.
type Object = map[string]any

// Parse reads one JSON object. Numbers stay as they are written.
func Parse(text []byte) (Object, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var object Object
	if err := dec.Decode(&object); err != nil {
		return nil, fmt.Errorf("it is no JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the JSON object")
	}
	if object == nil {
		return nil, errors.New("it is null, and no JSON object")
	}
	return object, nil
}

// Take returns the log's VM of an object of VMAPI or vmadm, and the names of the fields
// of log.VM that the object has, sorted; properties is always one of them. A value that a
// field of log.VM cannot have, such as a number with a fraction, stays in the properties,
// so that Show shows it as it was. An owner, server or UUID that is none is an error.
func Take(text []byte) (*log.VM, []string, error) {
	object, err := Parse(text)
	if err != nil {
		return nil, nil, err
	}
	vm, set, err := TakeObject(object)
	return vm, set, err
}

// TakeObject is Take for an object that was parsed with Parse. It does not keep it.
func TakeObject(object Object) (*log.VM, []string, error) {
	vm := &log.VM{}
	rest := make(Object, len(object))
	set := []string{"properties"}
	for name, value := range object {
		if !slices.Contains(typed, name) {
			keep(rest, name, value)
			continue
		}
		set = append(set, name)
		fits, err := take(vm, name, value)
		if err != nil {
			return nil, nil, err
		}
		if !fits {
			rest[name] = value
		}
	}
	if extras := nicExtras(object["nics"]); len(extras) > 0 {
		rest[NICExtras] = extras
	}
	if ram, is := rest["ram"]; is && fmt.Sprint(ram) == fmt.Sprint(object["max_physical_memory"]) {
		delete(rest, "ram") // VMAPI shows it as that
	}
	var err error
	if vm.Properties, err = Text(rest); err != nil {
		return nil, nil, err
	}
	slices.Sort(set)
	return vm, set, nil
}

// Text returns properties in their canonical form: sorted, without blanks, and "" for
// none.
func Text(properties Object) (string, error) {
	if len(properties) == 0 {
		return "", nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(properties); err != nil {
		return "", fmt.Errorf("the properties have no JSON form: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// keep keeps a field for the properties, unless the log has it elsewhere or it says
// nothing: VMAPI stores neither null nor "", and shows a default for an empty field.
func keep(rest Object, name string, value any) {
	if slices.Contains(elsewhere, name) || value == nil || value == "" {
		return
	}
	if byDefault, always := defaults[name]; always && same(value, byDefault) {
		return
	}
	if slices.Contains(timestamps, name) {
		if at, ok := moment(value); ok {
			value = at.String()
		}
	}
	if list, isList := value.([]any); name == RoleTags && isList && len(list) == 0 {
		return
	}
	rest[name] = value
}

// same reports whether a value is the default of a field.
func same(value, byDefault any) bool {
	switch d := byDefault.(type) {
	case bool:
		return value == d
	case []any:
		list, ok := value.([]any)
		return ok && len(list) == 0
	case Object:
		object, ok := value.(Object)
		return ok && len(object) == 0
	}
	return value == nil
}

// take sets a typed field. fits is false if the field cannot have the value as it is.
func take(vm *log.VM, name string, value any) (fits bool, err error) {
	if value == nil || value == "" {
		return true, nil
	}
	if id := log.UUIDField(vm, name); id != nil {
		text, _ := value.(string)
		if *id, err = log.ParseUUID(text); err != nil {
			return false, fmt.Errorf("%s: %q is no UUID", name, fmt.Sprint(value))
		}
		return true, nil
	}
	for _, f := range []struct {
		name string
		text *string
	}{{"alias", &vm.Alias}, {"brand", &vm.Brand}, {"state", &vm.State}, {"zone_state", &vm.ZoneState}, {"zonename", &vm.Zonename}} {
		if f.name == name {
			text, isText := value.(string)
			*f.text = text
			return isText, nil
		}
	}
	for _, f := range []struct {
		name   string
		number *uint64
	}{{"cpu_cap", &vm.CPUCap}, {"max_physical_memory", &vm.MaxPhysicalMemory}, {"quota", &vm.Quota}} {
		if f.name == name {
			number, isNumber := value.(json.Number)
			n, err := strconv.ParseUint(number.String(), 10, 64)
			if !isNumber || err != nil || n == 0 {
				return false, nil
			}
			*f.number = n
			return true, nil
		}
	}
	switch name {
	case "do_not_inventory":
		vm.DoNotInventory = value == true || value == "true"
	case "create_timestamp", "last_modified":
		at, ok := moment(value)
		if !ok {
			return false, fmt.Errorf("%s: %q is no time", name, fmt.Sprint(value))
		}
		if name == "last_modified" {
			vm.LastModified = at
		} else {
			vm.CreateTimestamp = at
		}
	}
	return true, nil
}

// moment reads a time as VMAPI does: milliseconds since 1970, also in text, or RFC 3339.
func moment(value any) (log.Time, bool) {
	text, isText := value.(string)
	if number, is := value.(json.Number); is {
		text, isText = number.String(), true
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		const most = int64(1<<63-1) / int64(time.Millisecond)
		return log.Time(ms * int64(time.Millisecond)), ms >= 0 && ms <= most
	}
	at, err := log.ParseTime(text)
	return at, isText && text != "" && err == nil
}

// nicExtras are the fields of NICs that the log has neither in NICs nor in networks, by
// MAC.
func nicExtras(value any) Object {
	list, _ := value.([]any)
	all := make(Object)
	for _, element := range list {
		nic, _ := element.(Object)
		text, _ := nic["mac"].(string)
		mac, err := log.ParseMAC(text)
		if err != nil {
			continue
		}
		extras := make(Object)
		for name, v := range nic {
			if _, known := slices.BinarySearch(ofLogNIC, name); !known && v != nil {
				extras[name] = v
			}
		}
		if len(extras) > 0 {
			all[mac.String()] = extras
		}
	}
	return all
}
