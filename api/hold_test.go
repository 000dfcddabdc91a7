package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rutter/api/backend"
	"rutter/api/rest"
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
		{http.StatusOK, `[`, http.StatusBadGateway, codeUnreachable},
		{http.StatusConflict, `{"code":"OtherHold","message":"` + long + `"}`, http.StatusConflict, "OtherHold"},
		{http.StatusNotFound, `404 page not found`, http.StatusNotImplemented, rest.CodeNotHere},
		{0, `{"code":"Zero"}`, http.StatusBadGateway, "Zero"},
		{65535, `{"code":"Most"}`, http.StatusBadGateway, "Most"},
	} {
		var h holdForm
		err := heldOf(log.UUID{1}, &feed.Response{Status: c.status, Body: []byte(c.body)}, &h)
		if c.want == 0 {
			if err != nil || len(h.ID) > maxHoldID || len(strings.Join(h.Names, "")) > maxConditionBytes || h.Names[0] != "vxlan?[2J" {
				t.Errorf("%d: %v, %d names", c.status, err, len(h.Names))
			}
			continue
		}
		w := httptest.NewRecorder()
		backend.WriteError(w, httptest.NewRequest(http.MethodPost, "/cns/x/accept", http.NoBody), err)
		if body := w.Body.String(); w.Code != c.want || !strings.Contains(body, `"`+c.code+`"`) || len(body) > 8<<10 {
			t.Errorf("%d: answered with %d and %.200s", c.status, w.Code, body)
		}
	}
}

// Errors that were joined stand in one line.
func TestJoinedErrorsInOneLine(t *testing.T) {
	t.Parallel()
	answer := rest.Fail(http.StatusGatewayTimeout, codeUnreachable, "", "%v", errors.Join(errors.New("not here"), errors.New("nor there")))
	if got := answer.Bounded().Message; got != "not here; nor there" {
		t.Errorf("got %q", got)
	}
}

// What a CN says of itself is shown to people as text, and cannot fill this server's
// log.
func TestConditionsAreRemarkedOnInMeasure(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	s, err := New(Config{Store: newMemory(), Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	a := &session{cn: log.UUID{1}}
	for n := range 1000 {
		s.judged(a, &feed.Condition{Hold: fmt.Sprintf("%d\x1b[2J%s", n, strings.Repeat("x", 1<<10)), Trouble: strings.Repeat("y\x07", 10<<10)})
	}
	if n := strings.Count(lines.String(), "\n"); n < 2 || n > 2*maxRemarks {
		t.Errorf("%d lines", n)
	}
	if c := a.condition; len(c.Hold) > maxHoldID || len(c.Trouble) > maxConditionBytes || strings.ContainsAny(c.Hold+c.Trouble, "\x1b\x07") {
		t.Errorf("kept %+v", c)
	}
	if !a.mayRemark(time.Now().Add(time.Hour)) {
		t.Error("an hour later it is silent still")
	}
}
