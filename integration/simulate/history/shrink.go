package history

import (
	"fmt"
	"slices"
	"time"
)

// Shrunk is the smallest history that was found to fail.
type Shrunk struct {
	History History
	Removed []string // what was taken out or made smaller, in words
	Tries   int      // how often fails was called
}

// Shrink looks for a smaller history that still fails: without faults that do not matter
// (delta debugging: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input,
// 2002), with fewer machines, and then with shorter and smaller faults. It calls fails at most
// tries times, only with valid histories that differ from h. What fails only now and then is for
// fails to decide, by running a history more than once.
func Shrink(h History, tries int, fails func(History) bool) Shrunk {
	s := &shrinker{best: h, left: tries, fails: fails}
	s.faults()
	s.machines()
	s.switches()
	s.sizes()
	s.faults() // what mattered beside a longer fault may not any more
	s.end()
	return Shrunk{s.best, difference(h, s.best), tries - s.left}
}

type shrinker struct {
	best  History
	left  int
	fails func(History) bool
}

// try keeps a candidate that fails.
func (s *shrinker) try(h History) bool {
	if s.left <= 0 || h.Validate() != nil {
		return false
	}
	s.left--
	if !s.fails(h) {
		return false
	}
	s.best = h
	return true
}

// with is the best history with other faults.
func (s *shrinker) with(faults []Fault) History {
	h := s.best
	h.Faults = faults
	return h
}

// faults takes out parts of the faults: halves, then smaller parts, at last single ones.
func (s *shrinker) faults() {
	for size := len(s.best.Faults); size >= 1 && s.left > 0; {
		removed := false
		for from := 0; from < len(s.best.Faults); {
			to := min(from+size, len(s.best.Faults))
			if s.try(s.with(slices.Delete(slices.Clone(s.best.Faults), from, to))) {
				removed = true // what follows stands at from now
			} else {
				from = to
			}
		}
		if size == 1 && !removed {
			return
		}
		size = max(1, min(size, len(s.best.Faults)+1)/2)
		if len(s.best.Faults) == 0 {
			return
		}
	}
}

// machines takes out agents, clients and servers that no fault is on: as many as possible, by
// halves.
func (s *shrinker) machines() {
	for _, m := range []struct {
		kind  place
		least int
		n     func(*History) *int
	}{
		{onAgent, leastAgents, func(h *History) *int { return &h.Agents }},
		{onClient, leastClients, func(h *History) *int { return &h.Clients }},
		{onServer, leastServers, func(h *History) *int { return &h.Servers }},
		{onReplica, leastReplicas, func(h *History) *int { return &h.Replicas }},
	} {
		least := max(m.least, s.best.lastNamed(m.kind))
		for {
			now := *m.n(&s.best)
			next := s.best
			*m.n(&next) = least + (now-least)/2
			if now == least || !s.try(next) {
				break
			}
		}
	}
}

// lastNamed is the highest number of a machine of a kind that a fault names.
func (h History) lastNamed(kind place) int {
	last := 0
	for _, f := range h.Faults {
		for _, name := range []string{f.On, f.To} {
			if k, n, _ := machine(name); k == kind {
				last = max(last, n)
			}
		}
	}
	return last
}

func (s *shrinker) switches() {
	for _, off := range []func(*History){func(h *History) { h.TLS = false }, func(h *History) { h.WAL = false }} {
		h := s.best
		if off(&h); h.TLS != s.best.TLS || h.WAL != s.best.WAL {
			s.try(h)
		}
	}
}

// sizes makes each fault shorter and its number smaller, by halves.
func (s *shrinker) sizes() {
	for i := range s.best.Faults {
		for f := s.best.Faults[i]; f.For > 100*ms; f = s.best.Faults[i] {
			f.For = (f.For / 2).Round(ms)
			if !s.try(s.replaced(i, f)) {
				break
			}
		}
		for f := s.best.Faults[i]; f.N != 0; f = s.best.Faults[i] {
			f.N /= 2
			if !s.try(s.replaced(i, f)) {
				break
			}
		}
	}
}

func (s *shrinker) replaced(i int, f Fault) History {
	faults := slices.Clone(s.best.Faults)
	faults[i] = f
	return s.with(faults)
}

// end lets the history end soon after its last fault.
func (s *shrinker) end() {
	last := time.Duration(0)
	for _, f := range s.best.Faults {
		last = max(last, f.At+f.For)
	}
	for _, after := range []time.Duration{tail, 10 * sec} {
		h := s.best
		h.Duration = max(last+after, sec)
		if h.Duration < s.best.Duration && s.try(h) {
			return
		}
	}
}

// difference says in words what the second history has no more.
func difference(from, to History) (removed []string) {
	count := func(what string, a, b int) {
		if a != b {
			removed = append(removed, fmt.Sprintf("%d of %d %s", a-b, a, what))
		}
	}
	kept := map[uint64]Fault{} // a fault keeps its own seed
	for _, f := range to.Faults {
		kept[f.Seed] = f
	}
	unknown := len(to.Faults) != len(kept) // a file that was written by hand may have no seeds
	count("faults", len(from.Faults), len(to.Faults))
	for _, f := range from.Faults {
		now, there := kept[f.Seed]
		switch {
		case unknown:
		case !there:
			removed = append(removed, f.String())
		case now != f:
			removed = append(removed, fmt.Sprintf("%s: it is now %s", f, now.words()))
		}
	}
	count("servers", from.Servers, to.Servers)
	count("replicas", from.Replicas, to.Replicas)
	count("agents", from.Agents, to.Agents)
	count("clients", from.Clients, to.Clients)
	if from.TLS != to.TLS {
		removed = append(removed, "TLS")
	}
	if from.WAL != to.WAL {
		removed = append(removed, "raft-wal")
	}
	if from.Duration != to.Duration {
		removed = append(removed, fmt.Sprintf("%v of %v", from.Duration-to.Duration, from.Duration))
	}
	return removed
}
