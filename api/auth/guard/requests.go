package guard

import (
	"sync"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log/budget"
)

// requestLimits bound the requests of each identity: per second, and at once under load.
type requestLimits struct {
	limits Limits
	now    func() time.Time

	mu    sync.Mutex // protects what follows
	known map[string]*identityLimit
	taken int // requests being answered
	busy  int // identities with at least one of them
}

// identityLimit is what one identity has.
type identityLimit struct {
	budget.Bucket           // of its rate
	taken         int       // requests being answered
	used          time.Time // when a request of it last began or ended
}

// RateBurst is the burst of a rate, in seconds of it.
const RateBurst = 10

// Bounds of what is remembered.
const (
	maxIdentities  = 20000            // identities; 10,000 CNs and as many others
	forgetIdentity = 30 * time.Second // after the last request
	minShare       = 8                // requests at once that every identity may always have
)

func newRequestLimits(limits Limits) *requestLimits {
	return &requestLimits{limits: limits, now: time.Now, known: make(map[string]*identityLimit)}
}

// enter takes a slot for a request, or returns the limit that prevents it. leave must
// be called when the request is answered. A stream counts only for the rate.
func (s *requestLimits) enter(id matrix.Identity, stream bool) (leave func(), limit string) {
	if id.Role == matrix.Local {
		return func() {}, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.identityLocked(id)
	if h == nil {
		return nil, limitShare
	}
	if rate := float64(s.limits.Rate[id.Role]); rate > 0 {
		h.Fill(s.now(), rate, rate*RateBurst)
		if h.Left < 1 {
			return nil, LimitRate
		}
		h.Left--
	}
	if stream {
		return func() {}, ""
	}
	if s.taken >= s.limits.Requests || h.taken >= s.fairLocked(h) {
		return nil, limitShare
	}
	if h.taken++; h.taken == 1 {
		s.busy++
	}
	s.taken++
	return func() { s.leave(h) }, ""
}

// pace takes a token for a change on a write stream, and returns how long its identity
// must wait before the next change.
func (s *requestLimits) pace(id matrix.Identity) time.Duration {
	rate := float64(s.limits.Rate[id.Role])
	if id.Role == matrix.Local || rate <= 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.identityLocked(id)
	if h == nil {
		return time.Second
	}
	h.Fill(s.now(), rate, rate*RateBurst)
	h.Left--
	return h.Until(0, rate)
}

// fairLocked returns how many requests at once one identity may have: all, while at
// least half are free, else all divided by the number of active identities.
func (s *requestLimits) fairLocked(h *identityLimit) int {
	if s.taken < s.limits.Requests/2 {
		return s.limits.Requests
	}
	others := s.busy
	if h.taken == 0 {
		others++
	}
	return max(minShare, s.limits.Requests/2/max(others, 1))
}

func (s *requestLimits) leave(h *identityLimit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.taken--; h.taken == 0 {
		s.busy--
	}
	s.taken--
	h.used = s.now()
}

// identityLocked returns an identity's share; nil if too many are remembered.
func (s *requestLimits) identityLocked(id matrix.Identity) *identityLimit {
	key := id.Key()
	now := s.now()
	if h := s.known[key]; h != nil {
		h.used = now
		return h
	}
	if len(s.known) >= maxIdentities {
		for key, h := range s.known {
			if h.taken == 0 && now.Sub(h.used) > forgetIdentity {
				delete(s.known, key)
			}
		}
		if len(s.known) >= maxIdentities {
			return nil
		}
	}
	h := &identityLimit{Bucket: budget.Bucket{Left: float64(s.limits.Rate[id.Role]) * RateBurst, At: now}, used: now}
	s.known[key] = h
	return h
}
