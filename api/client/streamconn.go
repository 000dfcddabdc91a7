package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/log"
	"rutter/log/intake"
)

// usage is a Stream's time on one connection: one goroutine sends, one
// receives, one looks for the leader if the server is not it.
type usage struct {
	s     *Stream
	conn  *connection
	leads chan bool // the last word of the server, until look takes it
	// drained is closed when the server accepts no more changes; it still answers.
	drained chan struct{}
	later   []*call // to send again soon; protected by Stream.mu
}

// use sends and receives on conn until it ends; the error is never nil. next, if not
// nil, is a connection to the leader that was found meanwhile.
func (s *Stream) use(ctx context.Context, conn *connection) (next *connection, err error) {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	u := &usage{s: s, conn: conn, leads: make(chan bool, 1), drained: make(chan struct{})}
	g.Go(func() error { return u.send(ctx) })
	g.Go(u.receive)
	g.Go(func() (err error) {
		next, err = u.look(ctx)
		return err
	})
	err = g.Wait()
	conn.Close()
	return next, err
}

// send sends the queue; what waits together goes into one write.
func (u *usage) send(ctx context.Context) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	armed := true // again will fire
	var buf []byte
	var spare []*call
	for {
		batch, waiting := u.take(spare)
		for _, c := range batch {
			var err error
			if buf, err = intake.Append(buf, intake.TypeChange, c.change); err != nil {
				return err // cannot occur: the encoder has the same bound
			}
			if len(buf) >= streamBuffer {
				if buf, err = u.write(buf); err != nil {
					return err
				}
			}
		}
		var err error
		if buf, err = u.write(buf); err != nil {
			return err
		}
		clear(batch)
		if spare = batch; len(batch) > 0 {
			continue
		}
		if waiting && !armed {
			armed = true
			again.Reset(againAfter)
		}
		select {
		case <-u.s.kick:
			// Concurrent callers of Submit get a chance to share the write.
			runtime.Gosched()
		case <-again.C:
			armed = false
			u.resend()
		case <-ping.C:
			if buf, err = intake.Append(buf, intake.TypePing, nil); err != nil {
				return err
			}
		case <-u.drained:
			<-ctx.Done()
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take returns what to send, and whether changes wait for a retry.
func (u *usage) take(spare []*call) (batch []*call, waiting bool) {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	batch = u.s.queue
	u.s.queue = spare[:0]
	for _, c := range batch {
		c.sent = true
	}
	return batch, len(u.later) > 0
}

// resend queues what waited.
func (u *usage) resend() {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	for _, c := range u.later {
		if u.s.calls[c.id] == c {
			u.s.queue = append(u.s.queue, c)
		}
	}
	u.later = nil
}

// write sends buf, and returns it empty.
func (u *usage) write(buf []byte) ([]byte, error) {
	if len(buf) == 0 {
		return buf, nil
	}
	if err := u.conn.SetWriteDeadline(time.Now().Add(streamSilence)); err != nil {
		return nil, err
	}
	if _, err := u.conn.Write(buf); err != nil {
		return nil, err
	}
	return buf[:0], nil
}

// receive takes answers until the connection ends.
func (u *usage) receive() error {
	draining := false
	for {
		f, err := u.conn.frames.Next()
		if err != nil {
			return fmt.Errorf("write stream: %w", err)
		}
		switch f.Type {
		case intake.TypeResult:
			result, err := log.DecodeResult(f.Payload)
			if err != nil {
				return err
			}
			u.s.settle(result.ChangeID, streamAnswer{result: *result})
		case intake.TypeFailed:
			failed, err := intake.DecodeFailed(f.Payload)
			if err != nil {
				return err
			}
			u.failed(failed)
		case intake.TypeWelcome:
			welcome, err := intake.DecodeWelcome(f.Payload)
			if err != nil {
				return err
			}
			select {
			case <-u.leads: // look has not taken the last one
			default:
			}
			u.leads <- welcome.Leads
		case intake.TypeDrain:
			if !draining {
				draining = true
				close(u.drained)
			}
		default: // a pong, or a frame of a newer server that needs no answer
		}
	}
}

// failed returns the failure to the caller, or schedules a retry.
func (u *usage) failed(f intake.Failed) {
	switch f.Code {
	case intake.CodeOverloaded:
		u.s.settle(f.ChangeID, streamAnswer{err: fmt.Errorf("%w: %s", ErrOverloaded, f.Text)})
		return
	case intake.CodeNoRoom:
		u.s.settle(f.ChangeID, streamAnswer{err: fmt.Errorf("%w: %s", log.ErrNoRoom, f.Text)})
		return
	case intake.CodeBudget:
		u.s.settle(f.ChangeID, streamAnswer{err: &BudgetError{After: f.After, Text: f.Text}})
		return
	case intake.CodeBad:
		u.s.settle(f.ChangeID, streamAnswer{err: fmt.Errorf("%w: %s", ErrBadChange, f.Text)})
		return
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	c := u.s.calls[f.ChangeID]
	if c == nil {
		return
	}
	if f.Code != intake.CodeNoLeader {
		c.uncertain = fmt.Errorf("%s: %s", f.Code, f.Text)
	}
	u.later = append(u.later, c)
	wakeUp(u.s.kick)
}

// errMoved ends the use of a connection because the leader was found.
var errMoved = errors.New("client: the leader is another server")

// look looks for the leader while the server of the connection is not it.
func (u *usage) look(ctx context.Context) (*connection, error) {
	c, leads := u.s.client, u.conn.leads
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case leads = <-u.leads:
			continue
		case <-ctx.Done():
			return nil, nil
		case <-every.C:
		}
		for i := range c.servers {
			if leads || i == u.conn.server {
				continue
			}
			conn, err := c.dialStream(ctx, i)
			switch {
			case err != nil:
			case conn.leads:
				c.current.Store(uint32(i))
				return conn, errMoved
			default:
				conn.Close()
			}
		}
	}
}
