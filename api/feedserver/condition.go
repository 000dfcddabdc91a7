package feedserver

import (
	"log/slog"
	"strings"
	"time"
	"unicode"

	"rutter/log/feed"
)

// Bounds of what a server keeps of a Condition.
const (
	// MaxConditionBytes bounds each text, in bytes.
	MaxConditionBytes = 4 << 10
	// MaxHoldID bounds a hold's id in bytes; an agent's ids have 16.
	MaxHoldID = 64
	// maxConditionLines bounds the log lines per minute about one session's condition.
	maxConditionLines = 8
)

// noteCondition takes what a CN reports to operators.
func (g *sessions) noteCondition(a *session, m *feed.Condition, logger *slog.Logger) {
	m.Hold, m.Names, m.Trouble = Printable(m.Hold, MaxHoldID), Printable(m.Names, MaxConditionBytes), Printable(m.Trouble, MaxConditionBytes)
	before := g.setCondition(a, *m)
	if m.Hold == before.Hold && (m.Trouble == before.Trouble || m.Trouble == "") || !a.mayLogCondition(time.Now()) {
		return
	}
	switch {
	case m.Hold != "" && m.Hold != before.Hold:
		logger.Warn("a compute node holds back what the log says, since it takes too much away: rutter cn accept lets it", "cn", a.cn, "hold", m.Hold, "going", m.Going, "links", m.Links, "before", m.Was)
	case m.Hold == "" && before.Hold != "":
		logger.Info("a compute node holds nothing back any more", "cn", a.cn)
	}
	if m.Trouble != "" && m.Trouble != before.Trouble {
		logger.Warn("a compute node is in trouble", "cn", a.cn, "trouble", m.Trouble)
	}
}

// mayLogCondition reports whether this server may log another line about a CN's
// condition. A CN could change it with every frame.
func (a *session) mayLogCondition(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.loggedSince) >= time.Minute {
		a.logged, a.loggedSince = 0, now
	}
	a.logged++
	return a.logged <= maxConditionLines
}

// Printable returns a text of a CN in a form that is safe to print: at most so many
// bytes, without control characters.
func Printable(text string, most int) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text[:min(len(text), most)])
}

// setCondition sets a condition, and returns the previous one.
func (g *sessions) setCondition(a *session, m feed.Condition) (before feed.Condition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, a.condition = a.condition, m
	g.table.Put(a.live())
	return before
}

// countIf counts the CNs whose condition matches.
func (g *sessions) countIf(is func(*feed.Condition) bool) (n int) {
	for _, a := range g.all() {
		a.mu.Lock()
		if is(&a.condition) {
			n++
		}
		a.mu.Unlock()
	}
	return n
}
