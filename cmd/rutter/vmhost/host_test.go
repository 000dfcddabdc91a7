package vmhost_test

import (
	"log/slog"
	"testing"

	"rutter/cmd/rutter/vmhost"
)

// A folder of manifests that is left empty, as an environment variable without a value
// leaves it, is a mistake. It does not make a node without VMs: off does.
func TestManifestsAreNamedOrOff(t *testing.T) {
	if _, err := vmhost.NewLocal(vmhost.Folders{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no folder of manifests is named, and nothing refuses that")
	}
	local, err := vmhost.NewLocal(vmhost.Folders{Manifests: "off"}, slog.New(slog.DiscardHandler))
	if local.Service != nil || local.Runner != nil || err != nil {
		t.Errorf("manifests off: %+v, %v; want none", local, err)
	}
}
