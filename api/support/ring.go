package support

import (
	"bytes"
	"io"
	"sync"
)

// Bounds of a Ring, and why.
const (
	// RingBytes is how many bytes of log lines a daemon keeps: some 5,000 lines, which is
	// an hour of a daemon in trouble, and little beside its state.
	RingBytes = 1 << 20
	// MaxLine is how many bytes of one line are kept. Longer lines are cut.
	MaxLine = 8 << 10
)

// Ring keeps the last lines that were written to it, up to a number of bytes. The zero
// value keeps none.
type Ring struct {
	limit int

	mu      sync.Mutex // protects what follows
	lines   [][]byte   // complete lines with their newline, the oldest first
	partial []byte     // of a line whose end is not written yet
	bytes   int        // of lines
	dropped uint64     // lines that had to go
}

// NewRing returns a ring of so many bytes.
func NewRing(limit int) *Ring { return &Ring{limit: limit} }

// Write implements io.Writer. It never fails and never waits for a disk.
func (r *Ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := p
	for {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		if room := MaxLine - len(r.partial); room > 0 {
			r.partial = append(r.partial, line[:min(len(line), room)]...)
		}
		if !ended {
			return len(p), nil
		}
		r.keep(append(r.partial, '\n'))
		r.partial, rest = nil, after
	}
}

// keep appends a line, and drops the oldest ones that have no room beside it.
func (r *Ring) keep(line []byte) {
	r.lines, r.bytes = append(r.lines, line), r.bytes+len(line)
	gone := 0
	for r.bytes > r.limit {
		r.bytes -= len(r.lines[gone])
		r.lines[gone] = nil
		gone++
	}
	r.lines, r.dropped = r.lines[gone:], r.dropped+uint64(gone)
}

// Text returns the lines, the oldest first, and how many older ones were dropped.
func (r *Ring) Text() (text []byte, dropped uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Join(r.lines, nil), r.dropped
}

// Bytes returns how many bytes the ring holds.
func (r *Ring) Bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Tee returns a writer to the ring and to w. Its errors are those of w.
func (r *Ring) Tee(w io.Writer) io.Writer { return tee{r, w} }

type tee struct {
	ring *Ring
	next io.Writer
}

// Write implements io.Writer.
func (t tee) Write(p []byte) (int, error) {
	_, _ = t.ring.Write(p) // it never fails
	return t.next.Write(p)
}
