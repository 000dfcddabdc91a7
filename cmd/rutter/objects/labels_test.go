package objects

import (
	"reflect"
	"testing"

	"rutter/log"
)

// TestLabelsOfArguments: labels are given with commas between them, each with its own sign
// of equality.
func TestLabelsOfArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		"set=web":       []string{"set=web"},
		"set=web,a=b=c": []string{"set=web", "a=b=c"},
		`["set=web"]`:   []any{"set=web"},
		"[]":            []any{},
	} {
		if got := fieldValue(log.KindNICTag, log.FieldLabels, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, want %#v", text, got, want)
		}
	}
}
