package objects

import (
	"fmt"
	"testing"

	"rutter/log"
)

// TestFieldsOfTheWire: the fields of a fabric's wire are given as they are typed.
func TestFieldsOfTheWire(t *testing.T) {
	for _, c := range []struct {
		kind        log.Kind
		name, value string
		want        any
	}{
		{log.KindNetwork, "dhcp", "true", true},
		{log.KindNetwork, "broadcast", "false", false},
		{log.KindNIC, "allowed_ips", "10.0.0.9", []string{"10.0.0.9"}},
		{log.KindNIC, "allowed_ips", "10.0.0.9,10.0.0.10", []string{"10.0.0.9", "10.0.0.10"}},
		{log.KindNIC, "allowed_ips", "[]", []any{}},
	} {
		if got := fieldValue(c.kind, c.name, c.value); fmt.Sprintf("%T%v", got, got) != fmt.Sprintf("%T%v", c.want, c.want) {
			t.Errorf("%s=%s: got %#v, want %#v", c.name, c.value, got, c.want)
		}
	}
}
