package serviceaddr

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The simulated cluster: time in steps of 1 ms, three servers with a Holder and a kernel
// each, elections at any time, processes that stop between any two acts of theirs, kernels
// that are late, and a link on which probes are lost.

const simServers = 3

// simLate is how late kernels are at most, in ms: more than what TestKernelLosesIt
// measures on a busy machine (1.21 s).
const simLate = 1500

// simServer is one server.
type simServer struct {
	holder  Holder
	stopped int // until then its process does nothing, also between check and message
	// sending is a message that sets the address and has passed its check.
	sending bool
	begun   int
	// kernel
	has     bool
	expires int // when the kernel deletes the address
	round   *Round
	roundAt int
}

// sim is a cluster.
type sim struct {
	t       *rapid.T
	random  *rand.Rand // of a drawn seed: rapid itself prefers short and small
	now     int        // ms
	start   time.Time
	leader  int // the latest elected; -1: none
	term    uint64
	acked   [simServers]int // for each server: the latest time that a majority confirmed
	elected [simServers]uint64
	servers [simServers]*simServer
	cut     [simServers]bool // from the link: probes neither arrive nor are answered
	late    int              // how late kernels are at most, ms
	takes   int
}

func (s *sim) at(ms int) time.Time { return s.start.Add(time.Duration(ms) * time.Millisecond) }

func ms(d time.Duration) int { return int(d / time.Millisecond) }

// know is what a server knows: it may believe that it leads after it was deposed.
func (s *sim) know(i int) Leadership {
	l := Leadership{Now: s.at(s.now), Elected: s.elected[i] > 0, Serves: s.elected[i] > 0, Term: s.elected[i]}
	if l.Elected && s.acked[i] >= 0 {
		l.Proved = s.at(s.acked[i])
	}
	return l
}

// between returns a number from least to most.
func (s *sim) between(least, most int) int { return least + s.random.IntN(most-least+1) }

// elect makes a server the leader. Earlier leaders get no proof any more; those that run
// notice later.
func (s *sim) elect(i int) {
	s.term++
	s.leader, s.elected[i], s.acked[i] = i, s.term, -1
}

// run lets one server do what it does in one step.
func (s *sim) run(i int) {
	v := s.servers[i]
	if s.now < v.stopped {
		return
	}
	if v.sending { // the message goes to the kernel, however late
		v.sending = false
		s.setKernel(i)
		if !v.holder.WasSet(s.at(v.begun), s.know(i)) {
			v.has = false // deleted in the same step: what remains is shorter than 1 ms
		}
		return
	}
	if v.round != nil && s.now-s.servers[i].roundAt >= ms(roundTime) {
		v.holder.Probed(*v.round, s.at(s.now))
		v.round = nil
	}
	switch v.holder.Step(s.know(i)) {
	case Drop:
		v.has = false
	case Probe:
		if v.round == nil {
			v.round, v.roundAt = &Round{Begun: s.at(s.now), Complete: true}, s.now
			s.ask(i)
		}
	case Set:
		if !v.holder.May(s.at(s.now)) {
			return
		}
		v.sending, v.begun = true, s.now
		if s.between(0, 30) == 0 {
			v.stopped = s.now + s.between(1, 8000)
			return
		}
		s.run(i)
	}
}

// ask sends a probe, which kernels answer at once.
func (s *sim) ask(i int) {
	for j, other := range s.servers {
		if j == i {
			continue
		}
		if s.cut[i] || s.cut[j] {
			s.servers[i].round.Complete = false
		} else if other.has {
			s.servers[i].round.Answered = true
		}
	}
}

func (s *sim) setKernel(i int) {
	v := s.servers[i]
	v.has, v.expires = true, s.now+ms(Lifetime)+s.between(0, s.late)
	for j, other := range s.servers {
		if j != i && other.has && s.now < other.expires {
			if s.now-v.begun > ms(guard) {
				return // it was stopped between check and message: deleted at once
			}
			s.t.Fatalf("%d ms: servers %d and %d have the address (terms %d and %d)", s.now, i, j, s.elected[i], s.elected[j])
		}
	}
	s.takes++
}

func (s *sim) step() {
	s.now++
	for _, v := range s.servers {
		if v.has && s.now >= v.expires {
			v.has = false
		}
	}
	if s.leader >= 0 && s.now >= s.servers[s.leader].stopped && s.between(0, 60) == 0 {
		s.acked[s.leader] = s.now
	}
}

// Two kernels never have the address at once, whatever is elected, stopped, cut off and
// late within the bounds that the times are made of.
func TestNeverTwoHolders(t *testing.T) {
	t.Parallel()
	takes := 0
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range 20 {
			takes += simulate(t, random)
		}
	})
	if takes == 0 {
		t.Error("no server ever took the address: the simulation shows nothing")
	}
}

// simulate runs one cluster, and returns how often the address was set.
func simulate(t *rapid.T, random *rand.Rand) int {
	s := &sim{t: t, random: random, start: time.Unix(1000, 0), leader: -1, late: simLate}
	for i := range s.servers {
		s.servers[i] = new(simServer)
	}
	acts := []string{"elect", "elect", "stop", "cut", "notice", "idle", "idle"}
	for range 30 {
		i := s.between(0, simServers-1)
		switch acts[s.between(0, len(acts)-1)] {
		case "elect":
			if s.now >= s.servers[i].stopped {
				s.elect(i)
			}
		case "stop":
			s.servers[i].stopped = s.now + s.between(1, 6000)
		case "cut":
			s.cut[i] = !s.cut[i]
		case "notice":
			for j := range s.elected {
				if j != s.leader {
					s.elected[j] = 0
				}
			}
		}
		for range s.between(1, 40) * 10 {
			s.step()
			for j := range s.servers {
				if (s.now+j)%ms(tick) == 0 || s.servers[j].sending {
					s.run(j)
				}
			}
		}
	}
	return s.takes
}

// steady lets a server be elected and confirmed all the time, with a probe result.
func steady(h *Holder, from time.Time, d time.Duration, r Round) (set time.Duration) {
	for at := time.Duration(0); at <= d; at += tick {
		now := from.Add(at)
		switch h.Step(Leadership{Now: now, Elected: true, Serves: true, Term: 7, Proved: now}) {
		case Probe:
			r.Begun = now
			h.Probed(r, now)
		case Set:
			if h.May(now) && !h.Held() {
				return at
			}
		}
	}
	return -1
}

// A new leader takes the address when it sees that it is gone; when it can see nothing,
// after the longest time; and never while a machine answers.
func TestWhenItIsTaken(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		round       Round
		from, until time.Duration
		foreign     bool
	}{
		"seen gone":   {Round{Complete: true}, SeenGone, SeenGone + 5*tick, false},
		"not visible": {Round{}, BlindWait, BlindWait + 5*tick, false},
		"answered":    {Round{Answered: true, Complete: true}, -1, -1, true},
	} {
		var h Holder
		if got := steady(&h, start, time.Minute, c.round); got < c.from || got > c.until || h.Foreign() != c.foreign {
			t.Errorf("%s: taken after %v, foreign %v; want %v to %v, %v", name, got, h.Foreign(), c.from, c.until, c.foreign)
		}
	}
}

// A new leader that sees nothing on the link takes the address after the kernel of a former
// holder has lost it, whose last message ended as late as it may, and whose kernel is late.
func TestLateKernelOfAFormerHolder(t *testing.T) {
	t.Parallel()
	var h Holder
	lost := Fresh + Lifetime + simLate*time.Millisecond
	if got := steady(&h, time.Unix(1000, 0), time.Minute, Round{}); got < lost {
		t.Errorf("taken %v after the election; a former holder's kernel may have it for %v", got, lost)
	}
}

// A holder drops the address when it leads no more, when its term ends, when it does not
// serve, and when a majority has not confirmed it for DropAfter.
func TestWhenItIsDropped(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	for name, change := range map[string]func(*Leadership){
		"no leader":   func(l *Leadership) { l.Elected = false },
		"next term":   func(l *Leadership) { l.Term++ },
		"not serving": func(l *Leadership) { l.Serves = false },
		"no proof":    func(l *Leadership) { l.Now = l.Now.Add(DropAfter) },
	} {
		var h Holder
		at := start.Add(steady(&h, start, time.Minute, Round{Complete: true}))
		l := Leadership{Now: at, Elected: true, Serves: true, Term: 7, Proved: at}
		if !h.WasSet(at, l) || h.Step(l) != Rest {
			t.Fatalf("%s: a proven leader does not hold it", name)
		}
		if change(&l); h.Step(l) != Drop || h.Held() {
			t.Errorf("%s: it is not dropped", name)
		}
	}
}

// A message that was stopped between its check and the kernel is taken back, unless the
// server is proven again.
func TestSetTooLate(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		after, proved time.Duration
		ok            bool
	}{{Fresh, 0, true}, {Fresh + 1, 0, false}, {time.Minute, time.Minute - Fresh, true}, {time.Minute, time.Second, false}} {
		t.Run(fmt.Sprint(c.after, c.proved), func(t *testing.T) {
			var h Holder
			at := start.Add(steady(&h, start, time.Minute, Round{Complete: true}))
			if got := h.WasSet(at, Leadership{Now: at.Add(c.after), Elected: true, Serves: true, Term: 7, Proved: at.Add(c.proved)}); got != c.ok || h.Held() != c.ok {
				t.Errorf("kept %v, held %v; want %v", got, h.Held(), c.ok)
			}
		})
	}
}

// A proof that is older than sendFresh sends nothing.
func TestStaleProofSendsNothing(t *testing.T) {
	t.Parallel()
	var h Holder
	at := time.Unix(1000, 0)
	at = at.Add(steady(&h, at, time.Minute, Round{Complete: true}))
	if !h.May(at.Add(sendFresh)) || h.May(at.Add(sendFresh+1)) {
		t.Errorf("the bound of the proof's age is not %v", sendFresh)
	}
}
