package libvirt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rutter/log"
)

// TestParseList reads lists of the real virsh.
func TestParseList(t *testing.T) {
	for name, want := range map[string]struct {
		state  State
		runs   bool
		status int
	}{
		"list-running.txt": {State{stateRunning, 1}, true, 0},
		"list-paused.txt":  {State{statePaused, 1}, true, 0},
		"list-crashed.txt": {State{stateShutoff, shutoffCrashed}, false, 1},
	} {
		list, err := parseList(golden(t, name))
		if err != nil || len(list) != 1 || list[0] != (Listed{goldenUUID, goldenName, want.state}) {
			t.Errorf("%s: %+v, %v", name, list, err)
			continue
		}
		if s := list[0].State; s.Runs() != want.runs || s.ExitStatus() != want.status {
			t.Errorf("%s: runs %t, exit status %d, want %+v", name, s.Runs(), s.ExitStatus(), want)
		}
	}
	if list, err := parseList(golden(t, "list-none.txt")); err != nil || len(list) != 0 {
		t.Errorf("no domain: %+v, %v", list, err)
	}
	for _, text := range []string{"web0\n", "5f4ab3c8-9e8d-4f6c-8a0e-6a4f4c0a8d11\n", "Domain: 'a'\n  state.state=running\n"} {
		if list, err := parseList([]byte(text)); !errors.Is(err, ErrVirsh) {
			t.Errorf("%q: %+v, %v, want an ErrVirsh", text, list, err)
		}
	}
}

// TestDocuments: what virsh dumps of several domains is several documents.
func TestDocuments(t *testing.T) {
	all := documents(golden(t, "dump.txt"))
	if len(all) != 2 {
		t.Fatalf("%d documents, want 2", len(all))
	}
	for _, one := range all {
		if d, err := ParseDomain(bytes.NewReader(one)); err != nil || d.UUID != goldenUUID {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// TestReadEvents reads the two sides of a migration as the real virsh told them.
func TestReadEvents(t *testing.T) {
	for name, want := range map[string][]string{
		"events-migrated-from.txt": {"Resumed Unpaused", "Started Booted", "Suspended Migrated", "Stopped Migrated", "Defined Added", "Resumed Unpaused", "Started Booted", "Suspended Migrated", "Stopped Migrated"},
		"events-migrated-to.txt":   {"Started Migrated", "Defined Added", "Resumed Migrated", "Suspended Paused", "Resumed Unpaused", "Stopped Failed", "Undefined Removed", "Started Migrated", "Defined Added", "Resumed Migrated"},
	} {
		ready, got := 0, []string(nil)
		_ = readEvents(bytes.NewReader(golden(t, name)), func() { ready++ }, func(e Event) {
			if e.Domain != goldenName {
				t.Errorf("%s: event of %q", name, e.Domain)
			}
			got = append(got, e.Type+" "+e.Detail)
		})
		if ready != 1 || !slices.Equal(got, want) {
			t.Errorf("%s: ready %d times, events %q, want %q", name, ready, got, want)
		}
	}
	var got []Event
	long := "event 'lifecycle' for domain '" + strings.Repeat("a", 2*maxEventLine) + "': Started Booted\n"
	_ = readEvents(strings.NewReader("uri\n"+long+"event 'lifecycle' for domain 'a': Stopped Destroyed\n"), func() {}, func(e Event) { got = append(got, e) })
	if !reflect.DeepEqual(got, []Event{{"a", "Stopped", "Destroyed"}}) {
		t.Errorf("after a line that is too long: %+v", got)
	}
}

// TestVirshIsBounded: a virsh that prints without end, or fails, is an error with its text.
func TestVirshIsBounded(t *testing.T) {
	program := filepath.Join(t.TempDir(), "virsh")
	script := "#!/bin/sh\necho some trouble >&2\necho and more >&2\nexit 1\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	v := Virsh{URI: "qemu:///none", Program: program}
	if _, err := v.List(t.Context()); !errors.Is(err, ErrVirsh) || !strings.Contains(err.Error(), "some trouble and more") {
		t.Errorf("it fails: %v", err)
	}
	if err := v.Events(t.Context(), func() {}, func(Event) {}); !errors.Is(err, ErrVirsh) || !strings.Contains(err.Error(), "some trouble") {
		t.Errorf("its events: %v", err)
	}
	if _, _, err := v.Dump(t.Context(), []log.UUID{goldenUUID}); !errors.Is(err, ErrVirsh) {
		t.Errorf("its dump: %v", err)
	}
	if c := (&capped{most: 3}); must(c.Write([]byte("abcd"))) != 4 || !c.cut || string(c.text) != "abc" {
		t.Errorf("capped: %+v", c)
	}
}

func FuzzParseList(f *testing.F) {
	f.Add(golden(f, "list-running.txt"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if list, err := parseList(text); err == nil && len(list) > bytes.Count(text, []byte("\n"))+1 {
			t.Errorf("%d domains", len(list))
		}
		_ = documents(text)
	})
}
