package changefeed

import (
	"slices"
	"testing"

	"rutter/log"
)

// TestLabelsAreNotTritons: labels are the log's own. Listeners of Triton's feed cannot ask for
// them, and get no item if only they changed.
func TestLabelsAreNotTritons(t *testing.T) {
	t.Parallel()
	for name, r := range resources {
		if slices.Contains(r.SubResources, log.FieldLabels) {
			t.Errorf("%s has the subresource labels", name)
		}
	}
	tag, vm := &log.NICTag{Name: "a"}, &log.VM{UUID: log.UUID{1}}
	changed := []log.FieldChange{{Path: log.FieldLabels}}
	if subs := subResources(&log.Event{Kind: log.KindNICTag, Action: log.Update, Object: tag, Changed: changed}); len(subs) > 0 {
		t.Errorf("a NIC tag: %q", subs)
	}
	if subs := subsOfVM(&log.Event{Kind: log.KindVM, Action: log.Update, Object: vm, Changed: changed}); len(subs) > 0 {
		t.Errorf("a VM: %q", subs)
	}
}
