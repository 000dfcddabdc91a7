package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
)

// Where the fate of a change is unknown, that is what is answered, whatever a later
// try met: never to split it, or to send it with a new id.
func TestUnknownFateIsToldAsSuch(t *testing.T) {
	t.Parallel()
	for _, met := range []error{
		errors.New("the connection was lost"),
		fmt.Errorf("a later try: %w", log.ErrTooLarge), fmt.Errorf("a later try: %w", backend.ErrNoLeader), fmt.Errorf("a later try: %w", backend.ErrOverloaded),
		&log.Refusal{Code: log.CodeTooOld, Message: "too old"},
	} {
		err := fmt.Errorf("%w: %w", backend.ErrUnknown, met)
		w := httptest.NewRecorder()
		backend.WriteError(w, httptest.NewRequest(http.MethodPost, "/changes", http.NoBody), backend.ErrorOf(err))
		body := w.Body.String()
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(body, rest.CodeUnknown) || !strings.Contains(body, "not known whether the change was made") || !strings.Contains(body, "the same "+rest.HeaderChangeID) {
			t.Errorf("%v: %d %s", met, w.Code, body)
		}
		if strings.Contains(body, "split") || strings.Contains(body, "new id") {
			t.Errorf("%v: %s", met, body)
		}
		if got := backend.ErrorOf(fmt.Errorf("setting the retention: %w", err)); got.Code != rest.CodeUnknown {
			t.Errorf("%v: answered with %v", met, got)
		}
	}
}
