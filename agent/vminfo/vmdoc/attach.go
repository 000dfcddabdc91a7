package vmdoc

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"rutter/log"
)

// Attach is where the link of a NIC ends on its compute node. It is the field attach of a
// NIC; a NIC without it ends in its VM's network namespace under the agent's own name.
type Attach struct {
	Kind   string `json:"kind"`             // AttachNamespace or AttachTap
	Device string `json:"device,omitempty"` // name of the link; "": the agent's own
	User   uint32 `json:"user,omitempty"`   // taps only: the user of the node that may open it
}

// The kinds of attachments.
const (
	// AttachNamespace: one end of a veth pair is in the network namespace of the VM's
	// zonename.
	AttachNamespace = "namespace"
	// AttachTap: a tap device in the node's own namespace, which the VM's hypervisor opens.
	AttachTap = "tap"
)

// AttachField is the field of a NIC with its attachment.
const AttachField = "attach"

// maxDevice bounds the bytes of the name of a link (IFNAMSIZ of linux/if.h, less the end).
const maxDevice = 15

// TapName is the name of a NIC's tap unless its VM's source names another: "rt" and the 12
// hex digits of its MAC.
func TapName(mac log.MAC) string { return "rt" + hex.EncodeToString(mac[:]) }

// Check refuses an attachment that no link can have.
func (a Attach) Check() error {
	switch {
	case a.Kind != AttachNamespace && a.Kind != AttachTap:
		return fmt.Errorf("attach.kind %q: want %s or %s", a.Kind, AttachNamespace, AttachTap)
	case a.Kind == AttachNamespace && a.User != 0:
		return fmt.Errorf("attach.user: a link in a namespace has no user; want kind %s, or leave it out", AttachTap)
	case a.Device != "" && !deviceName(a.Device):
		return fmt.Errorf("attach.device %q: want 1 to %d letters, digits, '.', '_' or '-', as links of Linux are named", a.Device, maxDevice)
	}
	return nil
}

// deviceName reports whether a link can have the name. It is narrower than the kernel's
// rule (dev_valid_name), so that a name needs no escape anywhere.
func deviceName(name string) bool {
	if name == "" || len(name) > maxDevice || name == "." || name == ".." || name == "lo" {
		return false
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// AttachOf reads the attachment of a NIC. ok is false if the NIC has none. A tap without a
// name gets TapName. Errors: those of Check, and what is no object.
func AttachOf(nic Value) (a Attach, ok bool, err error) {
	v, has := nic.Get(AttachField)
	if !has || v.IsNull() {
		return a, false, nil
	}
	if !v.IsObject() {
		return a, false, fmt.Errorf("attach: want an object, as in {\"kind\": %q}", AttachTap)
	}
	a = Attach{Kind: v.Text("kind"), Device: v.Text("device")}
	if user, has := v.Get("user"); has {
		number, err := strconv.ParseUint(user.Literal(), 10, 32)
		if err != nil {
			return a, false, fmt.Errorf("attach.user: want the number of a user (%w)", err)
		}
		a.User = uint32(number)
	}
	if mac, err := log.ParseMAC(nic.Text("mac")); err == nil && a.Kind == AttachTap && a.Device == "" {
		a.Device = TapName(mac)
	}
	return a, true, a.Check()
}

// Value is the attachment as the field of a NIC.
func (a Attach) Value() Value {
	v := Value{kind: kindObject}.With("kind", StringValue(a.Kind))
	if a.Device != "" {
		v = v.With("device", StringValue(a.Device))
	}
	if a.User != 0 {
		v = v.With("user", IntValue(int64(a.User)))
	}
	return v
}
