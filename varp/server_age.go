package varp

import (
	"context"
	"time"
)

// ageCheck is how often a server looks whether its answers have become old. It
// is short against any MaxAge that makes sense, and costs nothing.
const ageCheck = 10 * time.Second

// age returns Config.Age, and whether it is more than MaxAge.
func (s *Server) age() (time.Duration, bool) {
	if s.cfg.Age == nil {
		return 0, false
	}
	age := s.cfg.Age()
	return age, age > s.cfg.MaxAge
}

// watchAge says once when answers become old, and once when they are no longer,
// until ctx ends. Of several that run for one server, one says it.
func (s *Server) watchAge(ctx context.Context) {
	tick := time.NewTicker(ageCheck)
	defer tick.Stop()
	for {
		age, stale := s.age()
		if s.stale.CompareAndSwap(!stale, stale) {
			if stale {
				s.cfg.Logger.Warn("SVP: answers may be old: nothing was heard of the log", "for", age, "bound", s.cfg.MaxAge)
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
