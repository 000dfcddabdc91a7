package vmobject

import (
	"strings"
	"testing"

	"rutter/log"
)

// TestPublic: internal_metadata is left out of a VM and of the old values of its events,
// however its name is written, and nothing else is; the originals stay.
func TestPublic(t *testing.T) {
	for text, want := range map[string]string{
		``:                                ``,
		`{"tags":{"a":"b"}}`:              `{"tags":{"a":"b"}}`,
		`{"internal_metadata":{"k":"s"}}`: ``,
		`{"internal_metadata":{"k":"s"},"tags":{"internal_metadata":"mine"}}`: `{"tags":{"internal_metadata":"mine"}}`,
		`{"internal\u005fmetadata":{"k":"s"},"x":1}`:                          `{"x":1}`,
		`{"tags":{"a":"\\"}}`:             `{"tags":{"a":"\\"}}`,
		`{"internal_metadata":{"k":"s"}`:  ``,
		`["internal_metadata",{"k":"s"}]`: ``,
	} {
		vm := &log.VM{Alias: "a", Properties: text}
		got := Public(vm)
		if got.Properties != want || got.Alias != "a" || vm.Properties != text {
			t.Errorf("%s: got %q, want %q", text, got.Properties, want)
		}
		event := &log.Event{Kind: log.KindVM, Object: &log.VM{Alias: "b"}, Changed: []log.FieldChange{{Path: "alias", Old: "a"}, {Path: "properties", Old: text}}}
		shown := PublicEvent(event)
		if shown.Changed[1].Old != log.Value(want) || shown.Changed[0].Old != log.Value("a") || event.Changed[1].Old != log.Value(text) {
			t.Errorf("the old value %s: got %v", text, shown.Changed)
		}
		event = &log.Event{Kind: log.KindVM, Object: vm}
		if shown := PublicEvent(event); shown.Object.(*log.VM).Properties != want || strings.Contains(want, "tags") && want == text && shown != event {
			t.Errorf("the event of %s: got %+v", text, shown.Object)
		}
	}
	nic := &log.Event{Kind: log.KindNIC, Object: &log.NIC{}}
	if PublicEvent(nic) != nic {
		t.Error("an event of a NIC is another")
	}
}
