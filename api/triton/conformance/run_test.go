package conformance

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// served runs a handler and returns its URL.
func served(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func runnerOf(t *testing.T, url string, readOnly bool, timeout time.Duration) *Runner {
	t.Helper()
	r, err := NewRunner(map[Service]string{NAPI: url}, readOnly, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// parsed is a group of rows, given as lines after `rows:`.
func parsed(t *testing.T, rest string) []*Group {
	t.Helper()
	g, err := Parse("napi-test", []byte("group: napi-test\nservice: napi\ntitle: t\n"+rest))
	if err != nil {
		t.Fatal(err)
	}
	return []*Group{g}
}

func one(t *testing.T, r *Runner, rest string) Result {
	t.Helper()
	report, err := r.Run(t.Context(), parsed(t, rest))
	if err != nil || len(report.Results) != 1 {
		t.Fatalf("got %v %+v, want one result", err, report)
	}
	return report.Results[0]
}

const getA = "rows:\n  - {id: napi-test.a, source: s, shows: w, read-only: true, call: GET /a, status: 200, answer: {a: <text>}}\n"

// A server that is only read gets nothing but GET and HEAD, whatever the rows say: also if
// one that writes were marked read-only.
func TestReadOnlyNeverWrites(t *testing.T) {
	var writes atomic.Int32
	url := served(t, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); r.Method != http.MethodGet && r.Method != http.MethodHead || len(b) > 0 {
			writes.Add(1)
			t.Errorf("the server was sent %s %s", r.Method, r.URL)
		}
		io.WriteString(w, `[{"uuid": "1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0001", "name": "a", "ip": "a", "mac": "a", "id": "a"}]`)
	})
	groups, err := All()
	if err != nil {
		t.Fatal(err)
	}
	bases := map[Service]string{NAPI: url, CNAPI: url, VMAPI: url}
	r, err := NewRunner(bases, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	report, err := r.Run(t.Context(), groups)
	if err != nil || len(report.Results) < 5 {
		t.Fatalf("got %v and %d rows, want those that are read-only", err, len(report.Results))
	}
	if _, err := Compare(t.Context(), r, r, groups); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		body := "b"
		marked := &Row{ID: "napi-test.w", Call: method + " /a", ReadOnly: true, Raw: &body, Expect: Expect{Status: Statuses{200}}}
		result := r.runRow(t.Context(), &Group{Service: NAPI}, marked, values{})
		if result.Outcome != Differs || !strings.Contains(strings.Join(result.Differences, " "), ErrWrites.Error()) {
			t.Errorf("%s: got %+v, want it to be kept back", method, result)
		}
	}
	if _, err := Compare(t.Context(), runnerOf(t, url, false, 0), r, groups); !errors.Is(err, ErrWrites) {
		t.Errorf("a comparison by a runner that writes: got %v", err)
	}
	if writes.Load() > 0 {
		t.Errorf("%d writes", writes.Load())
	}
}

// A body without end is cut off at the limit.
func TestEndlessBody(t *testing.T) {
	block := strings.Repeat(" ", 1<<16)
	url := served(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := io.WriteString(w, block); err != nil {
				return
			}
		}
	})
	result := one(t, runnerOf(t, url, true, time.Minute), getA)
	if result.Outcome != Differs || !strings.Contains(result.Differences[0], "a body over") {
		t.Errorf("got %+v, want a body over the limit", result)
	}
}

// A server that sends a byte now and then does not hold the caller longer than the time for
// one answer, and is given up after a few.
func TestSlowDrip(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	url := served(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(10 * time.Millisecond):
			case <-r.Context().Done():
				return
			case <-stop:
				return
			}
		}
	})
	r := runnerOf(t, url, true, 100*time.Millisecond)
	var rows strings.Builder
	for i := range 50 {
		fmt.Fprintf(&rows, "  - {id: napi-test.a%d, source: s, shows: w, read-only: true, call: GET /a, status: 200}\n", i)
	}
	report, err := r.Run(t.Context(), parsed(t, "rows:\n"+rows.String()))
	if !errors.Is(err, ErrSilent) || len(report.Results) != maxSilent {
		t.Errorf("got %v after %d rows, want the server given up after %d", err, len(report.Results), maxSilent)
	}
}

// A redirect is an answer like any other: where it leads is not asked.
func TestRedirectIsNotFollowed(t *testing.T) {
	other := served(t, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	url := served(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other+"/inside", http.StatusFound) })
	result := one(t, runnerOf(t, url, true, 0), "rows:\n  - {id: napi-test.a, source: s, shows: w, call: HEAD /a, read-only: true, status: 200}\n")
	if result.Outcome != Differs || !strings.Contains(result.Differences[0], "status 302, want [200]") {
		t.Errorf("got %+v, want the status 302", result)
	}
}

// Headers without end are refused.
func TestEndlessHeader(t *testing.T) {
	url := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 2*maxHeader))
		io.WriteString(w, `{"a": "b"}`)
	})
	result := one(t, runnerOf(t, url, true, 0), getA)
	if result.Outcome != Differs || !strings.Contains(result.Differences[0], "server response headers exceeded") {
		t.Errorf("got %+v, want the headers refused", result)
	}
}

// What a server answers cannot move a terminal's cursor, nor hide text, wherever it stands:
// in values, keys, headers, texts of errors, bodies that are not JSON, and the values that go
// into paths.
func TestControlCharacters(t *testing.T) {
	const evil = "\x1b[2J\u202e\u009b\x07\r\n"
	bodies := []string{
		`{"a": "` + `\u001b[2J\u202e\u009b` + `", "\u001b[2J\u202e": 1}`, `"\u001b[2J"`, "not JSON " + evil, `[{"a": "\u001b\u202e"}]`, `{"a": ["` + "\u202e\u009b" + `"]}`,
	}
	for _, body := range bodies {
		url := served(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-Evil"] = []string{"\u202e\u009b[2J"}
			io.WriteString(w, body)
		})
		report, err := runnerOf(t, url, true, 0).Run(t.Context(), parsed(t, `rows:
  - {id: napi-test.a, source: s, shows: w, read-only: true, call: GET /a, status: 201, answer: {b: <text>, a: x, <only>: true}, answer-headers: {X-Evil: y}, capture: {v: a}}
  - {id: napi-test.b, source: s, shows: w, read-only: true, call: GET /$(v), query: {q: $(v)}, status: 201}
`))
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range report.Results {
			for _, text := range append(result.Differences, result.Call, result.Why) {
				for _, r := range text {
					if r < ' ' || r > '~' {
						t.Errorf("body %q: %q has %U", body, text, r)
					}
				}
			}
		}
	}
}

// A value of a server cannot lead the next call to another path.
func TestCapturedValueStaysInItsSegment(t *testing.T) {
	var paths []string
	url := served(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.RequestURI)
		io.WriteString(w, `[{"uuid": "../../etc?x=1#/y z"}]`)
	})
	_, err := runnerOf(t, url+"/base", true, 0).Run(t.Context(), parsed(t, `rows:
  - {id: napi-test.a, source: s, shows: w, read-only: true, call: GET /a, status: 200, capture: {v: 0.uuid}}
  - {id: napi-test.b, source: s, shows: w, read-only: true, call: GET /a/$(v)/b, status: 200}
`))
	want := "/base/a/..%2F..%2Fetc%3Fx=1%23%2Fy%20z/b"
	if err != nil || len(paths) != 2 || paths[1] != want {
		t.Errorf("got %v %q, want the second to be %q", err, paths, want)
	}
}

// Each outcome, by what the server answers and the row says.
func TestOutcomes(t *testing.T) {
	url := served(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refusal":
			w.WriteHeader(422)
			io.WriteString(w, `{"code": "InvalidParameters", "message": "m", "errors": [{"field": "a", "code": "Duplicate", "more": 1}]}`)
		case "/none":
			w.WriteHeader(204)
		default:
			io.WriteString(w, `{"a": "b", "n": 1500.0, "list": [{"id": 1}, {"id": 2}]}`)
		}
	})
	for row, want := range map[string]Outcome{
		"call: GET /a, status: 200, answer: {a: b, n: 1500, list: {<length>: 2, <each>: {id: <integer>}, <has>: [{id: 2}]}}":   Holds,
		"call: GET /a, status: 200, answer: {a: b, n: 1500, list: [{id: 1}, {id: <at least 2>}], <only>: true}":                Holds,
		"call: GET /a, status: 200, answer: {a: b, n: 1500, <only>: true}":                                                     Differs,
		"call: GET /a, status: 200, answer: {a: <one of x|y>}":                                                                 Differs,
		"call: GET /a, status: 200, answer: {a: <absent>}":                                                                     Differs,
		"call: GET /a, status: 200, answer: {z: <any>}":                                                                        Differs,
		"call: GET /a, status: 200, answer: {\"z?\": <any>, list: {<each>: <object>}}":                                         Holds,
		"call: GET /a, status: 200, answer: {list: {<has>: [{id: 3}]}}":                                                        Differs,
		"call: GET /a, status: 200, answer: {list: {<length>: <at most 1>}}":                                                   Differs,
		"call: GET /a, status: [201, 200], answer: {list: <list of object>}":                                                   Holds,
		"call: GET /none, status: 204, answer: <empty>":                                                                        Holds,
		"call: GET /a, status: 200, answer: <empty>":                                                                           Differs,
		"call: GET /none, status: 204, answer: <any>":                                                                          Differs,
		"call: GET /a, status: 200, answer-headers: {Content-Length: <integer>, X-None: <absent>}":                             Holds,
		"call: GET /a, status: 200, answer-headers: {X-None: <text>}":                                                          Differs,
		"call: GET /a, status: 200, capture: {v: 0.uuid}":                                                                      Differs,
		"call: GET /a, status: 404, code: X, departure: d, ours: {status: 200, answer: {a: b}}":                                Departs,
		"call: GET /a, status: 404, code: X, departure: d, ours: {status: 200, answer: {a: c}}":                                Differs,
		"call: GET /a, status: 404, code: X, pending: true":                                                                    Pending,
		"call: GET /a, status: 200, pending: true":                                                                             Unmarked,
		"call: GET /refusal, status: 422, code: InvalidParameters, errors: [{field: a, code: Duplicate, more: 1}]":             Holds,
		"call: GET /refusal, status: 422, code: InvalidParameters, errors: [{field: a, code: Duplicate}]":                      Differs,
		"call: GET /refusal, status: 422, code: InvalidParameters, message: m":                                                 Differs, // it has errors
		"call: GET /refusal, status: 422, code: InUse, errors: [{field: a, code: Duplicate, more: 1}]":                         Differs,
		"call: GET /refusal, status: 422, code: InvalidParameters, message: n, errors: [{field: a, code: Duplicate, more: 1}]": Differs,
	} {
		r := runnerOf(t, url, false, 0)
		if got := one(t, r, "rows:\n  - {id: napi-test.a, source: s, shows: w, "+row+"}\n"); got.Outcome != want {
			t.Errorf("%s: got %s %q, want %s", row, got.Outcome, got.Differences, want)
		}
	}
}

// A row whose answer comes late is repeated; one whose fixture fails is not run.
func TestWithinAndSetup(t *testing.T) {
	var asked atomic.Int32
	url := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fixture" {
			w.WriteHeader(500)
			io.WriteString(w, `{}`)
			return
		}
		fmt.Fprintf(w, `{"n": %d}`, asked.Add(1))
	})
	r := runnerOf(t, url, false, 0)
	if got := one(t, r, "rows:\n  - {id: napi-test.a, source: s, shows: w, call: GET /a, status: 200, answer: {n: 3}, within: 30}\n"); got.Outcome != Holds {
		t.Errorf("got %+v, want it to hold at the third time", got)
	}
	report, err := r.Run(t.Context(), parsed(t, "setup:\n  - {call: POST /fixture}\n"+getA))
	if err != nil || len(report.Results) != 2 || report.Results[0].Outcome != Differs || report.Results[1].Outcome != Skipped {
		t.Errorf("got %v %+v, want the fixture to differ and the row to be skipped", err, report)
	}
}
