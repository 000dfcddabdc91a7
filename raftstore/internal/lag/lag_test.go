package lag

import (
	"testing"
	"time"

	"rutter/log"
)

// TestJudge: a table of what the leader said and where this server was, second by second,
// with a bound of 10 s.
func TestJudge(t *testing.T) {
	t.Parallel()
	type span struct {
		seconds int
		leader  log.Seq // grows by one a second while it is not 0; 0: the leader is not observed
		own     log.Seq // grows by one a second too, if follows
		follows bool
		over    bool // at the end of the span
		lag     time.Duration
	}
	for name, spans := range map[string][]span{
		"keeps up":               {{60, 100, 100, true, false, 0}},
		"idle":                   {{60, 0, 0, false, true, 60 * time.Second}}, // observed nothing at all
		"3 s behind all along":   {{60, 100, 97, true, false, 2 * time.Second}},
		"does not move":          {{9, 100, 50, false, false, 8 * time.Second}, {3, 109, 50, false, true, 11 * time.Second}},
		"comes back":             {{20, 100, 50, false, true, 19 * time.Second}, {3, 120, 120, true, true, 0}, {4, 123, 123, true, false, 0}},
		"comes back by half":     {{20, 100, 50, false, true, 19 * time.Second}, {30, 120, 112, true, true, 7 * time.Second}},
		"the leader is silent":   {{5, 100, 100, true, false, 0}, {9, 0, 104, false, false, 9 * time.Second}, {3, 0, 104, false, true, 12 * time.Second}},
		"observed again":         {{20, 0, 100, false, true, 20 * time.Second}, {7, 100, 100, true, false, 0}},
		"further than is stored": {{3 * maxSamples, 100, 50, false, true, (3*maxSamples - 1) * time.Second}, {1, 400, 101, false, true, (3*maxSamples - 2) * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			m := New(10*time.Second, now)
			for i, s := range spans {
				for range s.seconds {
					now = now.Add(time.Second)
					if s.leader > 0 {
						m.Observed(now, s.leader)
						s.leader++
					}
					m.Judge(now, s.own)
					if s.follows {
						s.own++
					}
				}
				if st := m.Status(); st.Over != s.over || st.Lag != s.lag {
					t.Errorf("after span %d: %+v, want over %t and a lag of %v", i, st, s.over, s.lag)
				}
			}
		})
	}
}

// TestReset: a server that gets a vote is not over, and a meter counts what began.
func TestReset(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := New(time.Second, now)
	if !m.Judge(now.Add(2*time.Second), 1) || !m.Reset(now.Add(2*time.Second)) {
		t.Error("silence of 2 s is no change, or its end is none")
	}
	if st := m.Status(); st != (Status{Times: 1}) || m.Reset(now) {
		t.Errorf("after the reset: %+v", st)
	}
	if m.Every() != leastEvery || New(time.Hour, now).Every() != mostEvery || m.Bound() != time.Second {
		t.Errorf("periods %v and %v", m.Every(), New(time.Hour, now).Every())
	}
}
