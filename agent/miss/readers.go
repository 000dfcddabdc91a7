package miss

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// readersAtOnce bounds the namespaces that a call of Each reads at the same time.
	readersAtOnce = 32
	// readerPatience is how long Each waits for the reads under way: the next ones then
	// begin, and these are left.
	readerPatience = 500 * time.Millisecond
	// maxLeft bounds the reads that were left and have not ended. Each may hold a
	// thread.
	maxLeft = 128
)

// ErrHangs: an earlier read of the namespace has not ended, or too many of others have
// not.
var ErrHangs = errors.New("miss: the namespace hangs")

// Readers reads the pending misses of many namespaces. One whose read hangs, because
// its file is on a file system that does not answer, holds up no other. The zero value
// is ready. Any goroutine may use it.
type Readers struct {
	mu      sync.Mutex // protects what follows
	running map[string]bool
	left    int
}

// Each calls read for each namespace, several at once, and take with each result, one
// at a time and on the caller's goroutine. It returns when all were read or left, or
// when ctx ends. What a read that was left returns later is dropped: the kernel repeats
// its questions.
func (r *Readers) Each(ctx context.Context, namespaces []string, read func(namespace string) ([]Miss, error), take func(namespace string, misses []Miss, err error)) {
	type result struct {
		namespace string
		misses    []Miss
		err       error
	}
	results := make(chan result, len(namespaces))
	awaited := map[string]bool{}
	patience := time.NewTimer(readerPatience)
	defer patience.Stop()
	for len(namespaces) > 0 || len(awaited) > 0 {
		for len(namespaces) > 0 && len(awaited) < readersAtOnce {
			name := namespaces[0]
			namespaces = namespaces[1:]
			if !r.begin(name) {
				take(name, nil, ErrHangs)
				continue
			}
			awaited[name] = true
			go func() {
				misses, err := read(name)
				results <- result{name, misses, err}
				r.end(name)
			}()
		}
		if len(awaited) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case got := <-results:
			if awaited[got.namespace] {
				delete(awaited, got.namespace)
				take(got.namespace, got.misses, got.err)
			}
			patience.Reset(readerPatience)
		case <-patience.C:
			for name := range awaited {
				r.leave(name)
				take(name, nil, ErrHangs)
			}
			clear(awaited)
			patience.Reset(readerPatience)
		}
	}
}

// begin reports whether a namespace may be read.
func (r *Readers) begin(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, running := r.running[name]; running || r.left >= maxLeft {
		return false
	}
	if r.running == nil {
		r.running = map[string]bool{}
	}
	r.running[name] = false
	return true
}

// leave records that a read is no longer awaited.
func (r *Readers) leave(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if left, running := r.running[name]; running && !left {
		r.running[name] = true
		r.left++
	}
}

// end records that a read ended.
func (r *Readers) end(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[name] {
		r.left--
	}
	delete(r.running, name)
}
