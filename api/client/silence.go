package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// errSilent: a server sent nothing for too long.
var errSilent = errors.New("client: the server fell silent")

// stream opens an answer that is read as it arrives. If nothing arrives for
// Config.Silence, the reader gets errSilent, and the next server is asked first. A
// stopped process or a lost host sends no end of the connection.
func (c *Client) stream(ctx context.Context, r request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	response, err := c.open(ctx, r)
	if err != nil {
		cancel()
		return nil, err
	}
	asked := c.current.Load()
	body := &silenceBody{ReadCloser: response.Body, patience: c.cfg.Silence, cancel: cancel}
	body.timer = time.AfterFunc(body.patience, func() {
		body.silent.Store(true)
		c.current.CompareAndSwap(asked, asked+1)
		cancel() // ends a Read that waits
	})
	body.timer.Stop() // until there is a Read
	response.Body = body
	return response, nil
}

// silenceBody is an answer's body with a bound on the time without data.
type silenceBody struct {
	io.ReadCloser
	patience time.Duration
	timer    *time.Timer
	silent   atomic.Bool
	cancel   context.CancelFunc
}

// Read implements io.Reader. The time between two calls does not count.
func (h *silenceBody) Read(b []byte) (int, error) {
	h.timer.Reset(h.patience)
	n, err := h.ReadCloser.Read(b)
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
