package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// has reports whether a history has a fault of a kind that lasts so long.
func has(h History, kind Kind, least time.Duration) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.Kind == kind && f.For >= least })
}

// Of a long history that fails because of two of its faults, these two are left.
func TestShrinkToWhatMatters(t *testing.T) {
	h := small()
	h.Agents, h.Servers, h.Clients, h.WAL, h.TLS = 40, 5, 6, true, true
	for i := range 60 {
		f := Fault{Kind: Retain, N: 100, At: time.Duration(i) * 500 * ms, Seed: uint64(i) + 1}
		switch i {
		case 17:
			f = Fault{Kind: Kill, On: "s2", For: 4 * sec, At: f.At, Seed: f.Seed}
		case 43:
			f = Fault{Kind: Lossy, On: "s1", To: "cn3", N: 40, For: 8 * sec, At: f.At, Seed: f.Seed}
		}
		h.Faults = append(h.Faults, f)
	}
	fails := func(h History) bool {
		return has(h, Kill, sec) && slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.Kind == Lossy && f.N >= 10 })
	}
	s := Shrink(h, 200, fails)
	if !fails(s.History) {
		t.Fatalf("it does not fail any more:\n%v", s.History)
	}
	if len(s.History.Faults) != 2 {
		t.Fatalf("%d faults are left:\n%v", len(s.History.Faults), s.History)
	}
	kill, lossy := s.History.Faults[0], s.History.Faults[1]
	if kill.For >= 2*sec || kill.For < sec || lossy.N != 10 || lossy.For > 200*ms {
		t.Errorf("they are not small:\n%v", s.History)
	}
	if s.History.Agents != 3 || s.History.Servers != 3 || s.History.Clients != 1 {
		t.Errorf("machines are left that do not matter: %v", s.History)
	}
	if s.History.WAL || s.History.TLS || s.History.Duration >= time.Minute {
		t.Errorf("what does not matter is left: %v", s.History)
	}
	text := strings.Join(s.Removed, "\n")
	for _, says := range []string{"58 of 60 faults", "37 of 40 agents", "2 of 5 servers", "TLS", "raft-wal", "for 4s: it is now kill on s2, for 1s", "of 1m0s"} {
		if !strings.Contains(text, says) {
			t.Errorf("%q is not said of what was removed:\n%s", says, text)
		}
	}
}

// The number of tries is a bound, and what is returned fails, whatever fails means.
func TestShrinkProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Generate(rapid.Uint64().Draw(t, "seed"), Wide())
		need := map[uint64]bool{}
		for _, f := range h.Faults {
			if rapid.IntRange(0, 4).Draw(t, "need") == 0 {
				need[f.Seed] = true
			}
		}
		tries := rapid.IntRange(0, 300).Draw(t, "tries")
		calls := 0
		fails := func(h History) bool {
			if err := h.Validate(); err != nil {
				t.Fatalf("fails was asked about a history that cannot be run: %v", err)
			}
			calls++
			n := 0
			for _, f := range h.Faults {
				if need[f.Seed] {
					n++
				}
			}
			return n == len(need)
		}
		s := Shrink(h, tries, fails)
		if calls > tries || calls != s.Tries {
			t.Fatalf("%d calls, %d said, %d allowed", calls, s.Tries, tries)
		}
		if !fails(s.History) {
			t.Fatalf("it does not fail:\n%v", s.History)
		}
		if tries == 300 && len(s.History.Faults) > len(need) {
			// A backup may be needed because a restore is.
			backups := 0
			for _, f := range s.History.Faults {
				if !need[f.Seed] && f.Kind == Snapshot {
					backups++
				}
			}
			if len(s.History.Faults) > len(need)+min(backups, 1) {
				t.Fatalf("%d faults for %d:\n%v", len(s.History.Faults), len(need), s.History)
			}
		}
	})
}

// A failure that needs no fault at all is shown without any.
func TestShrinkToNothing(t *testing.T) {
	s := Shrink(Generate(5, Usual()), 50, func(History) bool { return true })
	if len(s.History.Faults) != 0 || s.History.Agents != 1 || s.History.Duration > 3*sec {
		t.Errorf("left:\n%v", s.History)
	}
}
