package vmdoc

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"rutter/log"
)

// VM is one VM in its current state. JSON is compact, as JSON.stringify prints it, and
// must not be changed. Public is the same with the public fields only (Value.Public); a
// store sets it.
type VM struct {
	UUID     log.UUID
	Zonename string
	JSON     []byte
	Public   []byte
}

// maxZonename bounds the bytes of the name of a zone, which is also the name of a
// network namespace and of a file: NAME_MAX less the suffix.
const maxZonename = 200

// ParseVM reads a VM: an object with a uuid, and a zonename unless it is the uuid.
func ParseVM(v Value) (VM, error) {
	vm, err := Identify(v)
	if err == nil {
		vm.JSON = v.AppendJSON(nil)
	}
	return vm, err
}

// Identify reads the identity of a VM from v; its JSON stays empty.
func Identify(v Value) (VM, error) {
	if !v.IsObject() {
		return VM{}, errors.New("vminfo: a VM is an object")
	}
	text := v.Text("uuid")
	id, err := log.ParseUUID(text)
	if err != nil {
		return VM{}, fmt.Errorf("vminfo: uuid %q: %w", text, err)
	}
	vm := VM{UUID: id, Zonename: cmp.Or(v.Text("zonename"), id.String())}
	if !fileName(vm.Zonename) || len(vm.Zonename) > maxZonename {
		return VM{}, fmt.Errorf("vminfo: zonename %q cannot be the name of a network namespace", vm.Zonename)
	}
	return vm, nil
}

// fileName reports whether name can be that of a file in a folder.
func fileName(name string) bool {
	if name == "" || name == "." || name == ".." {
		return false
	}
	for _, c := range []byte(name) {
		if c == '/' || c < ' ' {
			return false
		}
	}
	return true
}

// DateFormat is what JavaScript prints for a Date in JSON.
const DateFormat = "2006-01-02T15:04:05.000Z"

// FormatDate prints a time as JavaScript prints a Date in JSON.
func FormatDate(t time.Time) string { return t.UTC().Format(DateFormat) }

// LastModified is the field with the time of a VM's last change. A change of this field
// alone is not a change (vminfod sets it silently).
const LastModified = "last_modified"

// ErrTimeout (ETIMEOUT of vminfod's client): the awaited event did not come in time.
// Whether it happened later is unknown.
var ErrTimeout = errors.New("timeout exceeded")
