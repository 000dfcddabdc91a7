package logcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/log"
)

func fileOf(t *testing.T, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "changes.db"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A log that went through files is the same log, and its folder the same bytes.
func TestExportAndImport(t *testing.T) {
	path, entries := exported(t, 40)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	printedBy(t, "import", "--to", in("whole"), path)
	printedBy(t, "export", "--data", in("whole"), "--after", "20", in("end.rlog"))
	printedBy(t, "replay", "--to", in("begin"), "--until", "30", path)
	printedBy(t, "import", "--to", in("joined"), "--onto", in("begin"), in("end.rlog"))
	printedBy(t, "replay", "--to", in("again"), in("joined"))
	want := fileOf(t, in("whole"))
	for _, name := range []string{"joined", "again"} {
		if !bytes.Equal(fileOf(t, in(name)), want) {
			t.Errorf("%s is another file than whole", name)
		}
	}
	if got := printedBy(t, "verify", in("joined")); !strings.Contains(got, fmt.Sprintf("whole; %d entries after 0", len(entries))) {
		t.Errorf("verify: %s", got)
	}
	for _, from := range []string{path, in("whole")} {
		if got := printedBy(t, "state", "--data", from, "--at", "2"); !strings.Contains(got, `ip="10.0.0.2"`) {
			t.Errorf("state of %s: %s", from, got)
		}
	}
	for _, args := range []string{"history", "history nic", "blame nic"} { // by the index, and without
		at := strings.Fields(args)
		ask := func(from string) string {
			return printedBy(t, append([]string{at[0], "--data", from}, append(at[1:], mac.String())...)...)
		}
		if got, want := ask(in("joined")), ask(path); got != want || got == "" {
			t.Errorf("%s of a folder:\n%s\nwant\n%s", args, got, want)
		}
	}
	for _, test := range []struct{ args, want string }{
		{"import --to " + in("x") + " " + in("end.rlog"), "--onto"},
		{"import --to " + in("whole") + " " + path, "has a changes.db already"},
		{"replay " + in("end.rlog"), "--onto"},
	} {
		if err := run(t.Context(), io.Discard, strings.Fields(test.args)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(in("bad.rlog"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), io.Discard, []string{"import", "--to", in("bad"), in("bad.rlog")}); err == nil {
		t.Error("a damaged file was imported")
	}
	if _, err := os.Stat(filepath.Join(in("bad"), "changes.db")); err == nil {
		t.Error("a part of a damaged file was left")
	}
}

// announced hands on the first line that is written.
type announced chan string

func (a announced) Write(b []byte) (int, error) {
	select {
	case a <- string(b):
	default:
	}
	return len(b), nil
}

// A log that is served answers as it was, has a console, and takes no change.
func TestReplayIsServedReadOnly(t *testing.T) {
	path, _ := exported(t, 40)
	ctx, stop := context.WithCancel(t.Context())
	line, ended := make(announced, 1), make(chan error, 1)
	go func() { ended <- run(ctx, line, []string{"replay", "--serve", "127.0.0.1:0", "--until", "30", path}) }()
	var url string
	select {
	case text := <-line:
		url = text[strings.Index(text, "http://"):strings.Index(text, "/console/")]
	case err := <-ended:
		t.Fatal(err)
	}
	ask := func(method, path string, want int) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != want {
			t.Errorf("%s %s: %d %v %s, want %d", method, path, answer.StatusCode, err, b, want)
		}
		return string(b)
	}
	if got := ask("GET", "/nics/90:b8:d0:00:00:01", 200); !strings.Contains(got, `"ip":"10.0.0.2"`) {
		t.Errorf("nic: %s", got)
	}
	if got := ask("GET", "/nics/90:b8:d0:00:00:01?at=1", 200); !strings.Contains(got, `"ip":"10.0.0.1"`) {
		t.Errorf("nic at 1: %s", got)
	}
	if got := ask("GET", "/log?after=0", 200); strings.Count(got, "\n") != 30 {
		t.Errorf("log: %d lines, want 30", strings.Count(got, "\n"))
	}
	if got := ask("GET", "/log/history?kind=nic&object=90:b8:d0:00:00:01", 200); strings.Count(got, "\n") != 30 {
		t.Errorf("history: %d lines, want 30", strings.Count(got, "\n"))
	}
	var status struct{ Head log.Cursor }
	if err := json.Unmarshal([]byte(ask("GET", "/status", 200)), &status); err != nil || status.Head.Seq != 30 {
		t.Errorf("head %v, %v", status.Head, err)
	}
	ask("GET", "/console/", 200)
	ask("GET", "/nics/90:b8:d0:00:00:01?at=31", 409)
	ask("POST", "/nics", 403)
	ask("DELETE", "/nics/90:b8:d0:00:00:01", 403)
	ask("POST", "/changes", 403)
	ask("GET", "/feed", 403)
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
