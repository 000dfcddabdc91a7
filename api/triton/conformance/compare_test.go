package conformance

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const twoLists = `rows:
  - {id: napi-test.any, source: s, shows: w, read-only: true, call: GET /nets, status: 200, capture: {net: 0.uuid}}
  - {id: napi-test.get, source: s, shows: w, read-only: true, call: GET /nets/$(net), status: 200}
  - {id: napi-test.none, source: s, shows: w, read-only: true, call: GET /none, status: 404, code: ResourceNotFound}
compare:
  - {path: /nets, key: uuid, paged: true, except: [seen]}
  - {path: /nets/$(each)/ips, each: /nets, key: ip, skip: {free: true}}
`

// cloud serves the lists above, in the order of the texts.
func cloud(t *testing.T, nets, ips []string, text string) string {
	return served(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/nets":
			fmt.Fprintf(w, "[%s]", strings.Join(nets, ","))
		case strings.HasSuffix(r.URL.Path, "/ips"):
			fmt.Fprintf(w, "[%s]", strings.Join(ips, ","))
		case r.URL.Path == "/none":
			w.WriteHeader(404)
			fmt.Fprintf(w, `{"code": "ResourceNotFound", "message": %q}`, text)
		default:
			io.WriteString(w, `{}`)
		}
	})
}

// The same objects in another order, with other times of receipt, are the same; each field
// that differs, and each object that one server lacks, is named.
func TestCompare(t *testing.T) {
	a := cloud(t, []string{`{"uuid": "n1", "mtu": 1500, "seen": 1}`, `{"uuid": "n2", "mtu": 9000}`}, []string{`{"ip": "10.0.0.1"}`, `{"ip": "10.0.0.9", "free": true}`}, "not found")
	same := cloud(t, []string{`{"mtu": 9000.0, "uuid": "n2"}`, `{"uuid": "n1", "mtu": 1500, "seen": 2}`}, []string{`{"ip": "10.0.0.1"}`}, "not found")
	other := cloud(t, []string{`{"uuid": "n1", "mtu": 1501, "name": "\u001b[2J"}`, `{"uuid": "n3"}`}, []string{`{"ip": "10.0.0.2"}`}, "nothing here")
	groups := parsed(t, twoLists)
	compare := func(b string) *Comparison {
		t.Helper()
		c, err := Compare(t.Context(), runnerOf(t, a, true, 0), runnerOf(t, b, true, 0), groups)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := compare(same); !c.Same() || c.Objects["/nets"] != 2 || c.Objects["/nets/$(each)/ips"] != 2 || c.Calls != 3 {
		t.Errorf("the same cloud: got %+v", c)
	}
	var got []string
	for _, d := range compare(other).Differences {
		got = append(got, strings.Join([]string{d.Where, d.Key, d.Field, d.A, d.B}, "|"))
	}
	want := []string{
		`napi-test.none (GET /none)||message|"not found"|"nothing here"`,
		`/nets|n1|mtu|1500|1501`, `/nets|n1|name|(absent)|"\u001b[2J"`, `/nets|n2||has it|(absent)`, `/nets|n3||(absent)|has it`,
		`/nets/n1/ips|10.0.0.1||has it|(absent)`, `/nets/n1/ips|10.0.0.2||(absent)|has it`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Pages without end, and objects without a key, end the comparison with an error.
func TestCompareHostileLists(t *testing.T) {
	same := strings.TrimSuffix(strings.Repeat(`{"uuid": "n1"},`, pageLimit), ",")
	offset := 0
	for name, test := range map[string]struct {
		page func() string
		want string
	}{
		"the same page again": {func() string { return "[" + same + "]" }, "has no object that was not on an earlier one"},
		"pages too long":      {func() string { return "[" + same + `,{"uuid": "n2"}]` }, "was to have 1000 at most"},
		"no key":              {func() string { return `[{"name": "\u001b"}]` }, `an object has no uuid: {"name":"\u001b"}`},
		"no objects":          {func() string { return `[["a"]]` }, "want an object"},
		"no list":             {func() string { return `{"a": 1}` }, "want a list"},
		"new objects without end": {func() string {
			var b strings.Builder
			for range pageLimit {
				offset++
				fmt.Fprintf(&b, `{"uuid":%d},`, offset)
			}
			return "[" + strings.TrimSuffix(b.String(), ",") + "]"
		}, "more than 3000 objects"},
	} {
		t.Run(name, func(t *testing.T) {
			url := served(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, test.page()) })
			r := runnerOf(t, url, true, 0)
			r.objects = 3000
			groups := parsed(t, "rows:\n  - {id: napi-test.a, source: s, shows: w, read-only: true, call: HEAD /a, status: 200}\ncompare: [{path: /nets, key: uuid, paged: true}]\n")
			if _, err := Compare(t.Context(), r, r, groups); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// A server is known by the list that it has.
func TestDetect(t *testing.T) {
	for _, test := range []struct {
		path string
		want Service
	}{{"/networks", NAPI}, {"/servers", CNAPI}, {"/vms", VMAPI}, {"/users", ""}} {
		url := served(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == test.path {
				io.WriteString(w, "[]")
				return
			}
			w.WriteHeader(404)
		})
		r, err := NewRunner(map[Service]string{NAPI: url, CNAPI: url, VMAPI: url}, true, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Detect(t.Context())
		r.Close()
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("a server with %s: got %q %v, want %q", test.path, got, err, test.want)
		}
	}
}

func TestWrongURLs(t *testing.T) {
	for _, url := range []string{"", "napi.example.com", "ftp://a", "http://", "http://a?b=c", "http://a#b", "http://a\x7f"} {
		if _, err := NewRunner(map[Service]string{NAPI: url}, true, 0); err == nil || !strings.Contains(err.Error(), "want one such as http://napi.example.com") {
			t.Errorf("%q: got %v, want it refused", url, err)
		}
	}
}
