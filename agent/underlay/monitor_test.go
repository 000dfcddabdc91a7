package underlay

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"rutter/log"
)

// Servers of before, and those whose feature version has not risen, refuse the fields of a
// report. The agent's status says what to do about that, and not that a field is to be left
// out; other causes are given as they are.
func TestReportBeforeFeatureVersion(t *testing.T) {
	refused := func(code string) error {
		return &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters", Errors: []log.FieldError{
			{Field: "underlay_mtu", Code: code, Message: `server has no field "underlay_mtu"`, Remedy: "leave it out"},
		}}
	}
	for _, c := range []struct {
		err         error
		says, hides string
	}{
		{refused(log.ElementUnknown), "feature version 4 on: upgrade all of them", "leave it out"},
		{refused(log.ElementInvalid), "underlay_mtu", "upgrade"},
		{errors.New("no server answered"), "no server answered", "upgrade"},
	} {
		m := New(Config{Logger: slog.New(slog.DiscardHandler)})
		m.note(c.err)
		if got := strings.Join(m.Trouble(), "\n"); !strings.Contains(got, c.says) || strings.Contains(got, c.hides) {
			t.Errorf("%v: status says %q", c.err, got)
		}
	}
}
