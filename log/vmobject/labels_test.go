package vmobject

import (
	"strings"
	"testing"

	"rutter/log"
)

// TestLabelsAreTheLogs: VMAPI's object of a VM with labels has none, and what a NIC of VMAPI
// calls labels stays what it was.
func TestLabelsAreTheLogs(t *testing.T) {
	t.Parallel()
	vm, set, err := Take([]byte(`{"uuid":"5595d88c-6e4d-4bda-b58e-97dd02e30001","labels":{"a":1},"nics":[{"mac":"90:b8:d0:10:02:00","labels":["x"]}]}`))
	if err != nil || len(vm.Labels) > 0 || strings.Contains(strings.Join(set, " "), log.FieldLabels) {
		t.Fatalf("%+v, %q, %v", vm, set, err)
	}
	if !strings.Contains(vm.Properties, `"labels":["x"]`) || !strings.Contains(vm.Properties, `"labels":{"a":1}`) {
		t.Errorf("the properties are %s", vm.Properties)
	}
	if _, there := Show(&log.VM{Labels: []string{"set=web"}})[log.FieldLabels]; there {
		t.Error("VMAPI shows the log's labels")
	}
}
