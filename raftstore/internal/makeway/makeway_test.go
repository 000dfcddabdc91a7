package makeway

import (
	"testing"
	"time"
)

// TestRestsAsLongAsItWorks: work that takes long rests about as often as it has worked for
// a slice; short work and work that a caller waits for do not rest.
func TestRestsAsLongAsItWorks(t *testing.T) {
	t.Parallel()
	work := func(w *Work, d time.Duration) {
		for begun := time.Now(); time.Since(begun)-w.Rested() < d; {
			w.Step()
		}
	}
	long := Begin()
	work(long, 20*slice)
	if got := long.Rested(); got < 15*slice {
		t.Errorf("work of %v rested for %v, want about as long", 20*slice, got)
	}
	short := Begin()
	for range stepsPerLook - 1 {
		short.Step()
	}
	if short.Rested() != 0 {
		t.Errorf("%d steps rested for %v", stepsPerLook-1, short.Rested())
	}
	var urgent *Work
	work(urgent, 3*slice)
	if urgent.Rested() != 0 {
		t.Error("work that a caller waits for has rested")
	}
}
