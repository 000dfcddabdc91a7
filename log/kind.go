package log

import (
	"fmt"
	"strings"
)

// Kind is what an object is. The numbers stand in stored bytes: they are never
// changed or used again, only added to.
type Kind uint8

// The kinds of objects. A reader carries kinds that it does not know (see
// Unknown) and never drops them.
const (
	KindNICTag      Kind = 1
	KindNetwork     Kind = 2
	KindNIC         Kind = 3
	KindServer      Kind = 4
	KindVM          Kind = 5
	KindVMM         Kind = 6
	KindNetworkPool Kind = 7
	KindFabricVLAN  Kind = 8
	KindIP          Kind = 9
	KindAggregation Kind = 10
	KindRouter      Kind = 11
	KindMigration   Kind = 12
	KindTask        Kind = 13
	KindSetting     Kind = 14
	KindToken       Kind = 15
	KindRevocation  Kind = 16
	KindGrant       Kind = 17
	KindTicket      Kind = 18
	KindAuthority   Kind = 19
	KindCertificate Kind = 20
)

// kindNames are NAPI's, CNAPI's and VMAPI's words, as DESIGN section 1 lists them.
var kindNames = [...]string{
	KindNICTag:      "nic_tag",
	KindNetwork:     "network",
	KindNIC:         "nic",
	KindServer:      "server",
	KindVM:          "vm",
	KindVMM:         "vmm",
	KindNetworkPool: "network_pool",
	KindFabricVLAN:  "fabric_vlan",
	KindIP:          "ip",
	KindAggregation: "aggregation",
	KindRouter:      "router",
	KindMigration:   "migration",
	KindTask:        "task",
	KindSetting:     "setting",
	KindToken:       "token",
	KindRevocation:  "revocation",
	KindGrant:       "grant",
	KindAuthority:   "authority",
	KindCertificate: "certificate",
	KindTicket:      "ticket",
}

// String returns the kind's name, or kind(N) for one that this program does not know.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind accepts exactly what Kind.String prints.
func ParseKind(text string) (Kind, error) {
	for k, name := range kindNames {
		if name == text && text != "" {
			return Kind(k), nil
		}
	}
	var n uint8
	if _, err := fmt.Sscanf(text, "kind(%d)", &n); err == nil && Kind(n).String() == text {
		return Kind(n), nil
	}
	return 0, fmt.Errorf("kind %q: want one of %s", text, strings.Join(kindNames[1:], ", "))
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKind(string(text))
	return err
}

// Action is what an event did to its object. The numbers stand in stored bytes.
type Action uint8

// The actions.
const (
	Create Action = 1
	Update Action = 2
	Delete Action = 3
)

var actionNames = [...]string{Create: "create", Update: "update", Delete: "delete"}

// String returns the action's name, or action(N) for an unknown one.
func (a Action) String() string {
	if int(a) < len(actionNames) && actionNames[a] != "" {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// ParseAction accepts create, update and delete.
func ParseAction(text string) (Action, error) {
	for a, name := range actionNames {
		if name == text && text != "" {
			return Action(a), nil
		}
	}
	return 0, fmt.Errorf("action %q: want create, update or delete", text)
}

// MarshalText implements encoding.TextMarshaler.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Action) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAction(string(text))
	return err
}
