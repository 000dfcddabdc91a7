package vmcmd

import (
	"errors"
	"testing"

	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// VMs of a compute node are named as those of the log.
func TestVMNamed(t *testing.T) {
	state, err := stateOf([]byte(`[
		{"uuid": "5595d88c-6e4d-4bda-b58e-97dd02e30001", "alias": "web0", "nics": [{"mac": "90:b8:d0:00:00:01"}, {"mac": "none"}, 7]},
		{"uuid": "5595d88c-6e4d-4bda-b58e-97dd02e30002", "alias": "db0", "owner_uuid": "930896af-bf8c-48d4-885c-6573a94b1853"},
		{"uuid": "6695d88c-6e4d-4bda-b58e-97dd02e30003", "alias": "db0"},
		{"uuid": "no uuid", "alias": "db9"}, {}]`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"web0": "5595d88c-6e4d-4bda-b58e-97dd02e30001", "90:b8:d0:00:00:01": "5595d88c-6e4d-4bda-b58e-97dd02e30001", "6695": "6695d88c-6e4d-4bda-b58e-97dd02e30003"} {
		if o, err := named.InState(state, log.KindVM, text); o.ID != want || err != nil {
			t.Errorf("%s: %+v, %v; want %s", text, o, err, want)
		}
	}
	for _, text := range []string{"db0", "5595"} {
		_, err := named.InState(state, log.KindVM, text)
		if _, usage := errors.AsType[term.UsageError](err); !usage {
			t.Errorf("%s, which is two: %v", text, err)
		}
	}
	for _, text := range []string{"db9", "no uuid", "777"} {
		if _, err := named.InState(state, log.KindVM, text); err == nil {
			t.Errorf("%s names a VM", text)
		}
	}
	if _, err := stateOf([]byte(`{"message": "no"}`)); err == nil {
		t.Error("no list of VMs was read")
	}
}
