package messages

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const root = "../../.."

// variable are the files whose warnings have texts that are made at run time, with the
// number of such calls, and why. Their lines have no number.
var variable = map[string]struct {
	calls int
	why   string
}{
	"agent/reconcile.go":                      {1, "one of several watches broke; its name is in the text"},
	"agent/varpd/daemon.go":                   {1, "the state of the daemon in words"},
	"agent/varpd/shootdown.go":                {1, "which server, in words"},
	"api/auth/tlsgate/keeper.go":              {1, "what is wrong with a file, kept until it is said"},
	"api/client/client.go":                    {1, "a server's Warning header"},
	"api/triton/gateway/follow.go":            {2, "begins with the name of the old service"},
	"api/triton/gateway/forward.go":           {1, "begins with the name of the old service"},
	"api/triton/gateway/gateway.go":           {1, "begins with the name of the old service"},
	"api/triton/gateway/intake.go":            {1, "begins with the name of the old service"},
	"api/triton/gateway/outflow.go":           {2, "begins with the name of the old service"},
	"api/triton/gateway/servers.go":           {1, "begins with the name of the old service"},
	"api/triton/gateway/vms.go":               {1, "begins with the name of the old service"},
	"cmd/rutter/serve/server.go":              {1, "a warning of /readyz?verbose"},
	"cmd/rutter/serve/serviceaddress.go":      {1, "a warning of /readyz?verbose"},
	"cmd/rutter/varpdcmd/varpd.go":            {1, "what is missing, in words"},
	"raftstore/internal/hashilog/hashilog.go": {2, "a line of Raft's library"},
}

// notLogged are methods that are called Warn or Error and write no log.
func notLogged(path string, s *ast.SelectorExpr) bool {
	on, _ := s.X.(*ast.Ident)
	return on != nil && (on.Name == "http" || on.Name == "backend" || on.Name == "t") || strings.Contains(path, "/sourcetest/")
}

// warning is a call that logs a warning or an error.
type warning struct{ where, text string }

// warnings finds the calls in the product's source, and how many of each file have no text.
func warnings(t *testing.T) (all []warning, without map[string]int) {
	t.Helper()
	without = map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if d.IsDir() && (rel == "integration" || rel == "scripts" || strings.HasPrefix(d.Name(), ".git") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || notLogged(rel, s) {
				return true
			}
			at, logs := map[string]int{"Warn": 0, "Error": 0, "WarnContext": 1, "ErrorContext": 1, "Log": 2}[s.Sel.Name]
			if !logs || len(call.Args) <= at {
				return true
			}
			if text, ok := call.Args[at].(*ast.BasicLit); ok {
				unquoted, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, warning{files.Position(call.Pos()).String(), unquoted})
			} else {
				without[rel]++
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, without
}

// Each warning and error in the source has a number and words for operators, and each
// number a warning.
func TestEveryWarningHasANumber(t *testing.T) {
	all, without := warnings(t)
	used := map[string]bool{}
	for _, w := range all {
		if used[w.text] = true; byText[w.text].Number == 0 {
			t.Errorf("%s: %q has no number: add it to the table with the next one, and what an operator is to do", w.where, w.text)
		}
	}
	for path, n := range without {
		if variable[path].calls != n {
			t.Errorf("%s: %d warnings with texts made at run time, %d are known: give them a constant text and attributes", path, n, variable[path].calls)
		}
	}
	numbers, texts, most := map[int]bool{}, map[string]bool{}, 0
	for _, s := range sections {
		for _, m := range s.messages {
			if numbers[m.Number] || texts[m.Text] || m.Number < 1 || m.Do == "" {
				t.Errorf("%s %q: number or text twice, or nothing to do", m.ID(), m.Text)
			}
			if !used[m.Text] {
				t.Errorf("%s %q is logged nowhere: remove it, and do not use its number again", m.ID(), m.Text)
			}
			numbers[m.Number], texts[m.Text], most = true, true, max(most, m.Number)
		}
	}
	if len(all) < 150 || most < 184 {
		t.Errorf("%d warnings found, %d is the last number: the test reads the source wrongly", len(all), most)
	}
}

func TestPage(t *testing.T) {
	path := filepath.Join(root, "docs", "messages.md")
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(path, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != page() {
		t.Errorf("%s is not as the table has it (%v): RUTTER_WRITE=1 go test ./cmd/rutter/messages", path, err)
	}
}

// clock is a clock that tests move.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func newLogger(c *clock) (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	plain := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{}
		}
		return a
	}})
	return slog.New(New(plain, c.now)), &out
}

func TestNumbers(t *testing.T) {
	logger, out := newLogger(&clock{time.Unix(1e9, 0)})
	logger.With("server", "s1").Warn("clock alarm", "alarm", "far")
	logger.Info("clock alarm")
	logger.Error("of another program")
	want := fmt.Sprintf("level=WARN msg=\"clock alarm\" server=s1 alarm=far id=%s\nlevel=INFO msg=\"clock alarm\"\nlevel=ERROR msg=\"of another program\"\n", byText["clock alarm"].ID())
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

// A text that is repeated is written at first, then at a slow pace, and what was left out
// is counted; other texts do not wait for it.
func TestRepeats(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	logger, out := newLogger(c)
	before := suppressed.Load()
	for i := range 1000 {
		logger.With("n", i).Warn("upkeep of the log")
	}
	if n := strings.Count(out.String(), "\n"); n != burst {
		t.Errorf("%d lines at once, want %d", n, burst)
	}
	logger.Error("the store stops")
	if !strings.Contains(out.String(), "the store stops") {
		t.Error("another text was left out")
	}
	out.Reset()
	c.Time = c.Add(every)
	logger.Warn("upkeep of the log")
	logger.Warn("upkeep of the log")
	if got := strings.Split(strings.TrimSpace(out.String()), "\n"); len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprint("suppressed=", 1000-burst)) {
		t.Errorf("%v after got %q", every, got)
	}
	if n := suppressed.Load() - before; n != 1000-burst+1 {
		t.Errorf("%d counted", n)
	}
	out.Reset()
	c.Time = c.Add(-time.Hour) // the clock is set back: it is not silent for an hour
	logger.Warn("upkeep of the log")
	c.Time = c.Add(every)
	logger.Warn("upkeep of the log")
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines after the clock was set back, want 1", n)
	}
}

// Texts without end, as those of other programs, take no memory without end.
func TestTextsAreBounded(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	h := New(slog.DiscardHandler, c.now)
	for i := range 5 * maxTexts {
		h.limits.take(fmt.Sprint("text ", i), "")
	}
	if n := len(h.limits.texts); n > maxTexts+1 {
		t.Errorf("%d texts are kept", n)
	}
	if !slices.ContainsFunc([]string{"text 0", "text 1"}, func(s string) bool { return h.limits.texts[s] != nil }) {
		t.Error("the first texts are not counted apart")
	}
}

// A compute node that repeats a text without end hides neither that text about other nodes,
// nor any text of the table, however many texts of its own it makes.
func TestOneHidesNoOther(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	logger, out := newLogger(c)
	const text = "a compute node is in trouble"
	for range 1000 {
		logger.Warn(text, "cn", "liar")
	}
	for i := range 3 * maxNodes {
		logger.Warn(text, "cn", fmt.Sprint("honest", i))
		logger.Warn(text, "cn", "liar")
	}
	if n := strings.Count(out.String(), "cn=liar"); n != burst {
		t.Errorf("%d lines of the one that repeats, want %d", n, burst)
	}
	if n := strings.Count(out.String(), "cn=honest"); n != maxNodes-1 || !strings.Contains(out.String(), "cn=honest0 id=") {
		t.Errorf("%d lines of others, want %d", n, maxNodes-1)
	}
	c.Time = c.Add(nodeEvery)
	out.Reset()
	for range burst + nodeEvery/every + 1 {
		logger.Warn(text, "cn", "liar")
	}
	logger.Warn(text, "cn", "honest again")
	if !strings.Contains(out.String(), "honest again") {
		t.Error("after a minute the text is left out about a node of which nothing was written")
	}
	for i := range 5 * maxTexts {
		logger.Warn(fmt.Sprint("text ", i))
	}
	out.Reset()
	if logger.Warn("clock alarm"); !strings.Contains(out.String(), "clock alarm") {
		t.Error("a text of the table is left out, since many others were logged")
	}
}

// page is docs/messages.md.
func page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		for _, m := range s.messages {
			fmt.Fprintf(&b, "\n### %s\n\n`%s`\n\n%s\n", m.ID(), m.Text, m.Do)
		}
	}
	return b.String()
}

const pageHead = `# Messages of the logs

<!-- Made from cmd/rutter/messages by RUTTER_WRITE=1 go test ./cmd/rutter/messages; do not edit. -->

Each warning and error of servers, agents and varpd has a number, the attribute id of its
line: id=RT012 is the heading RT012 here, and ` + "`rutter explain RT012`" + ` prints the same. The attributes beside it name the node, the server
or the file, and the error. Lines of Raft's library have part=raft and no number.

A message that is repeated is written at most 20 times at once and then once every two
seconds; beyond that, once a minute about each of up to 64 compute nodes (cn=UUID). The next
line that is written has suppressed=N, the number of those that were not. rutter_log_suppressed_total counts them all. log-format = "json" in the settings writes
lines of JSON in place of text.
`
