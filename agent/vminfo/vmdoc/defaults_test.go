package vmdoc_test

import (
	"testing"

	"rutter/agent/vminfo/vmdoc"
)

// TestIsDefault: an update that takes a field away is seen to be done when the field has
// its default, and not before.
func TestIsDefault(t *testing.T) {
	for _, test := range []struct {
		vm, field string
		want      bool
	}{
		{`{}`, "alias", true},
		{`{"alias":"a"}`, "alias", false},
		{`{"tags":{}}`, "tags", true},
		{`{"tags":{"a":1}}`, "tags", false},
		{`{"brand":"kvm","vcpus":1}`, "vcpus", true},
		{`{"brand":"kvm","vcpus":2}`, "vcpus", false},
		{`{"max_physical_memory":512,"max_swap":512}`, "max_swap", true},
		{`{"max_physical_memory":512,"max_swap":1024}`, "max_swap", false},
	} {
		vm, err := vmdoc.ParseValue([]byte(test.vm))
		if err != nil {
			t.Fatal(err)
		}
		if got := vmdoc.IsDefault(vm, test.field); got != test.want {
			t.Errorf("%s of %s: got %t, want %t", test.field, test.vm, got, test.want)
		}
		if again := vmdoc.Completed(vmdoc.Completed(vm)); !again.Equal(vmdoc.Completed(vm)) {
			t.Errorf("%s: completed twice it is %s", test.vm, again.AppendJSON(nil))
		}
	}
}

// TestAddressed: a link's addresses count, and where they are not known the wanted ones.
// A NIC that is on no fabric has no link of Rutter's, so nothing waits for it; one of which
// the log has not said where it is, is waited for.
func TestAddressed(t *testing.T) {
	for text, want := range map[string]bool{
		`{"nics":[]}`:                                                                                                               true,
		`{"nics":[{"ips":["10.0.0.1/24"]}]}`:                                                                                        true,
		`{"nics":[{"ips":["10.0.0.1/24"],"kernel_ips":[]}]}`:                                                                        false,
		`{"nics":[{"ips":[],"kernel_ips":["10.0.0.1/24"]}]}`:                                                                        true,
		`{"nics":[{"kernel_ips":["10.0.0.1/24"]},{"kernel_ips":[]}]}`:                                                               false,
		`{"nics":[{"kernel_ips":["10.0.0.1/24"]},{"ip":"10.0.0.2"}]}`:                                                               false,
		`{"nics":[{"ips":["dhcp"],"kernel_ips":["10.0.0.1/24","::1"]}]}`:                                                            true,
		`{"nics":[{"nic_tag":"external","network_uuid":"6f6b2a0e-0001-4c3e-8f3a-0242ac120001","kernel_ips":[]}]}`:                   true,
		`{"nics":[{"nic_tag":"external","kernel_ips":[]}]}`:                                                                         false,
		`{"nics":[{"network_uuid":"6f6b2a0e-0001-4c3e-8f3a-0242ac120001","kernel_ips":[]}]}`:                                        false,
		`{"nics":[{"nic_tag":"sdc_overlay/7","network_uuid":"6f6b2a0e-0001-4c3e-8f3a-0242ac120001","kernel_ips":[]}]}`:              false,
		`{"nics":[{"nic_tag":"external","network_uuid":"6f6b2a0e-0001-4c3e-8f3a-0242ac120001","kernel_ips":[]},{"kernel_ips":[]}]}`: false,
	} {
		vm, err := vmdoc.ParseValue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := vmdoc.Addressed(vm); got != want {
			t.Errorf("%s: got %t, want %t", text, got, want)
		}
	}
}
