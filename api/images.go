package api

import (
	"sync"
	"sync/atomic"

	"rutter/log"
)

// Bounds of images.
const (
	maxImages     = 1024      // scopes
	maxImageBytes = 64 << 20  // of one; a larger scope is encoded for each
	maxImagesSum  = 256 << 20 // of all
	// MaxSnapshots bounds the streams that are in the middle of whole scopes: each
	// holds records and a buffer, for as long as its reader is slow. One more is
	// told to come again.
	MaxSnapshots = 64
)

// image is a scope as the frames of its objects, encoded once for all who begin
// to hold it. Its frames name a place that is not the reader's: feed.Move.
type image struct {
	digest log.Digest // of the scope
	count  uint32
	frames []byte
	done   bool // the frames are there
}

// images are the scopes that were sent lately and have not changed since: the
// crew forgets a scope when it reads an entry of it.
//
// An image is begun while the state stands still at a head h. Every entry behind
// h is read later, and forgets it; so one that is still there when the crew has
// read up to g >= h is the scope at g.
type images struct {
	count atomic.Int32 // len(of), for those who only want to know if there are any

	mu    sync.Mutex // protects what follows
	of    map[log.Scope]*image
	bytes int
}

func newImages() *images { return &images{of: make(map[log.Scope]*image)} }

// forget forgets a scope's image, or all if scope is nil.
func (m *images) forget(scope *log.Scope) {
	if m.count.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if scope == nil {
		clear(m.of)
		m.bytes = 0
	} else if img := m.of[*scope]; img != nil {
		m.bytes -= len(img.frames)
		delete(m.of, *scope)
	}
	m.count.Store(int32(len(m.of)))
}

// find returns the image of a scope with that digest, or one to be made, or nil
// if it is being made or there is no room.
func (m *images) find(scope log.Scope, digest log.Digest) *image {
	m.mu.Lock()
	defer m.mu.Unlock()
	img := m.of[scope]
	switch {
	case img != nil && img.done && img.digest == digest:
		return img
	case img != nil, len(m.of) >= maxImages, scope.Type == log.ScopeCN: // that one is nobody else's
		return nil
	}
	img = &image{digest: digest}
	m.of[scope] = img
	m.count.Store(int32(len(m.of)))
	return img
}

// holds reports whether nothing has touched the scope since its image was made.
func (m *images) holds(scope log.Scope, img *image) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[scope] == img
}

// put completes an image, unless the scope changed meanwhile or it is too large.
func (m *images) put(scope log.Scope, img *image, count uint32, frames []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of[scope] != img {
		return
	}
	if len(frames) > maxImageBytes || m.bytes+len(frames) > maxImagesSum {
		delete(m.of, scope)
		m.count.Store(int32(len(m.of)))
		return
	}
	img.count, img.frames, img.done = count, frames, true
	m.bytes += len(frames)
}
