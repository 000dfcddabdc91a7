package feedserver

import (
	"math/rand/v2"
	"slices"
	"sync"

	"rutter/api/internal/logread"
	"rutter/log"
)

// scopeIndex maps each scope to the subscribers that hold it and to the last entry that
// concerned it.
type scopeIndex struct {
	mu      sync.Mutex // protects what follows
	holders map[log.Scope]*scopeHolders
	at      log.Cursor // up to which the watcher has read; holders were woken for everything up to it
}

// scopeHolders are the subscribers that hold a scope.
type scopeHolders struct {
	tasks []*task
	// touched is the last entry that concerned the scope, or the seq from which entries
	// were recorded.
	touched log.Seq
}

func newScopeIndex() *scopeIndex {
	return &scopeIndex{holders: make(map[log.Scope]*scopeHolders)}
}

func (x *scopeIndex) position() log.Cursor {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at
}

// restart clears the record of entries, and continues at head.
func (x *scopeIndex) restart(head log.Cursor) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = head
	for _, h := range x.holders {
		h.touched = x.at.Seq
	}
}

// advance takes the entries after the position. It calls touched for each scope that
// one of them concerns, and returns the new position and the tasks that must be pushed.
func (x *scopeIndex) advance(entries []*logread.Decoded, touched func(log.Scope)) (at log.Cursor, woken []*task) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range entries {
		for _, scope := range e.Head.Scopes {
			touched(scope)
			h := x.holders[scope]
			if h == nil {
				continue
			}
			if h.touched <= x.at.Seq { // else they were already woken
				woken = append(woken, scheduleAll(h.tasks, wakeLog)...)
				woken = append(woken, measure(h.tasks, e.Seq, entries[len(entries)-1].Seq)...)
			}
			h.touched = e.Seq
		}
	}
	last := entries[len(entries)-1]
	x.at.Seq, x.at.Chain = last.Seq, last.Hash.Prefix()
	return x.at, woken
}

// sampleEach bounds the subscribers that are asked for their progress at one entry.
const sampleEach = 8

// measure says that entries from first to last concern subscribers, and makes some of them,
// from any on, say at once how far they are. It returns the tasks that must be pushed.
func measure(tasks []*task, first, last log.Seq) (woken []*task) {
	for _, t := range tasks {
		if t.concerned != nil {
			t.concerned(first, last)
		}
	}
	from := rand.IntN(len(tasks))
	for i := range min(len(tasks), sampleEach) {
		t := tasks[(from+i)%len(tasks)]
		if t.sample != nil && t.sample(first) && t.schedule(wakeWanted) {
			woken = append(woken, t)
		}
	}
	return woken
}

// heldScopes are the scopes that one subscriber holds, each with its as-of. Only the
// subscriber's task uses it.
type heldScopes struct {
	index *scopeIndex
	task  *task
	asOf  map[log.Scope]log.Seq
	// recent is the scope of the last sent entry; zero: none.
	recent log.Scope
}

// hold adds a scope.
func (s *heldScopes) hold(scope log.Scope, asOf log.Seq) {
	_, known := s.asOf[scope]
	s.asOf[scope], s.recent = asOf, log.Scope{}
	if known {
		return
	}
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.holders[scope]
	if h == nil {
		h = &scopeHolders{touched: x.at.Seq}
		x.holders[scope] = h
	}
	h.tasks = append(h.tasks, s.task)
}

// release removes a scope.
func (s *heldScopes) release(scope log.Scope) {
	if _, known := s.asOf[scope]; !known {
		return
	}
	delete(s.asOf, scope)
	s.recent = log.Scope{}
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.holders[scope]
	for i, t := range h.tasks {
		if t == s.task {
			last := len(h.tasks) - 1
			h.tasks[i], h.tasks[last] = h.tasks[last], nil
			h.tasks = h.tasks[:last]
			break
		}
	}
	if len(h.tasks) == 0 {
		delete(x.holders, scope)
	}
}

func (s *heldScopes) releaseAll() {
	for scope := range s.asOf {
		s.release(scope)
	}
}

func (s *heldScopes) has(scope log.Scope) bool {
	_, held := s.asOf[scope]
	return held
}

// skip returns how far the watcher has read beyond a position, if no entry between
// concerns a held scope.
func (s *heldScopes) skip(from log.Cursor) (to log.Cursor, ok bool) {
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at.Seq <= from.Seq || x.at.Cluster != from.Cluster {
		return from, false
	}
	for scope := range s.asOf {
		if x.holders[scope].touched > from.Seq {
			return from, false
		}
	}
	return x.at, true
}

// concerns reports whether an entry belongs to a held scope, and was not sent with it.
// An entry up to the scope's as-of may be of a time when the scope was outside the CN's
// interest, and its effect is part of the scope as sent.
//
// Consecutive entries are often of one scope, and a comparison costs a fraction of a
// lookup. recent was held before an entry that was sent.
func (s *heldScopes) concerns(e *logread.Decoded) bool {
	if slices.Contains(e.Head.Scopes, s.recent) {
		return true
	}
	for _, scope := range e.Head.Scopes {
		if asOf, ok := s.asOf[scope]; ok && e.Seq > asOf {
			s.recent = scope
			return true
		}
	}
	return false
}
