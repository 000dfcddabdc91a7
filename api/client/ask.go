package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// manner says how servers are asked for one request.
type manner struct {
	// read: it changes nothing. After Config.Patience without an answer the next server
	// is asked too, and the first answer counts.
	read bool
	// slow: a server may take its time. Only one that does not answer GET /livez
	// either counts as silent.
	slow bool
}

// mannerOf is how servers are asked for r.
func mannerOf(r request) manner {
	m := manner{read: r.method == http.MethodGet || r.method == http.MethodHead, slow: waits(r)}
	for _, name := range []string{"wait", "kernels", "at", "from", "follow"} {
		m.slow = m.slow || r.query.Has(name)
	}
	return m
}

// outcome is the end of one attempt.
type outcome[T any] struct {
	server int // its index
	value  T
	err    error
}

// asking is one round: each server is asked at most once.
type asking[T any] struct {
	c       *Client
	how     manner
	attempt func(context.Context, *url.URL) (T, error)
	ctx     context.Context // of all attempts of the round
	first   int             // index of the server that is asked first
	asked   int             // servers that were asked
	pending int             // of these, those without an outcome
	last    context.CancelFunc
	ended   chan outcome[T] // one place for each server
}

// start asks the next server.
func (a *asking[T]) start() {
	i := (a.first + a.asked) % len(a.c.servers)
	a.asked++
	a.pending++
	ctx, cancel := context.WithCancel(a.ctx)
	a.last = cancel
	go func() {
		defer cancel()
		value, err := a.attempt(ctx, a.c.servers[i])
		a.ended <- outcome[T]{i, value, err}
	}()
}

// next waits for an outcome, and asks further servers while there is none. ok is false
// if ctx ended first.
func (a *asking[T]) next() (o outcome[T], ok bool) {
	var quiet <-chan time.Time
	var lives chan bool
	probing := a.how.slow || !a.how.read
	begin := func() {
		lives = nil
		switch patience := a.c.cfg.Patience; {
		case patience == 0:
		case probing:
			quiet = time.After(patience / 2)
		default:
			quiet = time.After(patience)
		}
	}
	begin()
	for {
		select {
		case o := <-a.ended:
			a.pending--
			return o, true
		case <-a.ctx.Done():
			return o, false
		case <-quiet:
			quiet = nil
			if probing {
				lives = make(chan bool, 1)
				go func(server *url.URL, answer chan<- bool) {
					answer <- a.c.lives(a.ctx, server, a.c.cfg.Patience/2)
				}(a.newest(), lives)
				continue
			}
		case alive := <-lives:
			if lives = nil; alive {
				quiet = time.After(a.c.cfg.Patience)
				continue
			}
		}
		if a.ctx.Err() != nil {
			continue // the command ends: no server is to blame
		}
		a.c.silent(a.newest())
		switch {
		case a.asked == len(a.c.servers):
		case a.how.read:
			a.start()
			begin()
		default: // a write has its change id, by which the next server knows it
			a.last()
		}
	}
}

// newest is the server that was asked last.
func (a *asking[T]) newest() *url.URL {
	return a.c.servers[(a.first+a.asked-1)%len(a.c.servers)]
}

// stop lets go of what is still under way.
func (a *asking[T]) stop(cancel context.CancelFunc, discard func(T)) {
	cancel()
	if a.pending == 0 {
		return
	}
	go func() {
		for range a.pending {
			if o := <-a.ended; o.err == nil && discard != nil {
				discard(o.value)
			}
		}
	}()
}

// ask calls attempt for the server that answered last, then for the next ones, while it
// returns a retry and ctx lasts. It returns at once when ctx ends. Values of attempts
// whose outcome does not count go to discard, which may be nil. Attempts of a read may
// run at the same time.
func ask[T any](ctx context.Context, c *Client, how manner, attempt func(context.Context, *url.URL) (T, error), discard func(T)) (T, error) {
	d := doubts{c: c}
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		within, cancel := context.WithCancel(ctx)
		a := &asking[T]{c: c, how: how, attempt: attempt, ctx: within, first: int(c.current.Load()) % len(c.servers), ended: make(chan outcome[T], len(c.servers))}
		var again retry
		for a.start(); a.pending > 0; {
			o, ok := a.next()
			if !ok {
				a.stop(cancel, discard)
				return *new(T), d.over(ctx.Err(), again.error)
			}
			if o.err == nil || !errors.As(o.err, &again) {
				a.stop(cancel, discard)
				if o.err == nil {
					c.prefer(o.server)
				}
				return o.value, d.final(o.err)
			}
			if err := d.add(again.error); err != nil {
				a.stop(cancel, discard)
				return o.value, err
			}
			c.avoid(o.server)
			if a.pending == 0 && a.asked < len(c.servers) && ctx.Err() == nil {
				a.start()
			}
		}
		cancel()
		// Each server was asked: wait, with a random part of up to half, so that many
		// clients do not retry together.
		select {
		case <-ctx.Done():
			return *new(T), d.over(nil, again.error)
		case <-time.After(max(backoff-c.cfg.Jitter(backoff/2), afterOf(again))):
		}
	}
}

// doubts is what is known of the attempts of one request that failed.
type doubts struct {
	c         *Client
	unwelcome int   // servers in a row that refused the certificate
	uncertain error // of an attempt that a server may have executed
}

// add records an attempt that failed. The error, if not nil, ends the request.
func (d *doubts) add(err error) error {
	if why := d.c.unwelcome(err); why == nil {
		d.unwelcome = 0
	} else if d.unwelcome++; d.unwelcome >= len(d.c.servers) {
		return fmt.Errorf("%w: %w", ErrCertificate, why)
	}
	if !undone(err) {
		d.uncertain = err
	}
	return nil
}

// final returns the error of a request that ended with err, which may be nil.
func (d *doubts) final(err error) error {
	if err != nil && d.uncertain != nil && undone(err) {
		return d.unknown(err)
	}
	return err
}

// over returns the error of a request whose time is over. last is of the attempt that
// failed last; nil: none did, and ended says why.
func (d *doubts) over(ended, last error) error {
	if last == nil || errors.Is(ended, context.Canceled) {
		last = ended
	}
	if d.uncertain != nil && undone(last) {
		return d.unknown(last)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, last)
}

func (d *doubts) unknown(err error) error {
	return fmt.Errorf("%w: %w; it is not known what became of an earlier try: %w", ErrUnavailable, err, d.uncertain)
}

// prefer makes later requests ask a server first.
func (c *Client) prefer(server int) { c.current.Store(uint32(server)) }

// avoid makes later requests ask the server behind this one first, unless another was
// chosen meanwhile.
func (c *Client) avoid(server int) {
	if at := c.current.Load(); int(at)%len(c.servers) == server {
		c.current.CompareAndSwap(at, at+1)
	}
}

// silent reports a server that does not answer, once.
func (c *Client) silent(server *url.URL) {
	if c.cfg.Silent == nil {
		return
	}
	if _, before := c.named.LoadOrStore(server.String(), true); !before {
		c.cfg.Silent(server.String())
	}
}

// lives asks a server whether its process answers at all.
func (c *Client) lives(ctx context.Context, server *url.URL, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	response, err := c.send(ctx, server, request{method: http.MethodGet, path: "/livez"})
	if err != nil {
		return ctx.Err() == nil // a refused connection is an answer, too
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxLivez))
	return err == nil
}

// maxLivez bounds what is read of an answer to GET /livez, in bytes.
const maxLivez = 4 << 10

// watch reports a server as silent if it has not answered when Config.Patience is over.
// The returned function ends that.
func (c *Client) watch(server *url.URL) (answered func() bool) {
	if c.cfg.Patience == 0 {
		return func() bool { return true }
	}
	return time.AfterFunc(c.cfg.Patience, func() { c.silent(server) }).Stop
}
