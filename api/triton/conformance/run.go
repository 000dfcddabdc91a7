package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Limits of the runner towards a server that may be hostile.
const (
	DefaultTimeout = 20 * time.Second // for one answer, body included
	MaxAnswer      = 16 << 20         // bytes of one answer's body
	maxHeader      = 64 << 10         // bytes of one answer's header
	repeatPause    = 50 * time.Millisecond
)

// maxSilent is how many answers in a row may not come before the server is given up.
const maxSilent = 3

// ErrSilent: no answer of a server could be read, several times in a row.
var ErrSilent = errors.New("conformance: no answer of the server can be read")

// ErrWrites: a method other than GET and HEAD was kept from a server that is only read.
var ErrWrites = errors.New("conformance: only GET and HEAD are sent to this server")

// Runner sends rows to the servers of one installation, one at a time. It follows no
// redirect and uses no proxy.
type Runner struct {
	bases    map[Service]string
	readOnly bool
	client   *http.Client
	objects  int   // that one list may have
	silent   int   // answers in a row that did not come
	last     error // of the last of them
}

// NewRunner makes a runner for these base URLs. A row of a service without one is skipped.
// A runner that is read-only sends nothing but GET and HEAD, and skips all other rows.
// The timeout bounds one answer, its body included; 0 means DefaultTimeout.
func NewRunner(bases map[Service]string, readOnly bool, timeout time.Duration) (*Runner, error) {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	r := &Runner{bases: map[Service]string{}, readOnly: readOnly, objects: MaxObjects}
	for service, base := range bases {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("the URL %q of %s: want one such as http://napi.example.com", base, service)
		}
		r.bases[service] = strings.TrimSuffix(base, "/")
	}
	transport := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: timeout}).DialContext,
		MaxResponseHeaderBytes: maxHeader, DisableCompression: true, MaxConnsPerHost: 1, IdleConnTimeout: time.Minute,
	}
	var trip http.RoundTripper = transport
	if readOnly {
		trip = readsOnly{transport}
	}
	r.client = &http.Client{
		Transport: trip, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return r, nil
}

// Close closes the connections.
func (r *Runner) Close() { r.client.CloseIdleConnections() }

// readsOnly is where a write would leave this program: it does not.
type readsOnly struct{ *http.Transport }

func (t readsOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Body != nil && r.Body != http.NoBody {
		return nil, fmt.Errorf("%w: not %s", ErrWrites, r.Method)
	}
	return t.Transport.RoundTrip(r)
}

// emptyBody stands for the body of an answer that has none.
type emptyBody struct{}

// answer is what a server answered.
type answer struct {
	status int
	header http.Header
	body   any // JSON, or emptyBody
}

// Run runs the groups in order. It returns an error if ctx has ended, or with ErrSilent if
// a server does not answer at all; what servers answer wrongly is in the report.
func (r *Runner) Run(ctx context.Context, groups []*Group) (*Report, error) {
	report := &Report{}
	for _, g := range groups {
		r.runGroup(ctx, g, report)
		if err := r.ended(ctx); err != nil {
			return report, err
		}
	}
	return report, nil
}

// ended says why nothing more is sent.
func (r *Runner) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.silent >= maxSilent {
		return fmt.Errorf("%w: %s", ErrSilent, ascii(r.last.Error(), maxShown))
	}
	return nil
}

func (r *Runner) runGroup(ctx context.Context, g *Group, report *Report) {
	have := values{}
	for name, v := range g.Values {
		have[name] = v
	}
	if r.bases[g.Service] == "" {
		return
	}
	failed := ""
	if !r.readOnly {
		for _, row := range g.Setup {
			result := r.runRow(ctx, g, row, have)
			if result.Outcome != Holds {
				result.ID = g.Name + " setup, line " + fmt.Sprint(row.line)
				result.Outcome = Differs
				report.add(result)
				failed = "a row of the group's setup failed"
				break
			}
		}
	}
	for _, row := range g.Rows {
		switch {
		case r.ended(ctx) != nil:
			return
		case r.readOnly && !row.ReadOnly:
			continue
		case failed != "":
			report.add(Result{ID: row.ID, Source: row.Source, Shows: row.Shows, Call: row.Call, Outcome: Skipped, Why: failed})
			continue
		}
		report.add(r.runRow(ctx, g, row, have))
	}
}

// runRow runs one row, and takes its values.
func (r *Runner) runRow(ctx context.Context, g *Group, row *Row, have values) Result {
	result := Result{ID: row.ID, Source: row.Source, Shows: row.Shows, Call: row.Call, Departure: row.Departure, Outcome: Skipped}
	base := r.bases[row.service(g)]
	if base == "" {
		result.Why = fmt.Sprintf("no URL of %s is given", row.service(g))
		return result
	}
	for _, name := range row.uses() {
		if _, ok := have[name]; !ok {
			result.Why = fmt.Sprintf("there is no %s here", strings.ReplaceAll(name, "_", " "))
			return result
		}
	}
	result.Call = row.Method() + " " + ascii(have.target(row), maxShown)
	var a *answer
	until := time.Now().Add(time.Duration(row.Within) * time.Second)
	for {
		var err error
		if a, err = r.send(ctx, base, row, have); err != nil {
			result.Outcome, result.Differences = Differs, []string{ascii(err.Error(), maxShown)}
		} else {
			result.Outcome, result.Differences = judge(row, a, have)
		}
		if result.Outcome != Differs || !time.Now().Before(until) {
			break
		}
		select {
		case <-time.After(repeatPause):
		case <-ctx.Done():
			return result
		}
	}
	if row.Pending {
		result.Outcome = map[bool]Outcome{true: Pending, false: Unmarked}[result.Outcome == Differs]
	}
	if a == nil {
		return result
	}
	result.answer = a
	if err := have.capture(row, a.header, a.body); err != nil && result.Outcome == Holds && !r.readOnly {
		result.Outcome, result.Differences = Differs, []string{err.Error()}
	}
	return result
}

// judge compares an answer with what is documented and, where Rutter departs, with that.
func judge(row *Row, a *answer, have values) (Outcome, []string) {
	var d differences
	row.Expect.judge(a, have, &d)
	if len(d) == 0 {
		return Holds, nil
	}
	if row.Ours != nil {
		var ours differences
		if row.Ours.judge(a, have, &ours); len(ours) == 0 {
			return Departs, d
		}
	}
	return Differs, d
}

func (e *Expect) judge(a *answer, have values, d *differences) {
	if !slices.Contains(e.Status, a.status) {
		d.add("", "status %d, want %v: %s", a.status, []int(e.Status), shown(a.body))
		return // the rest would say the same again
	}
	for _, name := range sortedKeys(e.Got) {
		var got any
		if list := a.header.Values(name); len(list) > 0 {
			got = strings.Join(list, ", ")
		}
		if e.Got[name] == "<absent>" {
			if got != nil {
				d.add("", "it has the header %s: %s", name, shown(got))
			}
			continue
		}
		match(headerForm(have.wanted(e.Got[name])), headerValue(e.Got[name], got), "header "+name, d)
	}
	if e.Code != "" {
		match(e.refusal(have), a.body, "", d)
	} else if e.Answer != nil {
		match(have.wanted(e.Answer), a.body, "", d)
	}
}

// headerForm turns a value that was a number into the text that a header has.
func headerForm(want any) any {
	if n, ok := want.(json.Number); ok {
		return n.String()
	}
	return want
}

// headerValue is a header's text, or its number if that is what is wanted.
func headerValue(want string, got any) any {
	text, ok := got.(string)
	if form, is := formOf(want); ok && is && (form == "integer" || form == "number" || strings.HasPrefix(form, "at ")) && jsonNumber.MatchString(text) {
		return json.Number(text)
	}
	return got
}

// refusal is the matcher of the body of a refusal: code, message and errors, and no more.
func (e *Expect) refusal(have values) map[string]any {
	want := map[string]any{keyOnly: true, "code": e.Code, "message": "<string>"}
	if e.Message != nil {
		want["message"] = have.wanted(e.Message)
	}
	if e.Errors == nil {
		return want
	}
	elements := make([]any, len(e.Errors))
	for i, element := range e.Errors {
		elements[i] = have.wanted(element)
		if m, ok := elements[i].(map[string]any); ok {
			m[keyOnly] = true
		}
	}
	want["errors"] = elements
	return want
}

// send sends a row and reads the answer within the limits.
func (r *Runner) send(ctx context.Context, base string, row *Row, have values) (*answer, error) {
	var body io.Reader
	switch {
	case row.Raw != nil:
		body = strings.NewReader(have.text(*row.Raw, func(s string) string { return s }))
	case row.Body != nil:
		b, err := json.Marshal(have.fill(row.Body))
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, row.Method(), base+have.target(row), body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range row.Headers {
		request.Header.Set(name, have.text(value, func(s string) string { return s }))
	}
	return r.receive(request)
}

// receive makes one request, and counts the answers that do not come.
func (r *Runner) receive(request *http.Request) (*answer, error) {
	a, err := r.exchange(request)
	if err != nil {
		r.silent, r.last = r.silent+1, err
		return nil, err
	}
	r.silent = 0
	return a, nil
}

// exchange makes one request. A body that is no JSON, or too large, is an error.
func (r *Runner) exchange(request *http.Request) (*answer, error) {
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(io.LimitReader(response.Body, MaxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("status %d, and then its body: %w", response.StatusCode, err)
	}
	if len(b) > MaxAnswer {
		return nil, fmt.Errorf("status %d, and a body over %d bytes", response.StatusCode, MaxAnswer)
	}
	a := &answer{status: response.StatusCode, header: response.Header, body: emptyBody{}}
	if len(b) == 0 {
		return a, nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&a.body); err != nil || d.More() {
		if err := a.turnsAway(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("status %d, and a body that is not JSON: %s", response.StatusCode, ascii(string(b[:min(len(b), maxShown)]), maxShown))
	}
	return a, nil
}
