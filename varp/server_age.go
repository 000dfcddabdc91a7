package varp

import (
	"context"
	"time"
)

// ageCheck is how often a server checks the age of its answers. It is short compared
// with any useful MaxAge, and costs nothing.
const ageCheck = 10 * time.Second

// age returns Config.Age, and whether it is more than MaxAge.
func (s *Server) age() (time.Duration, bool) {
	if s.cfg.Age == nil {
		return 0, false
	}
	age := s.cfg.Age()
	return age, age > s.cfg.MaxAge
}

// watchAge logs once when answers become old, and once when they are fresh again, until
// ctx ends. If several run for one server, one logs.
func (s *Server) watchAge(ctx context.Context) {
	tick := time.NewTicker(ageCheck)
	defer tick.Stop()
	for {
		age, stale := s.age()
		if s.stale.CompareAndSwap(!stale, stale) {
			if stale {
				s.cfg.Logger.Warn("SVP: answers may be old: nothing came from the log", "for", age, "bound", s.cfg.MaxAge)
			} else {
				s.cfg.Logger.Info("SVP: answers are fresh again", "age", age)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
