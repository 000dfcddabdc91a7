package raftstore

import (
	"encoding/json"
	"fmt"
	"net"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/skipped"
)

// A server that has planted skips adds JSON of them to the greeting of raft's
// connections: who lacks one, or has another, is refused at both ends, and so gets no
// entry that it would apply in another way. One without any greets as programs do that
// know of no skips. A server with an empty folder takes over what it is greeted with: it
// has to come past the same entries.

// skipNote is what this server adds to its greeting; nil if it has no skips.
func (s *Store) skipNote() ([]byte, error) {
	planted := s.skips()
	if len(planted) == 0 {
		return nil, nil
	}
	return json.Marshal(planted.Plain())
}

// readSkipNote reads the skips of another server's greeting, which may have none.
func readSkipNote(note []byte) (all []skipped.Skip, err error) {
	if note == nil {
		return nil, nil
	}
	if err := json.Unmarshal(note, &all); err != nil {
		return nil, fmt.Errorf("skips: %w: %w", log.ErrCorrupt, err)
	}
	return all, nil
}

// skips are those that this server has.
func (s *Store) skips() skipped.List {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.head.Skips
}

// skipsPause is the least time between two words about servers with other skips, which
// try again and again.
const skipsPause = 10 * time.Second

// sameSkips reports whether a dialler of a cluster may talk raft to this server:
// it has the same skips, or one of the two has applied nothing yet. The error says that
// its note cannot be read.
func (s *Store) sameSkips(from net.Addr, cluster log.UUID, note []byte) (bool, error) {
	theirs, err := readSkipNote(note)
	if err != nil {
		return false, err
	}
	if cluster.IsZero() || s.Head().Cluster.IsZero() && s.adoptSkips(cluster, theirs) {
		return true, nil
	}
	what := s.skips().Differ(theirs)
	if what == "" {
		s.skipTrouble.Store(nil)
		return true, nil
	}
	s.skipTrouble.Store(&what)
	now := time.Now().UnixNano()
	if last := s.skipTold.Load(); now-last > int64(skipsPause) && s.skipTold.CompareAndSwap(last, now) {
		s.logger.Error("refusing a server whose skipped entries are not this one's", "peer", from, "because", what)
	}
	return false, nil
}

// adoptSkips takes over the skips of a cluster that this server, whose folder is
// empty, is about to join; false if it is not empty.
func (s *Store) adoptSkips(cluster log.UUID, theirs []skipped.Skip) bool {
	a := &s.applier
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.head.Cluster.IsZero() {
		return false
	}
	a.head.Skips = nil
	for _, skip := range theirs[:min(len(theirs), skipped.Most)] {
		if skip.Cluster == cluster && skip.Check() == nil && a.head.Skips.PendingAt(skip.Index) < 0 {
			a.head.Skips = a.head.Skips.With(skip)
		}
	}
	s.mu.Lock()
	s.head.Skips = a.head.Skips
	s.mu.Unlock()
	return true
}

// orSkips adds to why the server is not ready that another one was refused for its
// skips, which may be the reason.
func (s *Store) orSkips(err error) error {
	if what := s.skipTrouble.Load(); what != nil {
		return fmt.Errorf("%w; another server was refused: %s", err, *what)
	}
	return err
}

// skipsName is a hash over the skips of a server, for its identity; "" is none.
func (s *Store) skipsName() string {
	planted := s.skips()
	if len(planted) == 0 {
		return ""
	}
	var b []byte
	for i := range planted {
		b = append(b, planted[i].Sum().Bytes()...)
	}
	return fmt.Sprintf("%x", digest.Of(b).Bytes())
}
