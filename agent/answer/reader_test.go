package answer

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

// TestFailuresThatAreNews: the first failure of a bridge that goes with its last NIC is not
// logged; one that is still missing when it is tried again is, once; others are at once.
func TestFailuresThatAreNews(t *testing.T) {
	down, absent := fmt.Errorf("receive: %w", syscall.ENETDOWN), fmt.Errorf("bind: %w", syscall.ENODEV)
	var f failing
	for i, step := range []struct {
		err  error
		news bool
	}{
		{down, false},
		{absent, true},
		{absent, false},
		{down, true},
		{errors.New("no memory"), true},
		{errors.New("no memory"), false},
	} {
		if got := f.isNews(step.err); got != step.news {
			t.Errorf("failure %d, %v: news %v, want %v", i, step.err, got, step.news)
		}
	}
}
