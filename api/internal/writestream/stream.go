package writestream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/log"
	"rutter/log/intake"
)

// Bounds of a write stream.
const (
	Window           = 4096             // changes of one stream without an answer; beyond, it is not read
	writeWindowBytes = 8 << 20          // or this many bytes of them, or one change alone
	writeForwards    = 256              // changes of one stream forwarded to the leader at once
	writeAnswers     = 256 << 10        // bytes of answers gathered before a write
	writeTake        = 30 * time.Second // for the client to take them
	writeSilence     = 15 * time.Second // a client pings more often (client.pingEvery)
	writeGrace       = 5 * time.Second  // at the end, to answer pending changes
	writeHangUp      = time.Second      // and for the client to close its side
)

// queuer is a Store that takes changes on the leader without a goroutine for each. done
// is called with the result, and must not block. ErrNoLeader means that this server
// does not lead. After an error done is not called.
type queuer interface {
	Enqueue(c *log.Change, done func(log.Result, error)) error
}

// writeStream takes the changes of one client. One goroutine reads them and passes them
// to the store. Another writes the answers in the order in which they become known. The
// window bounds what is unanswered.
type writeStream struct {
	s     *Streams
	conn  net.Conn
	actor string
	who   matrix.Identity
	by    log.Author
	queue queuer // nil: every change is handed to Propose
	leads bool   // what the client was last sent; used by the reader

	decoder log.ChangeDecoder // belongs to the reader

	slots chan struct{}
	hands sync.WaitGroup // goroutines that forward changes

	kick chan struct{} // there are answers, or the reader has ended
	room chan struct{} // answers have left

	mu          sync.Mutex // protects what follows
	ready       []writeAnswer
	flying      int // changes without an answer
	flyingBytes int
	ponging     bool // a pong is in ready: it answers all pings until it is sent
	ended       bool // the reader takes no more

	draining atomic.Bool // the server stops: end in order
	over     atomic.Bool // a budget was used up: the reader rests before the next change
}

// writeAnswer is a frame to be sent: kind says which of the fields count.
type writeAnswer struct {
	kind   intake.Type
	id     log.UUID
	size   int // of the change, to be given back to the window
	result log.Result
	err    error
	leads  bool
}

func newWriteStream(s *Streams, conn net.Conn, actor string, who matrix.Identity) *writeStream {
	u := &writeStream{
		s: s, conn: conn, actor: actor, who: who, by: who.Author(), slots: make(chan struct{}, writeForwards),
		kick: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	u.queue, _ = s.store.(queuer)
	status := s.store.Status()
	u.leads = u.queue != nil && status.ID != "" && status.Leader == status.ID
	return u
}

// serve runs the stream until it ends; nil if the client or the server ended it.
func (u *writeStream) serve(ctx context.Context, buffered *bufio.Reader) error {
	if err := u.conn.SetWriteDeadline(time.Now().Add(writeTake)); err != nil {
		return err
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + intake.Protocol + "\r\n\r\n"
	if _, err := u.conn.Write([]byte(answer)); err != nil {
		return err
	}
	u.add(writeAnswer{kind: intake.TypeWelcome, leads: u.leads})
	ctx, cancel := context.WithCancel(ctx)
	defer u.hands.Wait()
	defer cancel()
	written := make(chan error, 1)
	go func() {
		err := u.answer()
		if err != nil {
			u.conn.Close() // ends the reader, if it still runs
		}
		written <- err
	}()
	stopWatch := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-u.s.draining:
			u.draining.Store(true)
			_ = u.conn.SetReadDeadline(time.Now()) // if it fails, the reader has ended
		case <-stopWatch:
		}
	}()
	err := u.read(ctx, intake.NewReader(&patientReader{u: u, buffered: buffered}))
	close(stopWatch)
	<-watched
	u.end(err)
	err = errors.Join(err, <-written)
	u.hangUp()
	return err
}

// hangUp ends the connection so that the client gets the last answers: a close with
// unread data would discard them.
func (u *writeStream) hangUp() {
	half, ok := u.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || u.conn.SetReadDeadline(time.Now().Add(writeHangUp)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, u.conn) // until the client has closed it too
}

// errDraining: the server stops.
var errDraining = errors.New("this server stops: go to another")

// patientReader reads from the connection, each time with a new deadline.
type patientReader struct {
	u        *writeStream
	buffered *bufio.Reader
}

// Read implements io.Reader.
func (r *patientReader) Read(b []byte) (int, error) {
	if r.buffered.Buffered() == 0 {
		if err := r.u.conn.SetReadDeadline(time.Now().Add(writeSilence)); err != nil {
			return 0, err
		}
		// The deadline of a drain, set before this one, is in the flag.
		if r.u.draining.Load() {
			return 0, errDraining
		}
	}
	n, err := r.buffered.Read(b)
	if err != nil && r.u.draining.Load() {
		err = errDraining
	}
	return n, err
}

// read takes what the client sends, until it or the server ends the stream
// (nil), or something that is no change comes.
func (u *writeStream) read(ctx context.Context, r *intake.Reader) error {
	for {
		f, err := r.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, errDraining):
			return nil
		case err != nil:
			return fmt.Errorf("from the client: %w", err)
		}
		switch f.Type {
		case intake.TypeChange:
			err = u.take(ctx, f.Payload)
		case intake.TypePing:
			u.pong()
		default: // frames of a newer program, which works without an answer
		}
		if errors.Is(err, errDraining) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take passes one change to the store.
func (u *writeStream) take(ctx context.Context, payload []byte) error {
	if err := u.restOver(ctx); err != nil {
		return err
	}
	c, err := u.decoder.Change(payload)
	if err != nil {
		return fmt.Errorf("from the client: %w", err)
	}
	if err := u.await(ctx, len(payload)); err != nil {
		return err
	}
	if err := u.rest(ctx, u.s.guard.Pace(u.who)); err != nil {
		return err
	}
	c.Actor, c.By, c.Content = u.actor, u.by, log.Content{} // a client may set none of these
	id, size := c.ID, len(payload)
	if err := backend.CheckChangeID(id, "change"); err != nil {
		u.answered(id, size, log.Result{}, err)
		return nil
	}
	err = backend.ErrNoLeader
	if u.queue != nil {
		err = u.queue.Enqueue(c, func(result log.Result, err error) { u.answered(id, size, result, err) })
	}
	switch {
	case errors.Is(err, backend.ErrNoLeader):
		return u.forward(ctx, c, size)
	case err != nil:
		u.answered(id, size, log.Result{}, err)
	case !u.leads:
		u.leads = true
		u.add(writeAnswer{kind: intake.TypeWelcome, leads: true})
	}
	return nil
}

// rest makes an identity wait that writes more than its rate. Meanwhile the client's
// data stays in its socket.
func (u *writeStream) rest(ctx context.Context, wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	u.s.guard.CountLimit(guard.LimitRate)
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-u.s.draining:
		return errDraining
	}
}

// await waits until the window has room for a change of size bytes, and reserves it.
func (u *writeStream) await(ctx context.Context, size int) error {
	for {
		u.mu.Lock()
		if u.flying == 0 || u.flying < Window && u.flyingBytes+size <= writeWindowBytes {
			u.flying++
			u.flyingBytes += size
			u.mu.Unlock()
			return nil
		}
		u.mu.Unlock()
		select {
		case <-u.room:
		case <-ctx.Done():
			return ctx.Err()
		case <-u.s.draining:
			return errDraining
		}
	}
}

// forward proposes a change in its own goroutine, on a server that is not the leader.
// The client is told once, so that it can look for the leader.
func (u *writeStream) forward(ctx context.Context, c *log.Change, size int) error {
	if u.leads {
		u.leads = false
		u.add(writeAnswer{kind: intake.TypeWelcome})
	}
	select {
	case u.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	u.hands.Go(func() {
		defer func() { <-u.slots }()
		ctx, cancel := context.WithTimeout(ctx, backend.WaitTime)
		defer cancel()
		id := c.ID // the store may not keep c
		result, err := u.s.store.Propose(ctx, c)
		u.answered(id, size, result, err)
	})
	return nil
}

// answered queues the answer of a change. It never blocks.
func (u *writeStream) answered(id log.UUID, size int, result log.Result, err error) {
	a := writeAnswer{kind: intake.TypeResult, id: id, size: size, result: result}
	if err != nil {
		a.kind, a.err = intake.TypeFailed, err
		u.noteBudget(err)
	}
	u.add(a)
}

func (u *writeStream) pong() {
	u.mu.Lock()
	if !u.ponging {
		u.ponging = true
		u.ready = append(u.ready, writeAnswer{kind: intake.TypePong})
	}
	u.mu.Unlock()
	notify(u.kick)
}

func (u *writeStream) add(a writeAnswer) {
	u.mu.Lock()
	u.ready = append(u.ready, a)
	u.mu.Unlock()
	notify(u.kick)
}

// end tells the writer that no more changes come. err is the reason if the client
// caused it.
func (u *writeStream) end(err error) {
	text := errDraining.Error()
	if err != nil {
		text = err.Error()
	}
	u.mu.Lock()
	u.ended = true
	if err != nil || u.draining.Load() {
		u.ready = append(u.ready, writeAnswer{kind: intake.TypeDrain, err: errors.New(text)})
	}
	u.mu.Unlock()
	notify(u.kick)
}

// answer writes answers until the reader has ended and everything is answered.
func (u *writeStream) answer() error {
	out := answerWriter{u: u, encoder: log.NewEncoder()}
	var grace <-chan time.Time
	var spare []writeAnswer
	for {
		u.mu.Lock()
		batch, flying, ended := u.ready, u.flying, u.ended
		u.ready, u.ponging = spare[:0], false
		u.mu.Unlock()
		if len(batch) > 0 {
			if err := out.write(batch); err != nil {
				return err
			}
			clear(batch)
		}
		if spare = batch; len(batch) > 0 {
			continue
		}
		if ended && flying == 0 {
			return nil
		}
		if ended && grace == nil {
			timer := time.NewTimer(writeGrace)
			defer timer.Stop()
			grace = timer.C
		}
		select {
		case <-u.kick:
		case <-grace:
			return fmt.Errorf("%d changes were not answered %v after the end", flying, writeGrace)
		}
	}
}

// answerWriter encodes answers, many in one write.
type answerWriter struct {
	u       *writeStream
	encoder *log.Encoder
	buf     []byte
	last    log.Seq // the highest acknowledged in buf
	count   int     // changes answered in buf
	bytes   int     // of those changes
}

func (w *answerWriter) write(batch []writeAnswer) error {
	for i := range batch {
		if err := w.append(&batch[i]); err != nil {
			return err
		}
		if len(w.buf) >= writeAnswers {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return w.flush()
}

func (w *answerWriter) append(a *writeAnswer) (err error) {
	switch a.kind {
	case intake.TypeWelcome:
		w.buf, err = intake.AppendWelcome(w.buf, intake.Welcome{Leads: a.leads})
		return err
	case intake.TypePong:
		w.buf, err = intake.Append(w.buf, intake.TypePong, nil)
		return err
	case intake.TypeDrain:
		w.buf, err = intake.AppendDrain(w.buf, a.err.Error())
		return err
	case intake.TypeFailed:
		w.buf, err = intake.AppendFailed(w.buf, failedOf(a.id, a.err))
	case intake.TypeResult:
		var encoded []byte
		if encoded, err = w.encoder.Result(&a.result); err == nil {
			w.buf, err = intake.Append(w.buf, intake.TypeResult, encoded)
		}
		w.last = max(w.last, a.result.Last)
	}
	w.count++
	w.bytes += a.size
	return err
}

// flush sends what was gathered, and frees its part of the window.
func (w *answerWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.u.s.acknowledged.Note(w.last)
	if err := w.u.conn.SetWriteDeadline(time.Now().Add(writeTake)); err != nil {
		return err
	}
	if _, err := w.u.conn.Write(w.buf); err != nil {
		return fmt.Errorf("to the client: %w", err)
	}
	if w.buf = w.buf[:0]; cap(w.buf) > 4*writeAnswers {
		w.buf = nil
	}
	w.u.mu.Lock()
	w.u.flying -= w.count
	w.u.flyingBytes -= w.bytes
	w.u.mu.Unlock()
	w.count, w.bytes = 0, 0
	notify(w.u.room)
	return nil
}

// notify makes ch readable.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
