package named

import (
	"strings"
	"testing"

	"rutter/api/client"
	"rutter/log"
)

// Names in filters become ids; a name that two objects of different kinds have is refused
// with both; what no object has stays as it is.
func TestFilter(t *testing.T) {
	t.Parallel()
	find := func(kind log.Kind, text string) (client.Named, error) {
		switch {
		case text == "web0" && kind == log.KindVM:
			return client.Named{Kind: kind, ID: "vm-id"}, nil
		case text == "web" && (kind == log.KindNetwork || kind == log.KindServer):
			return client.Named{Kind: kind, ID: kind.String() + "-id", VNet: 7}, nil
		}
		return one(kind.Describe().Noun, text, nil, false)
	}
	for _, c := range []struct{ kind, filter, value, want string }{
		{"", "object", "web0", "vm-id"},
		{"", "object", "web", "web names several objects"},
		{"network", "object", "web", "network-id"},
		{"", "object", "gone", "gone"},
		{"", "object", "90:b8:d0:10:02:00", "90:b8:d0:10:02:00"},
		{"", "network", "web", "network-id"},
		{"", "network", "gone", "no network is named gone"},
		{"", "cn", "web", "server-id"},
		{"", "vnet", "web,5", "7,5"},
		{"", "actor", "web", "web"},
	} {
		got, err := Filter(find, c.kind, c.filter, c.value)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("--%s %s of kind %q: %q, want %q", c.filter, c.value, c.kind, got, c.want)
		}
	}
}

// An address is named by its network and itself, with a colon or a slash between.
func TestIDOfAddress(t *testing.T) {
	t.Parallel()
	const network = "0e70de36-a40b-4ac0-9429-819f5ff82011"
	for text, want := range map[string]string{network + ":10.0.0.5": network + ":10.0.0.5", network + "/fd00::5": network + ":fd00::5"} {
		if got, err := ID(nil, log.KindIP, text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
