package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"rutter/api/internal/rest"
)

// HeaderLoop marks a request that a gateway made. A gateway that gets it refuses it: the
// URL behind leads back to a server of Rutter.
const HeaderLoop = "Rutter-Gateway"

// Codes of errors, beside those of package rest.
const (
	codeLoop    = "LoopDetected"   // 508
	codeTimeout = "GatewayTimeout" // 504
	codeGarbage = "BadGateway"     // 502
	codeBehind  = "RefusedBehind"  // the old service's own status
)

// notPassed are headers of a request that do not go to the old service: credentials,
// and what would make it read another method.
var notPassed = []string{
	"Authorization", "Cookie", "Proxy-Authorization", "Proxy-Connection",
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded",
}

// errStalled: the old service took too long.
var errStalled = errors.New("it took too long")

// behind is the way to the old service.
type behind struct {
	g         *Gateway
	base      *url.URL
	transport *http.Transport
	client    http.Client // of the gateway's own requests
	proxy     *httputil.ReverseProxy
	slots     slots
}

func newBehind(g *Gateway, base *url.URL) *behind {
	b := &behind{g: g, base: base}
	// No proxy, no compression of its own, no HTTP/2: what is sent is what the caller sent.
	b.transport = &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
		MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}
	b.client = http.Client{Transport: b.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	b.proxy = &httputil.ReverseProxy{
		Transport: b.transport, FlushInterval: -1, Rewrite: b.rewrite, ModifyResponse: b.arrived, ErrorHandler: b.failed,
		ErrorLog: slog.NewLogLogger(g.logger.Handler(), slog.LevelDebug),
	}
	return b
}

// rewrite makes the request to the old service. Its path is encoded anew from the one
// that was checked, so that both read the same.
func (b *behind) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = b.base.Scheme, b.base.Host, b.base.Host
	p.Out.URL.RawPath = ""
	p.Out.URL.RawQuery = p.In.URL.RawQuery // its names were checked as they are
	for _, name := range notPassed {
		p.Out.Header.Del(name)
	}
	p.Out.Header.Set(HeaderLoop, b.g.cfg.Self)
	if one, ok := p.In.Context().Value(passingKey{}).(*passing); ok && one.after != nil {
		p.Out.Header.Del("Accept-Encoding") // its answer is read here too
	}
	if p.In.URL.Path != "/changefeeds" { // no other call has an upgrade
		p.Out.Header.Del("Upgrade")
		p.Out.Header.Del("Connection")
	}
}

// passing is one request on its way.
type passing struct {
	began  time.Time
	timer  *time.Timer                         // cancels it
	after  func(response *http.Response) error // nil: nothing
	status int
	patience
}

// patience is how long an answer may take.
type patience struct{ header, pause time.Duration }

// patienceOf returns how long the old service may take for a request.
func (g *Gateway) patienceOf(r *http.Request, fields fields) patience {
	p := patience{g.cfg.HeaderTime, g.cfg.StallTime}
	switch {
	case strings.HasSuffix(r.URL.Path, "/watch"), r.URL.Path == "/changefeeds":
		p.header, p.pause = WaitTime, WaitTime
	case strings.HasSuffix(r.URL.Path, "/wait"), fields.says("sync"):
		p.header = WaitTime
	}
	return p
}

type passingKey struct{}

// handOn hands a request on, with a body that was read, and answers with what the old
// service answers. after is called before the answer goes out, if there is one.
func (b *behind) handOn(w http.ResponseWriter, r *http.Request, body []byte, p patience, after func(*http.Response) error) error {
	leave, err := b.slots.enter(r, b.g.name())
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	one := &passing{began: time.Now(), after: after, patience: p, timer: time.AfterFunc(p.header, func() { cancel(errStalled) })}
	defer one.timer.Stop()
	out := r.WithContext(context.WithValue(ctx, passingKey{}, one))
	if body == nil {
		out.Body, out.ContentLength, out.GetBody = http.NoBody, 0, nil
		if r.Header.Get("Upgrade") != "" {
			out.Body = r.Body
		}
	} else {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		// A connection that the old service closed meanwhile is not used.
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	b.proxy.ServeHTTP(&paced{ResponseWriter: w, control: control}, out)
	return nil
}

// arrived is called when an answer begins.
func (b *behind) arrived(response *http.Response) error {
	one := response.Request.Context().Value(passingKey{}).(*passing)
	one.status = response.StatusCode
	b.g.noteAnswer(nil)
	b.g.cfg.Metrics.answered(b.g.cfg.Surface, response.StatusCode, time.Since(one.began))
	if response.StatusCode == http.StatusSwitchingProtocols {
		one.timer.Stop()
		return nil
	}
	one.timer.Reset(one.pause)
	response.Body = &pausing{response.Body, one}
	if one.after != nil {
		return one.after(response)
	}
	return nil
}

// pausing is the body of an answer, which may pause for a while only.
type pausing struct {
	io.ReadCloser
	one *passing
}

// Read implements io.Reader.
func (p *pausing) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if err == nil {
		p.one.timer.Reset(p.one.pause)
	}
	return n, err
}

// failed answers when the old service did not.
func (b *behind) failed(w http.ResponseWriter, r *http.Request, err error) {
	one := r.Context().Value(passingKey{}).(*passing)
	cause := context.Cause(r.Context())
	if cause != nil && !errors.Is(cause, errStalled) {
		w.WriteHeader(http.StatusBadGateway) // the caller is gone
		return
	}
	if one.status == 0 {
		b.g.cfg.Metrics.answered(b.g.cfg.Surface, 0, 0)
	}
	var own *rest.Error
	if !errors.As(err, &own) {
		own = b.answerTo(err, cause)
	}
	b.g.logger.Warn("a request was not answered by "+b.g.name(), "asked", cut([]byte(r.Method+" "+r.URL.Path)), "request", cut([]byte(r.Header.Get("x-request-id"))), "status", own.Status, "error", err)
	b.g.writeError(w, r, own)
}

// answerTo is the answer to a request that failed on its way to the old service.
func (b *behind) answerTo(err, cause error) *rest.Error {
	var op *net.OpError
	what := fmt.Sprintf("%s at %s (%s)", b.g.name(), b.base, b.g.setting())
	switch {
	case errors.Is(cause, errStalled), errors.Is(err, context.DeadlineExceeded):
		return rest.Fail(http.StatusGatewayTimeout, codeTimeout, "look whether it was done, before you send it again", "%s did not answer in time; what the log has is answered", what)
	case errors.As(err, &op) && op.Op == "dial":
		b.g.noteAnswer(err)
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "start it, or correct the setting", "%s cannot be reached: %v; nothing was sent; what the log has is answered", what, op.Err)
	}
	return rest.Fail(http.StatusBadGateway, codeGarbage, "look whether it was done, before you send it again", "%s gave no answer that can be passed on: %v", what, err)
}

// paced gives each part of an answer its time.
type paced struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write implements io.Writer.
func (p *paced) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(rest.AnswerTime))
	n, err := p.ResponseWriter.Write(b)
	_ = p.control.SetWriteDeadline(time.Time{})
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// errStatus is an answer of the old service that is no success.
type errStatus struct {
	status int
	body   string
}

// Error implements error.
func (e *errStatus) Error() string { return fmt.Sprintf("it answered %d: %.300s", e.status, e.body) }

func asStatus(err error, to **errStatus) bool { return errors.As(err, to) }

// missing reports whether the old service said that there is no such thing.
func missing(err error) bool {
	var s *errStatus
	return errors.As(err, &s) && s.status == http.StatusNotFound
}

// ask makes a request of the gateway's own, within askTime unless ctx ends before. The
// error is that of the way, or *errStatus.
func (b *behind) ask(ctx context.Context, method, pathAndQuery string, body []byte, header http.Header) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return b.askLong(ctx, method, pathAndQuery, body, header)
}

// askLong is ask for a request that may take until ctx ends.
func (b *behind) askLong(ctx context.Context, method, pathAndQuery string, body []byte, header http.Header) ([]byte, http.Header, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, b.base.String()+pathAndQuery, reader)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"X-Request-Id", "X-Context"} {
		if v := header.Get(name); v != "" {
			request.Header.Set(name, v)
		}
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set(HeaderLoop, b.g.cfg.Self)
	response, err := b.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, MaxRead+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(answer) > MaxRead:
		return nil, nil, fmt.Errorf("the answer is longer than %d bytes", MaxRead)
	case response.StatusCode < 200 || response.StatusCode > 299:
		return nil, nil, &errStatus{response.StatusCode, string(answer)}
	}
	return answer, response.Header, nil
}
