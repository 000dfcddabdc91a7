package manifests

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

func TestComposeStates(t *testing.T) {
	for _, test := range []struct {
		wanted           string
		facts            observed
		state, zoneState string
	}{
		{"running", observed{memory: -1}, "stopped", "installed"},
		{"", observed{memory: -1, namespace: true}, "stopped", "ready"},
		{"provisioning", observed{memory: -1, namespace: true}, "provisioning", "ready"},
		{"provisioning", observed{memory: -1, namespace: true, pid: 1}, "running", "running"},
		{"", observed{memory: -1, pid: 1}, "stopping", "shutting_down"},
	} {
		state, zoneState := stateOf(test.wanted, test.facts)
		if state != test.state || zoneState != test.zoneState {
			t.Errorf("%q %+v: got %s, %s, want %s, %s", test.wanted, test.facts, state, zoneState, test.state, test.zoneState)
		}
	}
	mac := log.MAC{0x90, 0xb8, 0xd0, 0x57, 0x53, 0x70}
	m, err := system.ParseManifest([]byte(`{"uuid":"` + composeUUID(1) + `","nics":[{"mac":"90:b8:d0:57:53:70","ip":"1.2.3.4","gateway":"10.0.0.1"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	links := map[log.MAC][]netip.Prefix{mac: {netip.MustParsePrefix("fd00::1/64"), netip.MustParsePrefix("10.0.0.5/16")}}
	got := string(compose(m, observed{memory: -1, namespace: true, addresses: links}).AppendJSON(nil))
	if want := `"nics":[{"mac":"90:b8:d0:57:53:70","gateway":"10.0.0.1","ips":["10.0.0.5/16","fd00::1/64"],"ip":"10.0.0.5","netmask":"255.255.0.0"}]`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzManifest: any content of a manifest is refused or makes a VM.
func FuzzManifest(f *testing.F) {
	for _, s := range []string{`{"uuid":"` + composeUUID(1) + `","nics":[{"mac":"90:b8:d0:57:53:70"}]}`, `{"uuid":1}`, `{"uuid":"` + composeUUID(1) + `","state":{},"zonename":"x"}`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := system.ParseManifest(text)
		if err != nil {
			return
		}
		for _, facts := range []observed{{memory: -1}, {namespace: true, pid: 3, memory: system.Mebi, addresses: map[log.MAC][]netip.Prefix{}}} {
			vm, err := vmdoc.ParseVM(compose(m, facts))
			if err != nil || vm.UUID != m.UUID || vm.Zonename != m.Zone {
				t.Fatalf("%s made %s, %v", text, vm.JSON, err)
			}
		}
	})
}

// FuzzNetlink: no message makes the readers of netlink fail.
func FuzzNetlink(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = netlinkReply(b, 1, true, func(_ uint16, body []byte) { _, _, _ = parseAddress(body) })
		_, _, _ = parseAddress(b)
		_ = slices.Grow(parseFileEvents(nil, b), 0)
	})
}

func composeUUID(n int) string { return fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", n) }
