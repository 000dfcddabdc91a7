package writestream

import (
	"errors"
	"fmt"
	"testing"

	"rutter/api/backend"
	"rutter/log"
	"rutter/log/intake"
)

// An unknown result is unknown on the wire, also if the error wraps another one.
func TestCodeOfAnUnknownFate(t *testing.T) {
	for _, met := range []error{
		errors.New("the connection was lost"),
		fmt.Errorf("a later try: %w", log.ErrTooLarge), fmt.Errorf("a later try: %w", backend.ErrNoLeader), fmt.Errorf("a later try: %w", backend.ErrOverloaded),
		&log.Refusal{Code: log.CodeTooOld, Message: "too old"},
	} {
		if got := codeOf(fmt.Errorf("%w: %w", backend.ErrUnknown, met)); got != intake.CodeUnknown {
			t.Errorf("%v: code %s on a write stream", met, got)
		}
	}
}
