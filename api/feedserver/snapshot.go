package feedserver

import (
	"sync"
	"sync/atomic"

	"rutter/log"
)

// Bounds of scope snapshots.
const (
	maxSnapshots     = 1024      // scopes
	maxSnapshotBytes = 64 << 20  // of one; a larger scope is encoded for each subscriber
	maxSnapshotsSum  = 256 << 20 // of all
	// MaxSnapshots bounds the streams that are sending whole scopes: each holds records
	// and a buffer, as long as its reader is slow. Further streams are told to retry
	// later.
	MaxSnapshots = 64
)

// snapshot is a scope as the frames of its objects, encoded once for all new holders.
// The seq in its frames is not that of the reader: see feed.Move.
type snapshot struct {
	digest log.Digest // of the scope
	count  uint32
	frames []byte
	done   bool // the frames are complete
}

// snapshots are scopes that were sent recently and have not changed since: the watcher
// removes a scope when it reads an entry of it.
//
// A snapshot is begun while the state is locked at a head h. Every entry after h is
// read later, and removes it. So a snapshot that still exists when the watcher has read
// up to g >= h is the scope at g.
type snapshots struct {
	count atomic.Int32 // len(of), for a check without the lock

	mu    sync.Mutex // protects what follows
	of    map[log.Scope]*snapshot
	bytes int
}

func newSnapshots() *snapshots { return &snapshots{of: make(map[log.Scope]*snapshot)} }

// forget forgets a scope's snapshot.
func (c *snapshots) forget(scope log.Scope) {
	if c.count.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.of[scope]; s != nil {
		c.bytes -= len(s.frames)
		delete(c.of, scope)
	}
	c.count.Store(int32(len(c.of)))
}

func (c *snapshots) forgetAll() {
	if c.count.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.of)
	c.bytes = 0
	c.count.Store(0)
}

// find returns the snapshot of a scope with that digest, or a new one for the caller to
// complete. It returns nil if another subscriber is making it or there is no room.
func (c *snapshots) find(scope log.Scope, digest log.Digest) *snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.of[scope]
	switch {
	case s != nil && s.done && s.digest == digest:
		return s
	case s != nil, len(c.of) >= maxSnapshots, scope.Type == log.ScopeCN: // only one subscriber can want a CN's
		return nil
	}
	s = &snapshot{digest: digest}
	c.of[scope] = s
	c.count.Store(int32(len(c.of)))
	return s
}

// holds reports whether the scope is unchanged since its snapshot was made.
func (c *snapshots) holds(scope log.Scope, s *snapshot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[scope] == s
}

// put completes a snapshot, unless the scope changed meanwhile or it is too large.
func (c *snapshots) put(scope log.Scope, s *snapshot, count uint32, frames []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[scope] != s {
		return
	}
	if len(frames) > maxSnapshotBytes || c.bytes+len(frames) > maxSnapshotsSum {
		delete(c.of, scope)
		c.count.Store(int32(len(c.of)))
		return
	}
	s.count, s.frames, s.done = count, frames, true
	c.bytes += len(frames)
}
