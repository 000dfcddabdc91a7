package feedserver

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
)

// What a CN says of itself is shown to people as text, and cannot fill this server's
// log.
func TestConditionsFillNoLog(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	g, logger := newSessions(liveness.NewTable(1, time.Now)), slog.New(slog.NewTextHandler(&lines, nil))
	a := &session{cn: log.UUID{1}}
	for n := range 1000 {
		g.noteCondition(a, &feed.Condition{Hold: fmt.Sprintf("%d\x1b[2J%s", n, strings.Repeat("x", 1<<10)), Trouble: strings.Repeat("y\x07", 10<<10)}, logger)
	}
	if n := strings.Count(lines.String(), "\n"); n < 2 || n > 2*maxConditionLines {
		t.Errorf("%d lines", n)
	}
	if c := a.condition; len(c.Hold) > MaxHoldID || len(c.Trouble) > MaxConditionBytes || strings.ContainsAny(c.Hold+c.Trouble, "\x1b\x07") {
		t.Errorf("kept %+v", c)
	}
	if !a.mayLogCondition(time.Now().Add(time.Hour)) {
		t.Error("an hour later it is silent still")
	}
}
