package window

import (
	"testing"
	"time"

	"rutter/log"
)

// An unknown id is taken from age - ahead before the cluster's time to ahead after it. What
// is older may have been forgotten: it is refused also by a window that forgot nothing,
// because other servers must answer the same, whatever they remember (SAFETY T2).
func TestIDsThatAreTaken(t *testing.T) {
	t.Parallel()
	const age = time.Hour
	w := New(age, 10, log.UUID{})
	w.contained = true
	now := log.TimeOf(time.Unix(1_800_000_000, 0))
	w.Advance(now)
	for _, c := range []struct {
		off  time.Duration
		code string
	}{
		{MaxAhead + time.Millisecond, log.CodeInvalidParameters},
		{MaxAhead, ""},
		{0, ""},
		{-(age - MaxAhead), ""},
		{-(age - MaxAhead) - time.Millisecond, log.CodeTooOld},
		{-age, log.CodeTooOld},
		{-age - MaxAhead, log.CodeTooOld},
	} {
		code := ""
		if refusal := w.Check(NewID((now + log.Time(c.off)).Std()), log.Asker{1}, now); refusal != nil {
			code = refusal.Code
		}
		if code != c.code {
			t.Errorf("an id %v from the cluster's time: refused as %q, want %q", c.off, code, c.code)
		}
	}
}
