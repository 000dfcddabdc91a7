package agent

import (
	"math/bits"

	"rutter/log"
	"rutter/log/feed"
)

// suspect is a scope whose digest differs from the server's: something in it is not
// what the log says. It is requested again. Until the digests are equal, the view is
// neither applied nor complete: nothing is removed from the kernel because of it, and
// no watermark covers it.
type suspect struct {
	found uint // bookmarks at which it differed
}

// verify compares what is held with the digests of a bookmark, and reports whether
// everything is as the log says. Only complete scopes that are not of a later seq can
// be compared (SAFETY F2). The caller holds the lock.
func (r *replica) verify(m *feed.Bookmark) bool {
	for scope := range r.suspects {
		if _, held := r.scopes[scope]; !held {
			delete(r.suspects, scope)
		}
	}
	for _, d := range m.Digests {
		held := r.scopes[d.Scope]
		if !held.Complete || held.AsOf > m.Seq {
			continue
		}
		if r.state.Digest(d.Scope) == d.Digest {
			r.becomeSound(d.Scope)
		} else {
			r.becomeSuspect(d, m.Seq)
		}
	}
	switch {
	case len(r.suspects) > 0:
		r.checked = 0
		return false
	case len(m.Digests) > 0:
		r.checked = m.Seq
	}
	return true
}

// becomeSuspect records a difference and requests the scope: at the first, second,
// fourth, eighth time, so that a difference that sending does not repair does not cause
// sending without end.
func (r *replica) becomeSuspect(d feed.ScopeDigest, at log.Seq) {
	s := r.suspects[d.Scope]
	if s == nil {
		s = new(suspect)
		r.suspects[d.Scope] = s
		r.mismatches++
		r.touches.NoteWhole()
		r.logger.Error("a scope differs from the log: requesting it again", "scope", d.Scope, "at", at,
			"held", r.state.Digest(d.Scope), "server", d.Digest)
	}
	if s.found++; bits.OnesCount(s.found) == 1 {
		r.requests = append(r.requests, feed.Again{At: at, Scope: d.Scope})
	}
	// What the kernel matched was a view that was wrong.
	r.applied, r.programmed, r.reached = 0, 0, 0
	r.epoch++
}

func (r *replica) becomeSound(scope log.Scope) {
	if _, was := r.suspects[scope]; !was {
		return
	}
	delete(r.suspects, scope)
	r.touches.NoteWhole()
	r.logger.Info("a scope matches the log again", "scope", scope)
}

// takeRequests returns each request once.
func (r *replica) takeRequests() []feed.Again {
	r.mu.Lock()
	defer r.mu.Unlock()
	asks := r.requests
	r.requests = nil
	return asks
}
