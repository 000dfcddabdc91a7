package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

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
}

// TestForms: of each brand, the VM is as SmartOS's vminfod shows it, whatever its
// manifest leaves out; a NIC's addresses are the wanted ones, with the kernel's beside.
func TestForms(t *testing.T) {
	text, err := os.ReadFile("testdata/forms.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Name     string
		Manifest json.RawMessage
		State    struct {
			Namespace bool
			PID       int
			Memory    int64               // MiB
			Exit      *int                // status
			Addresses map[string][]string // by MAC
		}
		VM json.RawMessage
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	cn, err := log.ParseUUID(composeUUID(900))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 5, 31, 16, 29, 11, 0, time.UTC)
	for _, row := range rows {
		m, err := system.ParseManifest(row.Manifest)
		if err != nil {
			t.Fatalf("%s: %v", row.Name, err)
		}
		facts := observed{namespace: row.State.Namespace, pid: row.State.PID, boot: at, memory: -1, cn: cn}
		if row.State.Memory > 0 {
			facts.memory = row.State.Memory * system.Mebi
		}
		if row.State.Exit != nil {
			facts.exit = exit{at: at, status: *row.State.Exit, known: true}
		}
		if row.State.Namespace {
			facts.addresses = make(map[log.MAC][]netip.Prefix)
		}
		for mac, list := range row.State.Addresses {
			parsed, err := log.ParseMAC(mac)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range list {
				facts.addresses[parsed] = append(facts.addresses[parsed], netip.MustParsePrefix(text))
			}
		}
		got := compose(m, facts).AppendJSON(nil)
		var want bytes.Buffer
		if err := json.Compact(&want, row.VM); err != nil {
			t.Fatal(err)
		}
		if string(got) != want.String() {
			t.Errorf("%s: got %s\nwant %s", row.Name, got, want.String())
		}
		if again, err := system.ParseManifest(got); err != nil {
			t.Errorf("%s: what is shown is no manifest: %v", row.Name, err)
		} else if twice := compose(again, facts).AppendJSON(nil); len(twice) != len(got) {
			t.Errorf("%s: what is shown, as a manifest, is shown as %s", row.Name, twice)
		}
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
