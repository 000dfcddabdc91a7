package raftstore

import (
	"encoding/json"
	"fmt"
	"net"
	"sync/atomic"
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

// skipWatch compares the skips of servers that talk to each other.
type skipWatch struct {
	store *Store
	// trouble is why a server was refused last that has other skips; nil since
	// one with the same came. told is when that was logged, unix ns.
	skipTrouble atomic.Pointer[string]
	skipTold    atomic.Int64
}

// skipNote is what this server adds to its greeting; nil if it has no skips.
func (w *skipWatch) skipNote() ([]byte, error) {
	planted := w.skips()
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
func (w *skipWatch) skips() skipped.List {
	w.store.mu.RLock()
	defer w.store.mu.RUnlock()
	return w.store.head.Skips
}

// skipsPause is the least time between two words about servers with other skips, which
// try again and again.
const skipsPause = 10 * time.Second

// sameSkips reports whether a dialler of a cluster may talk raft to this server:
// it has the same skips, or one of the two has applied nothing yet. The error says that
// its note cannot be read.
func (w *skipWatch) sameSkips(from net.Addr, cluster log.UUID, note []byte) (bool, error) {
	theirs, err := readSkipNote(note)
	if err != nil {
		return false, err
	}
	if cluster.IsZero() || w.store.Head().Cluster.IsZero() && w.store.applier.adoptSkips(cluster, theirs) {
		return true, nil
	}
	what := w.skips().Differ(theirs)
	if what == "" {
		w.skipTrouble.Store(nil)
		return true, nil
	}
	w.skipTrouble.Store(&what)
	now := time.Now().UnixNano()
	if last := w.skipTold.Load(); now-last > int64(skipsPause) && w.skipTold.CompareAndSwap(last, now) {
		w.store.logger.Error("refusing a server whose skipped entries are not this one's", "peer", from, "because", what)
	}
	return false, nil
}

// adoptSkips takes over the skips of a cluster that this server, whose folder is
// empty, is about to join; false if it is not empty.
func (a *applier) adoptSkips(cluster log.UUID, theirs []skipped.Skip) bool {
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
	a.store.mu.Lock()
	a.store.head.Skips = a.head.Skips
	a.store.mu.Unlock()
	return true
}

// orSkips adds to why the server is not ready that another one was refused for its
// skips, which may be the reason.
func (w *skipWatch) orSkips(err error) error {
	if what := w.skipTrouble.Load(); what != nil {
		return fmt.Errorf("%w; another server was refused: %s", err, *what)
	}
	return err
}

// skipsName is a hash over the skips of a server, for its identity; "" is none.
func (w *skipWatch) skipsName() string {
	planted := w.skips()
	if len(planted) == 0 {
		return ""
	}
	var b []byte
	for i := range planted {
		b = append(b, planted[i].Sum().Bytes()...)
	}
	return fmt.Sprintf("%x", digest.Of(b).Bytes())
}
