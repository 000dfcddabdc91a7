package raftstore

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/skipped"
)

// A server that has planted skips greets raft's connections with streamSkips, its
// cluster's id (16), the length (4) and JSON of its skips: who lacks one, or has
// another, is refused at both ends, and so gets no entry that it would apply in
// another way. One without any greets with streamRaft, as programs do that know
// of no skips. A server with an empty folder takes over what it is greeted
// with: it has to come past the same entries.

// greeting returns the greeting of raft's connections.
func greeting(cluster log.UUID, planted skipped.List) ([]byte, error) {
	if len(planted) == 0 {
		return append([]byte{streamRaft}, cluster[:]...), nil
	}
	text, err := json.Marshal(planted.Plain())
	if err != nil {
		return nil, err
	}
	b := append([]byte{streamSkips}, cluster[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...), nil
}

// readSkips reads what follows the cluster's id in a greeting.
func readSkips(conn net.Conn, sort byte) ([]skipped.Skip, error) {
	if sort != streamSkips {
		return nil, nil
	}
	_ = conn.SetReadDeadline(time.Now().Add(firstByteWait))
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > skipped.MaxGreeting {
		return nil, fmt.Errorf("skips of %d bytes: %w", n, log.ErrTooLarge)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(conn, text); err != nil {
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	var all []skipped.Skip
	if err := json.Unmarshal(text, &all); err != nil {
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

// sameSkips reports whether a dialler of a cluster may talk raft to this server:
// it has the same skips, or one of the two has applied nothing yet.
func (s *Store) sameSkips(from net.Addr, cluster log.UUID, theirs []skipped.Skip) bool {
	if cluster.IsZero() || s.Head().Cluster.IsZero() && s.adoptSkips(cluster, theirs) {
		return true
	}
	what := s.skips().Differ(theirs)
	if what == "" {
		s.skipTrouble.Store(nil)
		return true
	}
	s.skipTrouble.Store(&what)
	now := time.Now().UnixNano()
	if last := s.skipTold.Load(); now-last > int64(strangerPause) && s.skipTold.CompareAndSwap(last, now) {
		s.logger.Error("refusing a server whose skipped entries are not this one's", "peer", from, "because", what)
	}
	return false
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
