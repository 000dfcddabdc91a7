package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// errSilent: a server sent nothing for too long.
var errSilent = errors.New("client: the server fell silent")

// stream opens an answer that is read as it arrives. If nothing arrives for
// Config.Silence, the reader gets errSilent, and the next server is asked first. A
// stopped process or a lost host sends no end of the connection. With Config.Patience a
// server that brings nothing for so long, and does not answer GET /livez either, counts
// as silent at once.
func (c *Client) stream(ctx context.Context, r request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	response, err := c.open(ctx, r)
	if err != nil {
		cancel()
		return nil, err
	}
	body := &silenceBody{ReadCloser: response.Body, client: c, ctx: ctx, cancel: cancel, asked: c.current.Load(), of: &url.URL{Scheme: response.Request.URL.Scheme, Host: response.Request.URL.Host}}
	body.timer = time.AfterFunc(c.cfg.Silence, body.quiet)
	body.timer.Stop() // until there is a Read
	response.Body = body
	return response, nil
}

// silenceBody is an answer's body with a bound on the time without data.
type silenceBody struct {
	io.ReadCloser
	client *Client
	of     *url.URL // the server
	asked  uint32   // Client.current at the beginning
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	began  atomic.Int64 // time of the Read that waits, in nanoseconds; 0: none waits
	silent atomic.Bool
}

// patience is how long a Read waits until the server is looked at.
func (h *silenceBody) patience() time.Duration {
	if p := h.client.cfg.Patience; p > 0 {
		return min(p, h.client.cfg.Silence)
	}
	return h.client.cfg.Silence
}

// quiet is called when a Read has waited for the patience, or for a multiple of it.
func (h *silenceBody) quiet() {
	began := h.began.Load()
	if began == 0 || h.ctx.Err() != nil {
		return // the Read has ended meanwhile
	}
	cfg := &h.client.cfg
	if cfg.Patience > 0 && time.Since(time.Unix(0, began)) < cfg.Silence {
		if h.client.lives(h.ctx, h.of, cfg.Patience) {
			if h.began.Load() == began {
				h.timer.Reset(h.patience())
			}
			return
		}
		if h.began.Load() != began || h.ctx.Err() != nil {
			return
		}
		h.client.silent(h.of)
	}
	h.silent.Store(true)
	h.client.current.CompareAndSwap(h.asked, h.asked+1)
	h.cancel() // ends a Read that waits
}

// Read implements io.Reader. The time between two calls does not count.
func (h *silenceBody) Read(b []byte) (int, error) {
	h.began.Store(time.Now().UnixNano())
	h.timer.Reset(h.patience())
	n, err := h.ReadCloser.Read(b)
	h.began.Store(0)
	h.timer.Stop()
	if err != nil && h.silent.Load() {
		err = errSilent
	}
	return n, err
}

// Close implements io.Closer.
func (h *silenceBody) Close() error {
	h.timer.Stop()
	h.cancel()
	return h.ReadCloser.Close()
}
