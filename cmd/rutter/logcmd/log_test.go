package logcmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/archive"
	"rutter/log/line"
)

// asProgram makes the test's binary be the program.
const asProgram = "RUTTER_LOG_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	app := &cli.App{
		Name: "rutter", Writer: out, ErrWriter: io.Discard, Commands: []*cli.Command{Command()},
		ExitErrHandler: func(*cli.Context, error) {},
	}
	return app.RunContext(ctx, append([]string{"rutter", "log"}, args...))
}

var (
	network = log.UUID{1}
	vm      = log.UUID{2}
	cn      = log.UUID{3}
	mac     = log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}
)

// export writes a log of a NIC that is created, moves n times between two
// addresses, and is deleted.
func exported(t *testing.T, n int) (path string, entries []log.Entry) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log.rlog")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := archive.NewWriter(file, archive.Header{Cluster: log.UUID{9}})
	if err != nil {
		t.Fatal(err)
	}
	var hash log.Hash
	var last *log.NIC
	add := func(action log.Action, ip string) {
		nic := &log.NIC{MAC: mac, OwnerUUID: vm, BelongsToUUID: vm, NetworkUUID: network, CNUUID: cn, IP: netip.MustParseAddr(ip), State: "running"}
		seq := log.Seq(len(entries) + 1)
		e := &log.Event{
			Kind: log.KindNIC, Action: action, ID: nic.ID(), Revision: log.Revision(seq), Actor: "napi", Object: nic,
			Time: log.Time(1795251600e9 + int64(seq)*1e9), Scopes: []log.Scope{log.CNScope(cn)},
		}
		if action == log.Update {
			e.Changed = log.Diff(last, nic)
		}
		last = nic
		b, err := log.NewEncoder().Event(e)
		if err != nil {
			t.Fatal(err)
		}
		hash = hash.Next(seq, b)
		entries = append(entries, log.Entry{Seq: seq, Hash: hash, Bytes: b})
		if err := w.Append(entries[seq-1]); err != nil {
			t.Fatal(err)
		}
	}
	add(log.Create, "10.0.0.1")
	for i := range n {
		add(log.Update, []string{"10.0.0.2", "10.0.0.1"}[i%2])
	}
	add(log.Delete, last.IP.String())
	if err := errors.Join(w.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	return path, entries
}

func printedBy(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), &out, args); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String()
}

func TestCommandsOnAFile(t *testing.T) {
	path, entries := exported(t, 3)
	const head = "2026-11-21T09:00:"
	for _, test := range []struct {
		args string
		want string
		n    int // lines; 0: any
	}{
		{"tail -n 2", head + `04.000Z #4 nic 90:b8:d0:00:00:01 ip changed :: "10.0.0.1" -> "10.0.0.2"  by napi`, 2},
		{"tail -n 1 --action create", "#1 nic 90:b8:d0:00:00:01 create :: ip \"10.0.0.1\", ", 1},
		{"show --after 1 --limit 2", "#3 nic", 2},
		{"show --from -1", "#5 nic 90:b8:d0:00:00:01 delete", 1},
		{"show --from " + head + "03Z --until 4", "#3 nic", 2},
		{"show --path ip -o table", "CHANGED", 4},
		{"show --kind vm", "", 0},
		{"show 2", `#2 nic 90:b8:d0:00:00:01 ip changed :: "10.0.0.1" -> "10.0.0.2"`, 1},
		{"show --ip 10.0.0.2", "#2 nic", 4},
		{"history nic 90-b8-d0-00-00-01", `ip set :: "10.0.0.1"`, 0},
		{"history 90:b8:d0:00:00:01", "delete  by napi", 0},
		{"blame nic 90:b8:d0:00:00:01", `ip              "10.0.0.2"  was "10.0.0.1"  by napi`, 0},
		{"blame ip 10.0.0.1", "#1 10.0.0.1 given: nic 90:b8:d0:00:00:01", 4},
		{"stats", "5 entries", 0},
		{"stats --from 2 --action update", "3 entries", 0},
		{"verify", "whole; 5 entries", 1},
		{"dump 1", "crc32c", 0},
		{"dump --from -1 -o ndjson", `"bytes":"01`, 1},
	} {
		args := strings.Fields(test.args)
		at := 1 // flags stand before arguments here
		if got := printedBy(t, append(append(args[:at:at], "--data", path), args[at:]...)...); !strings.Contains(got, test.want) || test.n > 0 && strings.Count(got, "\n") != test.n {
			t.Errorf("%s: got\n%swant %q in %d lines", test.args, got, test.want, test.n)
		}
	}
	if got := printedBy(t, "verify", path); !strings.Contains(got, "whole; 5 entries") {
		t.Errorf("verify: %s", got)
	}
	if got := printedBy(t, "verify", "-o", "json", path); !strings.Contains(got, `"chain":"`+entries[4].Hash.String()+`"`) {
		t.Errorf("verify -o json: %s", got)
	}
	for _, format := range line.Formats() {
		if got := printedBy(t, "tail", "--data", path, "-o", format); !strings.HasSuffix(got, "\n") {
			t.Errorf("-o %s: %q", format, got)
		}
	}
	var lines []log.Line
	if err := json.Unmarshal([]byte(printedBy(t, "show", "--data", path, "-o", "json")), &lines); err != nil || len(lines) != 5 {
		t.Errorf("-o json: %d entries, %v", len(lines), err)
	}
	copied := filepath.Join(t.TempDir(), "copy.rlog")
	printedBy(t, "export", "--data", path, "--after", "2", copied)
	if got := printedBy(t, "verify", copied); !strings.Contains(got, "whole; 3 entries after 2, head 09000000-0000-0000-0000-000000000000.5.") {
		t.Errorf("verify of a part: %s", got)
	}
}

func TestWrongUsage(t *testing.T) {
	path, _ := exported(t, 0)
	for _, test := range []struct{ args, want string }{
		{"tail 5", "takes no arguments"},
		{"tail --kind nics", "--kind: "},
		{"tail --owner me", "want 36 characters"},
		{"tail --path Gateway", "is no name of a field"},
		{"tail --until soon", "want a seq as in 1042"},
		{"tail --follow --data " + path, "nothing comes to a file"},
		{"show --from soon", "how long ago"},
		{"show --from -0", "want -N"},
		{"show --from 3 --after 3", "exclude each other"},
		{"show 0", "want the seq of an entry"},
		{"history", "want one object"},
		{"history ship 1", "is no kind of object"},
		{"blame nic", "want KIND and ID"},
		{"blame --network x nic 1", "goes with an address"},
		{"blame ip 10.0", "want an address"},
		{"stats extra", "takes no arguments"},
		{"export", "want one argument"},
		{"export " + path + " --data " + path, "want one argument"},
		{"import", "want one argument"},
		{"import " + path, "want --to FOLDER or --to URL"},
		{"import --to x --map y " + path, "--map is for --to URL"},
		{"import --to http://127.0.0.1:1 --onto y " + path, "--onto is for --to FOLDER"},
		{"replay --to - --serve 127.0.0.1:0 " + path, "exclude each other"},
		{"replay --speed 2x " + path, "--speed is for"},
		{"replay --map x " + path, "--map is for"},
		{"tail -o xml", "want lines, table, json, ndjson, yaml or csv"},
	} {
		err := run(t.Context(), io.Discard, strings.Fields(test.args))
		if !errors.As(err, new(term.UsageError)) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want a usage error with %q", test.args, err, test.want)
		}
	}
	for _, test := range []struct{ args, want string }{
		{"history --data " + path + " nic 90:b8:d0:00:00:09", "keeps nothing of nic"},
		{"blame --data " + path + " ip 10.9.9.9", "no event that gave"},
		{"tail --data log_test.go", "no file of `rutter log export`"},
		{"import --to x log_test.go", "no file of `rutter log export`"},
		{"replay log_test.go", "invalid database"},
		{"state --at 0 --data " + path, "nothing was there yet: the log of " + path + " begins with seq 1 of 2026-11-21T09:00:01.000Z"},
		{"state --at 2026-11-21T09:00:00Z --kind nic --data " + path, "nothing was there yet"},
	} {
		if err := run(t.Context(), io.Discard, strings.Fields(test.args)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
}

// Every command says what it is for, and has examples.
func TestHelp(t *testing.T) {
	for _, c := range Command().Subcommands {
		if c.Usage == "" || !strings.Contains(c.Description, "Examples:\n  rutter log "+c.Name) {
			t.Errorf("rutter log %s: usage %q, description %q", c.Name, c.Usage, c.Description)
		}
	}
}

func TestStretchesDouble(t *testing.T) {
	s := newCounted()
	for i := range 1000 {
		s.at(time.Duration(i) * time.Second)
	}
	sum := uint64(0)
	for _, n := range s.Rate {
		sum += n
	}
	if sum != 1000 || len(s.Rate) > maxBuckets || s.Stretch != 32*time.Second {
		t.Errorf("%d entries in %d stretches of %v", sum, len(s.Rate), s.Stretch)
	}
}

// An interrupt ends the output of a real process with a whole line.
func TestInterruptLeavesNoHalfLine(t *testing.T) {
	path, _ := exported(t, 20_000)
	for _, format := range line.Formats() {
		program := exec.Command(os.Args[0], "show", "--data", path, "-o", format)
		program.Env = append(os.Environ(), asProgram+"=1")
		out, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(out)
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		// It cannot have printed all: a pipe holds less.
		if err := program.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Wait(); err == nil {
			t.Errorf("-o %s: interrupted, and it ended as if it had printed all", format)
		}
		if len(rest) == 0 || rest[len(rest)-1] != '\n' || format == "json" && !bytes.HasSuffix(rest, []byte("\n]\n")) {
			t.Errorf("-o %s: ends with %q", format, rest[max(0, len(rest)-40):])
		}
	}
}
