package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rutter/log"
)

// ErrUnavailable: no server answered in time. The text has the last cause. A write may
// have been done or not: repeat it with the same change id.
var ErrUnavailable = errors.New("client: no server answered")

// ErrCertificate: every server refuses this client's certificate, or this client
// refuses theirs. The text has the reason. Nothing was done, and a retry does not help.
var ErrCertificate = errors.New("client: no connection over TLS")

// Headers of ours.
const (
	HeaderChangeID = "Rutter-Change-Id" // of a write: the id that makes a retry safe
	HeaderWarning  = "Rutter-Warning"   // of its answer: what operators must know about it
	HeaderSeq      = "Rutter-Seq"       // of an answer: the server's head, or the write's last seq
	headerAbsent   = "Rutter-Fabric-Absent"
)

// Limits of the client.
const (
	maxAnswerBytes = 256 << 20 // of one answer that is read whole
	minBackoff     = 20 * time.Millisecond
	maxBackoff     = time.Second
)

// Config configures a Client. Zero means the default of each field.
type Config struct {
	// Servers are the base URLs, as in http://127.0.0.1:7420. Required.
	Servers []string
	// Timeout bounds a request over all servers and attempts: 30 s.
	Timeout time.Duration
	// AttemptTimeout bounds one server's answer to a request that does not wait: 5 s.
	AttemptTimeout time.Duration
	// Silence is how long a stream may bring nothing before the next server is asked:
	// 45 s. Servers write at least every 15 s.
	Silence time.Duration
	// Await, if not 0, makes Create, Update, Delete and Submit wait until every CN
	// concerned has the change in its kernel, at most for this time, in whole
	// milliseconds. It is added to Timeout and AttemptTimeout.
	Await time.Duration
	// Absent, if not nil, is called after such a write with what no kernel has of it
	// because a VM is not to run, one text for each object; not if there is nothing.
	Absent func(texts []string)
	// Dial makes the connections: a net.Dialer that waits AttemptTimeout.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTLS makes connections to servers whose URL begins with https. It returns
	// after the handshake, when the other side is known to be a server. Such URLs need
	// it.
	DialTLS func(ctx context.Context, network, address string) (net.Conn, error)
	// Jitter returns a random duration from 0 up to d, which spreads retries. Default: math/rand.
	Jitter func(d time.Duration) time.Duration
	// Unwelcome returns what is wrong with a certificate if that is why a connection
	// failed, else nil. If it returns an error for each server in turn, a request ends
	// with ErrCertificate at once. Without it requests continue until Timeout, as
	// daemons need.
	Unwelcome func(error) error
	// Patience, if not 0, is how long a server may say nothing before it counts as
	// silent: Silent is called, and of a read the next server is asked while the first
	// one may still answer. The next server of a write is asked in its place, with the
	// same change id. A server that may take its time over a request counts as silent
	// only if it does not answer GET /livez either. 0: only AttemptTimeout counts, as
	// daemons need, which must not ask a slow cluster twice.
	Patience time.Duration
	// Silent, if not nil, is called once for each server that is silent, from any
	// goroutine.
	Silent func(server string)
	// Warn, if not nil, receives each warning of a server about a write that it accepted.
	Warn func(text string)
}

// Client talks to the servers of one cluster.
type Client struct {
	cfg     Config // immutable
	servers []*url.URL
	http    *http.Client
	patient *http.Client  // of requests that a server answers when it has waited
	current atomic.Uint32 // index of the server that answered last
	named   sync.Map      // of servers' URLs: those of which Silent was called
}

// New returns a client, or an error that says what cfg lacks. It makes no connection.
func New(cfg Config) (*Client, error) {
	if len(cfg.Servers) == 0 {
		return nil, errors.New("client: no servers: name at least one, as in http://127.0.0.1:7420")
	}
	c := &Client{cfg: cfg}
	for _, text := range cfg.Servers {
		u, err := url.Parse(strings.TrimSuffix(text, "/"))
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Path != "" {
			return nil, fmt.Errorf("client: server %q: want a base URL, as in http://127.0.0.1:7420", text)
		}
		if u.Scheme == "https" && cfg.DialTLS == nil {
			return nil, fmt.Errorf("client: server %q needs a certificate: name the folder of yours with --tls-dir or RUTTER_TLS_DIR", text)
		}
		c.servers = append(c.servers, u)
	}
	if c.cfg.Timeout == 0 {
		c.cfg.Timeout = 30 * time.Second
	}
	if c.cfg.AttemptTimeout == 0 {
		c.cfg.AttemptTimeout = 5 * time.Second
	}
	if c.cfg.Silence == 0 {
		c.cfg.Silence = 45 * time.Second
	}
	c.cfg.Timeout += c.cfg.Await
	c.cfg.AttemptTimeout += c.cfg.Await
	if c.cfg.Jitter == nil {
		c.cfg.Jitter = func(d time.Duration) time.Duration { return rand.N(d + 1) }
	}
	if c.cfg.Dial == nil {
		c.cfg.Dial = (&net.Dialer{Timeout: c.cfg.AttemptTimeout}).DialContext
	}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: c.cfg.Dial, DialTLSContext: c.cfg.DialTLS, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 30 * time.Second,
		ResponseHeaderTimeout: c.cfg.AttemptTimeout,
	}}
	c.patient = patientOf(c.http)
	return c, nil
}

// dial connects to a server.
func (c *Client) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	address := u.Host
	if u.Scheme != "https" {
		return c.cfg.Dial(ctx, "tcp", address)
	}
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "443")
	}
	return c.cfg.DialTLS(ctx, "tcp", address)
}

// Close drops idle connections.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.patient.CloseIdleConnections()
}

// Servers returns the base URLs.
func (c *Client) Servers() []string {
	var urls []string
	for _, u := range c.servers {
		urls = append(urls, u.String())
	}
	return urls
}

// NewChangeID returns a fresh id for a change: a version 7 UUID.
func NewChangeID() log.UUID { return log.UUID(uuid.Must(uuid.NewV7())) }

// Error is an answer of a server that is neither success nor refusal: for example an
// unknown path, or a failed server.
type Error struct {
	Status  int    `json:"-"` // HTTP
	Code    string `json:"code"`
	Message string `json:"message"`
	// After is how long the server asks to wait before a retry; 0: unknown.
	After time.Duration `json:"-"`
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("HTTP %d: %s: %s", e.Status, e.Code, e.Message) }

// request is one call, with all its attempts.
type request struct {
	method  string
	path    string
	query   url.Values
	body    []byte
	headers http.Header
}

// answer is an answer of a server, read whole.
type answer struct {
	header http.Header
	body   []byte
}

// do sends r to one server after another until one answers, and decodes the answer into
// out, if out is not nil. A refusal is a *log.Refusal.
func (c *Client) do(ctx context.Context, r request, out any) (http.Header, error) {
	waits := c.waitOf(r)
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout+waits)
	defer cancel()
	got, err := ask(ctx, c, mannerOf(r), func(ctx context.Context, server *url.URL) (got answer, err error) {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout+waits)
		defer cancel()
		response, err := c.send(ctx, server, r)
		if err != nil {
			return got, err
		}
		defer response.Body.Close()
		got.header = response.Header
		got.body, err = bodyOf(response)
		return got, err
	}, nil)
	if c.cfg.Warn != nil {
		for _, text := range got.header.Values(HeaderWarning) {
			c.cfg.Warn(text)
		}
	}
	if err == nil {
		err = decode(got.body, out)
	}
	if texts := got.header.Values(headerAbsent); err == nil && len(texts) > 0 && c.cfg.Absent != nil {
		c.cfg.Absent(texts)
	}
	return got.header, err
}

// retry wraps an error of an attempt after which the next server is asked.
type retry struct{ error }

func (r retry) Unwrap() error { return r.error }

// maxAfter bounds the accepted Retry-After, in seconds.
const maxAfter = 3600

// afterOf returns how long a server asks to wait.
func afterOf(err error) time.Duration {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.After
	}
	return 0
}

// undone reports whether a server answered that it has done nothing of a request.
func undone(err error) bool {
	var said *Error
	return errors.As(err, &said) && slices.Contains([]string{"NoLeader", "Overloaded", "RequestThrottled", "BudgetExceeded", "ServersClocks", "NoRoom"}, said.Code)
}

func (c *Client) unwelcome(err error) error {
	if c.cfg.Unwelcome == nil {
		return nil
	}
	return c.cfg.Unwelcome(err)
}

func (c *Client) send(ctx context.Context, server *url.URL, r request) (*http.Response, error) {
	u := *server
	u.Path, u.RawQuery = r.path, r.query.Encode()
	request, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if len(r.body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, values := range r.headers {
		request.Header[name] = values
	}
	response, err := c.clientFor(r).Do(request)
	if err != nil {
		return nil, retry{err}
	}
	return response, nil
}

// readAnswer decodes a server's answer, or converts it into an error.
func readAnswer(response *http.Response, out any) error {
	body, err := bodyOf(response)
	if err != nil {
		return err
	}
	return decode(body, out)
}

// bodyOf reads an answer of success whole, or converts another one into an error.
func bodyOf(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, retry{err}
	}
	if len(body) > maxAnswerBytes {
		return nil, fmt.Errorf("client: answer of more than %d bytes: ask for less, with a limit", maxAnswerBytes)
	}
	if response.StatusCode == http.StatusAccepted {
		if pending := pendingOf(body); pending != nil {
			return nil, pending
		}
	}
	if response.StatusCode < 300 {
		return body, nil
	}
	return nil, answerError(response, body)
}

// decode reads the body of an answer of success into out, which may be nil.
func decode(body []byte, out any) error {
	if out == nil || len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("client: answer is not as expected: %w", err)
	}
	return nil
}

// answerError makes the error of an unsuccessful answer.
func answerError(response *http.Response, body []byte) error {
	refusal := new(log.Refusal)
	if json.Unmarshal(body, refusal) != nil || refusal.Code == "" {
		refusal = &log.Refusal{Code: http.StatusText(response.StatusCode), Message: strings.TrimSpace(string(body[:min(len(body), 200)]))}
	}
	failed := &Error{Status: response.StatusCode, Code: refusal.Code, Message: refusal.Message}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && response.StatusCode == http.StatusTooManyRequests {
		failed.After = time.Duration(min(max(seconds, 0), maxAfter)) * time.Second
	}
	switch {
	case response.StatusCode == http.StatusBadGateway, response.StatusCode == http.StatusServiceUnavailable,
		response.StatusCode == http.StatusGatewayTimeout, response.StatusCode == http.StatusTooManyRequests:
		return retry{failed}
	case response.StatusCode >= 500 && refusal.Code != log.CodeSubnetFull && refusal.Code != log.CodeSubnetsExhausted && refusal.Code != log.CodeUndecided:
		return failed
	}
	return refusal
}

// Object is an object in its JSON form.
type Object = map[string]any

// Get returns the object at path, as in /nics/90:b8:d0:01:02:03.
func (c *Client) Get(ctx context.Context, path string, query url.Values) (Object, error) {
	var o Object
	_, err := c.do(ctx, request{method: http.MethodGet, path: path, query: query}, &o)
	return o, err
}

// pageSize is NAPI's bound for one list (spec/napi.md section 3.2).
const pageSize = 1000

// List returns all objects at path that query selects, page by page. Objects that are
// created or deleted meanwhile may be missing or included.
func (c *Client) List(ctx context.Context, path string, query url.Values) ([]Object, error) {
	query = cloneQuery(query)
	var all []Object
	for {
		query.Set("limit", strconv.Itoa(pageSize))
		query.Set("offset", strconv.Itoa(len(all)))
		var page []Object
		if _, err := c.do(ctx, request{method: http.MethodGet, path: path, query: query}, &page); err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < pageSize {
			return all, nil
		}
	}
}

func cloneQuery(query url.Values) url.Values {
	clone := url.Values{}
	for name, values := range query {
		clone[name] = slices.Clone(values)
	}
	return clone
}

// Create posts an object to path, and Update fields to it; both return the object
// afterwards. Delete deletes it. Each has its own change id, so that it is done once
// even if it is sent several times.
func (c *Client) Create(ctx context.Context, path string, body []byte) (Object, error) {
	return c.write(ctx, http.MethodPost, path, body, "")
}

// Update posts fields to the object at path. ifMatch, if not "", is the Etag
// that the object must have.
func (c *Client) Update(ctx context.Context, path string, body []byte, ifMatch string) (Object, error) {
	return c.write(ctx, http.MethodPost, path, body, ifMatch)
}

// Delete deletes the object at path.
func (c *Client) Delete(ctx context.Context, path, ifMatch string) error {
	_, err := c.write(ctx, http.MethodDelete, path, nil, ifMatch)
	return err
}

func (c *Client) write(ctx context.Context, method, path string, body []byte, ifMatch string) (Object, error) {
	headers := http.Header{HeaderChangeID: {NewChangeID().String()}}
	if ifMatch != "" {
		headers.Set("If-Match", ifMatch)
	}
	var o Object
	_, err := c.do(ctx, request{method: method, path: path, body: body, headers: headers, query: c.awaiting()}, &o)
	return o, err
}
