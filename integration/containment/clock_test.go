package containment

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// drill moves a server's clock by what it writes for it into the folder of drills.
func drill(t *testing.T, folder, id string, by time.Duration) {
	t.Helper()
	pending := filepath.Join(folder, id+".new")
	if err := os.WriteFile(pending, []byte(by.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pending, filepath.Join(folder, id)); err != nil {
		t.Fatal(err)
	}
}

// createTag makes a NIC tag: a write of a client whose clock is right.
func createTag(ctx context.Context, c *client.Client, name string) error {
	_, err := c.Create(ctx, "/nic_tags", fmt.Appendf(nil, `{"name":%q}`, name))
	return err
}

// fetch gets a page of a server without TLS.
func fetch(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// awaits waits for a condition.
func awaits(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for ctx := patience(t); !holds(); {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// statusOf is what a server says of itself.
func statusOf(t *testing.T, c *bench.Cluster, s *bench.Server) client.Status {
	t.Helper()
	status, err := c.Client.StatusOf(patience(t), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// timeWithin is how far the log's time may be from this machine's clock: the bound,
// and what a loaded machine takes between a write and a look.
const timeWithin = 3*time.Second + 20*time.Second

// The leader's clock is moved, by an hour, a year or two minutes back: every write of
// clients whose clocks are right is taken, the log's time stays, the leadership goes to
// a server that is right, and status, /readyz?verbose and /metrics say what is wrong
// until it is right again; a restart with the wrong clock changes nothing of that.
func TestLeadersClockIsWrong(t *testing.T) {
	moves := []time.Duration{time.Hour}
	if os.Getenv("RUTTER_LONG") != "" {
		moves = append(moves, 365*24*time.Hour, -2*time.Minute, -30*24*time.Hour)
	}
	folder := t.TempDir()
	c := cluster(t, bench.Options{Flags: []string{"--drill-clock", folder}})
	for i, by := range moves {
		old, err := c.Leader(patience(t))
		if err != nil {
			t.Fatal(err)
		}
		write := func(name string) {
			t.Helper()
			if err := createTag(patience(t), c.Client, fmt.Sprintf("m%d_%s", i, name)); err != nil {
				t.Fatalf("clock of the leader moved by %v: %v", by, err)
			}
			status := statusOf(t, c, old)
			if off := time.Until(status.Time.Std()); off.Abs() > timeWithin {
				t.Fatalf("clock of the leader moved by %v: the log's time is %v off", by, off)
			}
		}
		write("before")
		drill(t, folder, old.ID, by)
		n := 0
		awaits(t, "another server leads", func() bool {
			n++
			write(fmt.Sprint("while", n))
			leader, err := c.Leader(patience(t))
			return err == nil && leader != old
		})
		for _, s := range c.Servers {
			awaits(t, s.ID+" says whose clock is wrong", func() bool {
				return strings.Contains(strings.Join(statusOf(t, c, s).Detail.Clock.Alarms, "\n"), old.ID+", is ") || s != old &&
					strings.Contains(strings.Join(statusOf(t, c, s).Detail.Clock.Alarms, "\n"), "the clock of "+old.ID+" is ")
			})
		}
		if page := fetch(t, old.URL+"/readyz?verbose"); !strings.HasPrefix(page, "ok") || !strings.Contains(page, "warning the clock of this server") {
			t.Errorf("readyz says:\n%s", page)
		}
		if page := fetch(t, c.Servers[0].URL+"/metrics"); !strings.Contains(page, "rutter_store_clock_alarms 1") || !strings.Contains(page, `rutter_store_clock_offset_seconds{server="`+old.ID+`"}`) {
			t.Error("metrics say nothing of a wrong clock")
		}
		if err := old.Stop(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := old.Start(); err != nil {
			t.Fatal(err)
		}
		if err := c.AwaitReady(patience(t), old); err != nil {
			t.Fatal(err)
		}
		write("restarted")
		drill(t, folder, old.ID, 0)
		awaits(t, "nobody has an alarm", func() bool {
			for _, s := range c.Servers {
				if len(statusOf(t, c, s).Detail.Clock.Alarms) > 0 {
					return false
				}
			}
			return true
		})
		write("after")
	}
}

// outputOf runs the program, for an operator.
func outputOf(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(patience(t), program, args...)
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RUTTER_") }) // what it knows nothing of it says so
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	return out.String(), err
}

// A log whose time is a year ahead, by a lone server's clock, is set right by a
// command: writes and tokens work again, over a restart, the past is found by its
// time, and the log is whole.
func TestTimeIsSetRight(t *testing.T) {
	folder := t.TempDir()
	drill(t, folder, "s1", 365*24*time.Hour)
	c := cluster(t, bench.Options{Servers: 1, TLS: true, Flags: []string{"--drill-clock", folder}})
	s := c.Servers[0]
	_ = createTag(patience(t), c.Client, "first") // taken or refused, it is of next year
	ahead := func() time.Duration { return time.Until(statusOf(t, c, s).Time.Std()) }
	if ahead() < 364*24*time.Hour {
		t.Fatalf("the log's time is %v ahead", ahead())
	}
	if err := s.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	drill(t, folder, "s1", 0)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(patience(t), s); err != nil {
		t.Fatal(err)
	}
	data := s.Args[slices.Index(s.Args, "--data")+1]
	operator := filepath.Join(t.TempDir(), "operator")
	office := tlsgate.Issuer{Folder: filepath.Join(filepath.Dir(data), "pki")}
	if _, err := office.Issue(operator, tlsgate.Grant{Identity: matrix.Identity{Role: matrix.Operator, Name: "ops"}, Life: pki.Life}); err != nil {
		t.Fatal(err)
	}
	reach := []string{"-s", s.URL, "--tls-dir", operator}
	must := func(args ...string) string {
		t.Helper()
		out, err := outputOf(t, args...)
		if err != nil {
			t.Fatalf("rutter %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	token := append([]string{"token", "create", "--cn", "564d69b1-a178-3fbe-b36f-3f2b7fd7ed31", "--ttl", "10m"}, reach...)
	if out, err := outputOf(t, token...); err == nil {
		t.Fatalf("a token is made while the log is a year ahead: %s", out)
	}
	awaits(t, "it says so", func() bool {
		out, _ := outputOf(t, append([]string{"cluster", "status"}, reach...)...) // ends with 1: something is to be seen to
		return strings.Contains(out, "rutter cluster time set")
	})
	if out := must(append([]string{"cluster", "time", "set"}, reach...)...); !strings.Contains(out, "nothing was changed") || ahead() < 364*24*time.Hour {
		t.Fatalf("without --yes: %s", out)
	}
	if out, err := outputOf(t, append([]string{"cluster", "time", "set", "--to", "2031-01-01T00:00:00Z", "--yes"}, reach...)...); err == nil {
		t.Fatalf("a time that no clock shows is taken: %s", out)
	}
	must(append([]string{"cluster", "time", "set", "--yes"}, reach...)...)
	if off := ahead(); off.Abs() > timeWithin {
		t.Fatalf("the log's time is %v off after it was set", off)
	}
	if err := createTag(patience(t), c.Client, "second"); err != nil {
		t.Fatal(err)
	}
	awaits(t, "the log's time is not ahead", func() bool { return ahead() < 0 })
	noted := log.TimeOf(time.Now())
	time.Sleep(10 * time.Millisecond) // a millisecond is what texts of times show
	must(token...)
	if err := createTag(patience(t), c.Client, "third"); err != nil {
		t.Fatal(err)
	}
	at := noted.Std().Format(time.RFC3339Nano)
	past, err := c.Client.List(patience(t), "/nic_tags", map[string][]string{"at": {at}})
	if err != nil {
		t.Fatal(err)
	}
	if names := fmt.Sprint(past); !strings.Contains(names, "second") || strings.Contains(names, "third") {
		t.Errorf("the NIC tags at %s are %s", at, names)
	}
	since := must(append([]string{"log", "show", "--from", at, "-o", "ndjson"}, reach...)...)
	if !strings.Contains(since, "third") || strings.Contains(since, "second") {
		t.Errorf("since %s:\n%s", at, since)
	}
	if err := s.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	must("log", "verify", "--data", data)
	if out := must("log", "show", "--data", data, "--from", at, "-o", "ndjson"); !strings.Contains(out, "third") || strings.Contains(out, "second") {
		t.Errorf("offline, since %s:\n%s", at, out)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(patience(t), s); err != nil {
		t.Fatal(err)
	}
	if err := createTag(patience(t), c.Client, "restarted"); err != nil {
		t.Fatal(err)
	}
	if off := ahead(); off.Abs() > timeWithin {
		t.Errorf("after a restart the log's time is %v off", off)
	}
	var shown struct {
		Alarms []string `json:"alarms"`
	}
	if err := json.Unmarshal([]byte(must(append([]string{"cluster", "time", "-o", "json"}, reach...)...)), &shown); err != nil || len(shown.Alarms) > 0 {
		t.Errorf("alarms %q, %v", shown.Alarms, err)
	}
}
