package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

const small = `group: napi-small
service: napi
title: small
rows:
  - {id: napi-small.a, source: s, shows: w, call: GET /a, status: 200}
`

func TestEmbedded(t *testing.T) {
	groups, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) < 2 {
		t.Errorf("%d groups, want 2 or more", len(groups))
	}
}

// A mistake in a row is an error with the line and what to do, never a row that shows
// less than its author meant.
func TestParseRefuses(t *testing.T) {
	row := func(more string) string {
		return strings.Replace(small, "status: 200", "status: 200, "+more, 1)
	}
	for name, test := range map[string]struct{ file, want string }{
		"empty":              {"", "EOF"},
		"a key":              {small + "setpu: []\n", `line 6: the key "setpu" is not known`},
		"a key of a row":     {row("answr: {}"), `line 5: json: unknown field "answr"`},
		"a key twice":        {row("status: 201"), `"status" stands twice`},
		"a part twice":       {small + "title: more\n", `line 6: "title" stands twice`},
		"another name":       {strings.Replace(small, "group: napi-small", "group: napi-big", 1), "want the same name"},
		"service":            {strings.Replace(small, "service: napi", "service: papi", 1), "want one of [napi cnapi vmapi]"},
		"two documents":      {small + "---\n" + small, "more than one document"},
		"alias":              {strings.Replace(small, "shows: w", "shows: &x w, at: *x", 1), "anchors and aliases"},
		"tag":                {row("answer: !!binary aGFsbG8="), "tag !!binary"},
		"octal":              {row("answer: {mtu: 01500}"), "no number of JSON"},
		"infinite":           {row("answer: .inf"), "no number of JSON"},
		"method":             {strings.Replace(small, "GET /a", "GRAB /a", 1), "want METHOD /path"},
		"query in path":      {strings.Replace(small, "GET /a", `"GET /a?b=c"`, 1), "with the query in query"},
		"no status":          {strings.Replace(small, ", status: 200", "", 1), "want a status"},
		"status":             {strings.Replace(small, "status: 200", "status: 20", 1), "none of HTTP"},
		"no source":          {strings.Replace(small, "source: s, ", "", 1), "want id (napi-small.NAME), source and shows"},
		"foreign id":         {strings.Replace(small, "id: napi-small.a", "id: napi-other.a", 1), "want id (napi-small.NAME)"},
		"matcher":            {row("answer: {uuid: <uid>}"), "<uid> is no matcher"},
		"pattern":            {row(`answer: "<like (>"`), "missing closing )"},
		"list of":            {row("answer: <list of uid>"), "<uid> is no matcher"},
		"bound":              {row("answer: <at lest 5>"), "want <at least N>"},
		"mixed matcher":      {row("answer: {<each>: <uuid>, a: b}"), "none of a matcher"},
		"only":               {row("answer: {<only>: yes}"), "<only> is true or not there"},
		"refusal and answer": {row("code: InUse, answer: {}"), "a refusal has code"},
		"errors alone":       {row("errors: []"), "a refusal has code"},
		"body of GET":        {row("body: {}"), "neither with GET"},
		"writes read-only":   {strings.Replace(row("read-only: true"), "GET /a", "POST /a", 1), "read-only is for GET and HEAD"},
		"no value":           {row("query: {a: $(b)}"), "$(b) has no value"},
		"departs":            {row("departure: x"), "departure and ours come together"},
		"within":             {row("within: 31"), "within is 1 to 30"},
		"value of a write": {small + `  - {id: napi-small.b, source: s, shows: w, call: POST /a, status: 200, capture: {v: a}}
  - {id: napi-small.c, source: s, shows: w, read-only: true, call: GET /$(v), status: 200}
`, "comes from a row that is not read-only"},
		"setup with id": {small + "setup: [{id: napi-small.x, call: POST /a}]\n", "a row of setup has no id"},
		"compare":       {small + "compare: [{path: /a}]\n", "needs a path and a key"},
		"page":          {small + "compare: [{path: /a, key: b, page: 1001}]\n", "a page has 1 to 1000 objects"},
		"each":          {small + "compare: [{path: /a, key: b, each: /c}]\n", "each is the path of an earlier list"},
		"deep":          {row("answer: " + strings.Repeat("[", 40) + strings.Repeat("]", 40)), "more than 32 levels"},
		"long":          {small + strings.Repeat("# long\n", maxFile/7), "the limit is"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse("napi-small", []byte(test.file)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to have %q", err, test.want)
			}
		})
	}
	if _, err := Parse("napi-small", []byte(small)); err != nil {
		t.Errorf("the row without a mistake: %v", err)
	}
}

// Two groups cannot have a row of one id.
func TestIDsAreUnique(t *testing.T) {
	files := fstest.MapFS{"data/napi-small.yaml": {Data: []byte(small)}}
	twice := strings.Replace(small, "  - {id", "  - {id: napi-small.a, source: s, shows: w, call: GET /b, status: 200}\n  - {id", 1)
	if _, err := load(files); err != nil {
		t.Fatal(err)
	}
	files["data/napi-small.yaml"].Data = []byte(twice)
	if _, err := load(files); err == nil || !strings.Contains(err.Error(), "is also in napi-small.yaml") {
		t.Errorf("got %v, want the id twice", err)
	}
}

// Any bytes are read or refused, within the limits.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	names, err := filepath.Glob("data/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 900)]) // the fuzzer is slow to shorten what is long
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := Parse("napi-small", b)
		if err != nil {
			return
		}
		for _, r := range g.Rows {
			if r.ID == "" || len(r.Status) == 0 || r.Method() == "" {
				t.Errorf("a row was taken without what it needs: %+v", r)
			}
		}
	})
}
