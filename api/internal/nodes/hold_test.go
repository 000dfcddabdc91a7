package nodes

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rutter/api/feedserver"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/feed"
)

// What an agent answers of its hold is answered to people as far as it makes sense,
// whatever it is: no status that there is not, and no more than a server keeps.
func TestWhatAnAgentHolds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10)
	for _, c := range []struct {
		status uint16
		body   string
		want   int
		code   string
	}{
		{http.StatusOK, `{"id":"` + long + `","names":["vxlan\u001b[2J","` + long + `"]}`, 0, ""},
		{http.StatusOK, `[`, http.StatusBadGateway, CodeUnreachable},
		{http.StatusConflict, `{"code":"OtherHold","message":"` + long + `"}`, http.StatusConflict, "OtherHold"},
		{http.StatusNotFound, `404 page not found`, http.StatusNotImplemented, rest.CodeNotHere},
		{0, `{"code":"Zero"}`, http.StatusBadGateway, "Zero"},
		{65535, `{"code":"Most"}`, http.StatusBadGateway, "Most"},
	} {
		var h holdForm
		err := heldOf(log.UUID{1}, &feed.Response{Status: c.status, Body: []byte(c.body)}, &h)
		if c.want == 0 {
			if err != nil || len(h.ID) > feedserver.MaxHoldID || len(strings.Join(h.Names, "")) > feedserver.MaxConditionBytes || h.Names[0] != "vxlan?[2J" {
				t.Errorf("%d: %v, %d names", c.status, err, len(h.Names))
			}
			continue
		}
		var answer *rest.Error
		if !errors.As(err, &answer) {
			t.Fatalf("%d: %v", c.status, err)
		}
		answer = answer.Bounded()
		w := httptest.NewRecorder()
		rest.WriteJSON(w, httptest.NewRequest(http.MethodPost, "/cns/x/accept", http.NoBody), answer.Status, answer)
		if body := w.Body.String(); w.Code != c.want || !strings.Contains(body, `"`+c.code+`"`) || len(body) > 8<<10 {
			t.Errorf("%d: answered with %d and %.200s", c.status, w.Code, body)
		}
	}
}

// Errors that were joined stand in one line.
func TestJoinedErrorsInOneLine(t *testing.T) {
	t.Parallel()
	answer := rest.Fail(http.StatusGatewayTimeout, CodeUnreachable, "", "%v", errors.Join(errors.New("not here"), errors.New("nor there")))
	if got := answer.Bounded().Message; got != "not here; nor there" {
		t.Errorf("got %q", got)
	}
}
