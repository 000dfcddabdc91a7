package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rutter/api/rest"
	"rutter/log"
	"rutter/log/intake"
)

// Where the fate of a change is unknown, that is what is answered, whatever a later
// try met: never to split it, or to send it with a new id.
func TestUnknownFateIsToldAsSuch(t *testing.T) {
	t.Parallel()
	for _, met := range []error{
		errors.New("the connection was lost"),
		fmt.Errorf("a later try: %w", log.ErrTooLarge), fmt.Errorf("a later try: %w", ErrNoLeader), fmt.Errorf("a later try: %w", ErrOverloaded),
		&log.Refusal{Code: log.CodeTooOld, Message: "too old"},
	} {
		err := fmt.Errorf("%w: %w", ErrUnknown, met)
		w := httptest.NewRecorder()
		writeError(w, httptest.NewRequest(http.MethodPost, "/changes", http.NoBody), unknown(err))
		body := w.Body.String()
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(body, rest.CodeUnknown) || !strings.Contains(body, "not known whether the change was made") || !strings.Contains(body, "the same "+rest.HeaderChangeID) {
			t.Errorf("%v: %d %s", met, w.Code, body)
		}
		if strings.Contains(body, "split") || strings.Contains(body, "new id") {
			t.Errorf("%v: %s", met, body)
		}
		if got := errorOf(fmt.Errorf("setting the retention: %w", err)); got.Code != rest.CodeUnknown {
			t.Errorf("%v: answered with %v", met, got)
		}
		if got := codeOf(err); got != intake.CodeUnknown {
			t.Errorf("%v: code %s on a write stream", met, got)
		}
	}
}
