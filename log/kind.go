package log

import (
	"fmt"
	"strings"
)

// Kind is what an object is. The numbers stand in stored bytes: they are never
// changed or used again, only added to.
type Kind uint8

// String returns the kind's name, or kind(N) for one that this program does not know.
func (k Kind) String() string {
	if row := k.row(); row != nil {
		return row.Name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind accepts exactly what Kind.String prints.
func ParseKind(text string) (Kind, error) {
	var names []string
	for k, row := range kinds {
		if row == nil {
			continue
		}
		if row.Name == text {
			return Kind(k), nil
		}
		names = append(names, row.Name)
	}
	var n uint8
	if _, err := fmt.Sscanf(text, "kind(%d)", &n); err == nil && Kind(n).String() == text {
		return Kind(n), nil
	}
	return 0, fmt.Errorf("kind %q: want one of %s", text, strings.Join(names, ", "))
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
