package client

import (
	"net/http"
	"time"
)

// maxWait is the most that a server waits for one request (liveness.MaxTimeout).
const maxWait = 10 * time.Minute

// waits reports whether a server answers a request when it has waited as the request asks.
func waits(r request) bool { return r.query.Has("wait") || r.path == "/wait" }

// waitOf is how much longer than others a request may take, because the server waits as it
// asks. Config.Await is in the times of all requests already.
func (c *Client) waitOf(r request) time.Duration {
	if !waits(r) || c.cfg.Await > 0 {
		return 0
	}
	d, err := time.ParseDuration(r.query.Get("timeout"))
	if err != nil || d < 0 {
		return 0 // the server says so
	}
	return min(d, maxWait)
}

// patientOf is a client like h for requests whose answers begin after a wait: their contexts
// bound them.
func patientOf(h *http.Client) *http.Client {
	transport := h.Transport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = 0
	return &http.Client{Transport: transport}
}

func (c *Client) clientFor(r request) *http.Client {
	if waits(r) {
		return c.patient
	}
	return c.http
}
