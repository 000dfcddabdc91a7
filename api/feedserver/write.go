package feedserver

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/log"
)

const (
	bufferBytes = 64 << 10         // gathered before a write
	writeTime   = 30 * time.Second // for the subscriber to take a write
)

// buffers are for subscribers that are writing; an idle one has none.
var (
	buffers  = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}
	encoders = sync.Pool{New: func() any { return log.NewEncoder() }}
)

// frameWriter gathers the frames of one subscriber and writes them to its connection.
// It is used only in the runs of its task.
type frameWriter struct {
	conn    net.Conn
	raw     syscall.RawConn // of conn, to write without waiting; nil if it has none
	task    *task
	bytes   prometheus.Counter // bytes written
	blocked *atomic.Int64      // writers that wait for their sockets

	buf    []byte    // nil while there is nothing in it
	pooled *[]byte   // where buf came from
	now    time.Time // when the run began
	wrote  time.Time // when the last frame was written
}

func newFrameWriter(conn net.Conn, t *task, bytes prometheus.Counter, blocked *atomic.Int64) *frameWriter {
	w := &frameWriter{conn: conn, task: t, bytes: bytes, blocked: blocked}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			w.raw = raw
		}
	}
	return w
}

// open ensures that there is a buffer to append to.
func (w *frameWriter) open() {
	if w.buf == nil {
		w.pooled = buffers.Get().(*[]byte)
		w.buf = (*w.pooled)[:0]
	}
}

// release returns the buffer to the pool.
func (w *frameWriter) release() {
	if b := w.pooled; b != nil && cap(w.buf) <= 2*bufferBytes {
		*b = w.buf
		buffers.Put(b)
	}
	w.buf, w.pooled = nil, nil
}

// room writes what was gathered if n more bytes would exceed the buffer.
func (w *frameWriter) room(n int) error {
	if len(w.buf)+n < bufferBytes {
		return nil
	}
	return w.flush()
}

// flush writes what was gathered: at once what the socket takes, and the rest while
// another worker continues with other tasks. A subscriber that takes nothing for
// writeTime is disconnected. Until then it costs its socket's buffer and this one.
func (w *frameWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.wrote = w.now
	n, err := w.tryWrite(w.buf)
	if err == nil && n < len(w.buf) {
		w.blocked.Add(1)
		w.task.block(func() { err = w.writeRest(w.buf[n:]) })
		w.blocked.Add(-1)
	}
	w.bytes.Add(float64(len(w.buf)))
	w.release()
	if err != nil {
		w.conn.Close() // nothing more is written to it
		return fmt.Errorf("to the subscriber: %w", err)
	}
	return nil
}

// tryWrite writes what the socket takes without waiting.
func (w *frameWriter) tryWrite(b []byte) (n int, err error) {
	if w.raw == nil {
		return 0, nil
	}
	closed := w.raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), b)
		return true
	})
	switch {
	case closed != nil:
		return 0, closed
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return max(n, 0), nil
	}
	return max(n, 0), err
}

func (w *frameWriter) writeRest(b []byte) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	if _, err := w.conn.Write(b); err != nil {
		return err
	}
	return w.conn.SetWriteDeadline(time.Time{})
}
