package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/internal/app"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/raftstore/history"
)

// forged begins the lines that hostileText would make.
const forged = "FORGED"

// hostileText is a name that moves the cursor, sets the clipboard, makes a link, colours
// and turns text, ends lines and cells, in each way that a terminal knows.
const hostileText = "=cmd|' /C calc'!A0\x1b[2J\x1b]52;c;YQ==\x07\x1b]8;;http://x\x1b\\<script>\x00\b\x7f\u0085\u009b31m\u00a0\u00ad\u200b\u202e\u2066\u2028\u2029\ufeff\U000e0041\t\"\\\r" +
	forged + "\n" + forged + "  a line\r\n" + forged

// fillHostile sets every field of v: texts to text, what has a form to a value of it.
func fillHostile(v reflect.Value, text string, n byte) {
	switch x := v.Addr().Interface().(type) {
	case *log.UUID:
		*x = log.UUID{0: 0x57, 6: 0x40, 8: 0x80, 15: n}
		return
	case *log.MAC:
		*x = log.MAC{2, 5: n}
		return
	case *netip.Addr:
		*x = netip.MustParseAddr("10.0.0.7")
		return
	case *netip.Prefix:
		*x = netip.MustParsePrefix("10.0.0.0/24")
		return
	case *log.Time:
		*x = 1795251600123456789
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		v.SetUint(1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fillHostile(v.Field(i), text, n)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillHostile(v.Elem(), text, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillHostile(v.Index(0), text, n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillHostile(key, text, n)
		fillHostile(value, text, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}

// hostileObject is an object of a kind with text in every field that is one.
func hostileObject(t *testing.T, kind log.Kind, text string) log.Object {
	t.Helper()
	o := log.NewObject(kind)
	fillHostile(reflect.ValueOf(o).Elem(), text, byte(kind))
	return o
}

// hostileFolder is the folder of a server whose log has an object of each kind, and a
// change of each, with hostile texts that no rule was asked about.
func hostileFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	w, err := history.CreateFolder(dir, history.FolderStart{Cluster: log.UUID{9}})
	if err != nil {
		t.Fatal(err)
	}
	seq, hash, encoder := log.Seq(0), log.Hash{}, log.NewEncoder()
	add := func(e *log.Event) {
		e.Kind, e.ID, e.Time, e.Actor, e.Scopes = e.Object.Kind(), e.Object.ID(), 1795251600123456789, "cn "+hostileText, []log.Scope{log.AllScope()}
		b, err := encoder.Event(e)
		if err != nil {
			t.Fatalf("%s: %v", e.Kind, err)
		}
		seq++
		hash = hash.Next(seq, b)
		if err := w.Append(log.Entry{Seq: seq, Hash: hash, Bytes: b}); err != nil {
			t.Fatalf("%s: %v", e.Kind, err)
		}
	}
	for _, kind := range log.Kinds() {
		was := hostileObject(t, kind, "was "+hostileText)
		now := hostileObject(t, kind, hostileText)
		if was.ID() != now.ID() { // the id is a text: it stays
			was = log.Clone(now)
		}
		add(&log.Event{Action: log.Create, Object: was, Revision: 1})
		add(&log.Event{Action: log.Update, Object: now, Revision: 2, Changed: log.Diff(was, now)})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkPrinted checks that a text has nothing that a terminal takes for more than text,
// and no line that a name made. The later lines of a value, where it may have several,
// are indented.
func checkPrinted(t *testing.T, what, text string) {
	t.Helper()
	if strings.Contains(what, "-o csv") {
		text = strings.ReplaceAll(text, "\r\n", "\n") // RFC 4180
	}
	for at, r := range text {
		if r != '\n' && r != '\t' && output.Hidden(r) {
			t.Errorf("%s: printed %q at %d, in %q", what, r, at, around(text, at))
			return
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, forged) {
			t.Errorf("%s: a name made the line %q of %q", what, line, around(text, strings.Index(text, line)))
			return
		}
	}
}

func around(text string, at int) string { return text[max(0, at-80):min(len(text), at+80)] }

// notRun are commands that print nothing of others, or that run until they are ended,
// or start processes; each has tests of its own.
var notRun = regexp.MustCompile(`^(server|agent|varpd|dev|demo|bench|completion|version|config|vminfo|svp|changefeed|cert init|cert rotate)\b`)

var formats = regexp.MustCompile(`: (.*)$`)

// eachForm calls fn for each command that asks servers or reads a log, in each of its
// forms of output, without an argument and with one that may name an object.
func eachForm(fn func(command string, flags []cli.Flag, args []string)) {
	var walk func(path []string, commands []*cli.Command)
	walk = func(path []string, commands []*cli.Command) {
		for _, c := range commands {
			path := append(slices.Clone(path), c.Name)
			if len(c.Subcommands) > 0 {
				walk(path, c.Subcommands)
				continue
			}
			name := strings.Join(path, " ")
			if notRun.MatchString(name) {
				continue
			}
			forms := [][]string{nil}
			if f, ok := app.FlagNamed(c.Flags, "output").(*cli.StringFlag); ok {
				for form := range strings.FieldsFuncSeq(formats.FindStringSubmatch(f.Usage)[1], func(r rune) bool { return r == ',' || r == ' ' }) {
					if form != "or" {
						forms = append(forms, []string{"-o", form})
					}
				}
			}
			for _, form := range forms {
				for _, more := range arguments[name] {
					fn(name, c.Flags, slices.Concat(path, strings.Fields(more), form))
				}
				if arguments[name] == nil {
					fn(name, c.Flags, slices.Concat(path, form))
				}
			}
		}
	}
	walk(nil, commands())
}

// objectID is the id of hostileObject of a kind.
func objectID(kind log.Kind) string {
	return log.UUID{0: 0x57, 6: 0x40, 8: 0x80, 15: byte(kind)}.String()
}

// arguments are those of commands that need some; several are several runs.
var arguments = map[string][]string{
	"network get":    {objectID(log.KindNetwork)},
	"network update": {objectID(log.KindNetwork) + " name=x"},
	"network delete": {objectID(log.KindNetwork)},
	"nic get":        {hostileMAC},
	"vm get":         {objectID(log.KindVM)},
	"vmm get":        {objectID(log.KindVMM)},
	"vmm show":       {objectID(log.KindVMM), objectID(log.KindVM)},
	"vmm history":    {objectID(log.KindVMM), objectID(log.KindVM)},
	"vm lookup":      {"", "-j", "state=x"},
	"cn get":         {objectID(log.KindServer)},
	"cn show":        {objectID(log.KindServer)},
	"cn accept":      {objectID(log.KindServer)},
	"inventory get":  {objectID(log.KindServer)},
	"task show":      {objectID(log.KindTask)},
	"log tail":       {"-n 100", "--cn " + objectID(log.KindServer)},
	"log show":       {"", "--values", "--actor x"},
	"log history":    {"network " + objectID(log.KindNetwork)},
	"log blame":      {"network " + objectID(log.KindNetwork), "nic " + hostileMAC, "vm " + objectID(log.KindVM)},
	"log dump":       {"3", ""},
	"log export":     {""},
	"log diff":       {"--from 1 --to 30", "1 30"},
	"log bisect":     {"--check false", "--reach " + hostileMAC + " 10.0.0.7"},
	"log revert":     {"--from 1", "3"},
	"token revoke":   {objectID(log.KindToken)},
	"lookup vl2":     {"1 " + hostileMAC},
	"lookup vl3":     {"1 10.0.0.7"},
	"trace":          {hostileMAC + " " + hostileMAC, "10.0.0.7 10.0.0.7"},
	"wait":           {"--timeout 1ms"},
	"task wait":      {objectID(log.KindTask) + " --timeout 1ms"},
	"snapshot save":  {"saved.snapshot"},
	"log replay":     {"DATA", "DATA --to -", "DATA --to dump"},
	"import napi":    {"."},
}

var hostileMAC = log.MAC{2, 5: byte(log.KindNIC)}.String()

// runBriefly runs a command, which ends by itself. The limit is for a test that hangs.
func runBriefly(t *testing.T, args []string) (code int, stdout, stderr string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, append([]string{"rutter"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// printedForms runs all commands, each with the flags that flagged returns for it, and
// checks what they print. It returns the commands that succeeded.
func printedForms(t *testing.T, flagged func(command string, flags []cli.Flag, args []string) ([]string, bool)) map[string]bool {
	done := map[string]bool{}
	eachForm(func(command string, flags []cli.Flag, args []string) {
		args, ok := flagged(command, flags, args)
		if !ok {
			return
		}
		if command == "snapshot now" {
			args = append(args, "--wait", "1s") // this server never says that the backup has ended
		}
		code, out, errs := runBriefly(t, args)
		what := strings.Join(args, " ")
		checkPrinted(t, what, out)
		checkPrinted(t, what+" (standard error)", errs)
		if code != 0 {
			done[command+": "+errs] = false
			return
		}
		done[command] = true
		if i := slices.Index(args, "-o"); i >= 0 && strings.HasSuffix(args[i+1], "json") && !textOnly[command] {
			dec := json.NewDecoder(strings.NewReader(out))
			for {
				if err := dec.Decode(new(any)); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Errorf("%s: not JSON: %v: %.200q", what, err, out)
					break
				}
			}
		}
	})
	return done
}

// textOnly are commands that have no JSON for some of what they do, whatever -o says.
var textOnly = map[string]bool{"log replay": true, "cluster transfer": true}

func checkDone(t *testing.T, done map[string]bool, want ...string) {
	t.Helper()
	for _, command := range want {
		if !done[command] {
			t.Errorf("rutter %s did not succeed in any form: what it prints of hostile names was not seen", command)
			for failure := range done {
				if strings.HasPrefix(failure, command+": ") {
					t.Log(failure)
				}
			}
		}
	}
}

// What a log holds comes to the screen as text, from a folder and from a server that
// serves it.
func TestHostileLogIsPrintedAsText(t *testing.T) {
	t.Chdir(t.TempDir())
	dir := hostileFolder(t)
	done := printedForms(t, func(command string, flags []cli.Flag, args []string) ([]string, bool) {
		if at := slices.Index(args, "DATA"); at >= 0 {
			args[at] = dir
			return args, true
		}
		reads := strings.HasPrefix(command, "log ") || strings.HasPrefix(command, "lookup") || command == "trace" || command == "snapshot inspect"
		return append(args, "--data", dir), reads && app.FlagNamed(flags, "data") != nil
	})
	checkDone(t, done, "log show", "log tail", "log history", "log blame", "log stats", "log dump", "log state", "log verify", "log replay", "snapshot inspect")

	url := serveFolder(t, dir)
	t.Setenv("RUTTER_SERVER", url)
	done = printedForms(t, func(_ string, flags []cli.Flag, args []string) ([]string, bool) {
		return args, app.FlagNamed(flags, "server") != nil
	})
	checkDone(t, done, "network list", "network get", "nic list", "cn list", "vmm list", "vm lookup", "setting list", "log show")
	for _, list := range []string{"network", "nic", "cn", "vmm", "tag"} {
		code, out, errs := rutter(t, list, "list")
		if code != 0 || strings.Count(out, "\n") != 2 || list != "nic" && !strings.Contains(out, `=cmd|`) {
			t.Errorf("rutter %s list: exit code %d, %d lines, want 2 with the name escaped: %s%s", list, code, strings.Count(out, "\n"), out, errs)
		}
	}
	var nets []log.Network
	_, out, _ := rutter(t, "network", "list", "-o", "json")
	if err := json.Unmarshal([]byte(out), &nets); err != nil || len(nets) != 1 || nets[0].Name != hostileText {
		t.Errorf("JSON has %.300q, %v: want the name as it is", out, err)
	}
}

// serveFolder runs `rutter log replay --serve` until the test ends, and returns its URL.
func serveFolder(t *testing.T, dir string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, r, w := make(chan struct{}), (*io.PipeReader)(nil), (*io.PipeWriter)(nil)
	r, w = io.Pipe()
	var errs bytes.Buffer
	go func() {
		defer close(ended)
		run(ctx, []string{"rutter", "log", "replay", dir, "--serve", "127.0.0.1:0"}, w, &errs)
		_ = w.Close()
	}()
	t.Cleanup(func() { cancel(); _ = r.Close(); <-ended })
	buf := make([]byte, 4096)
	n, err := r.Read(buf)
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(string(buf[:n]))
	if url == "" {
		t.Fatalf("no server: %q, %v", buf[:n], err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return url
}

// hostileOverview is an answer to GET /overview whose every text is hostile.
func hostileOverview() any {
	problem := map[string]any{}
	for _, name := range []string{"kind", "severity", "text", "do", "docs", "view"} {
		problem[name] = hostileText
	}
	problem["nodes"] = []any{map[string]any{"cn_uuid": hostileText, "hostname": hostileText, "why": hostileText}}
	return map[string]any{
		"server": hostileText, "leader": hostileText, "problems": []any{problem},
		"changes": map[string]any{"entries": 1, "kinds": []any{}, "actors": []any{map[string]any{"actor": hostileText, "entries": 1}}},
		"history": map[string]any{"refused_codes": []any{map[string]any{"code": hostileText, "n": 1}}},
	}
}

// hostileVNet is an answer to GET /vnets/ID whose every text is hostile.
func hostileVNet() any {
	node, network := map[string]any{"cn_uuid": log.UUID{7}}, map[string]any{"uuid": log.UUID{8}}
	for _, name := range []string{"hostname", "datacenter", "state", "why", "server", "underlay_ip"} {
		node[name] = hostileText
	}
	for _, name := range []string{"name", "subnet"} {
		network[name] = hostileText
	}
	return map[string]any{"cns": []any{node}, "networks": []any{network}, "trouble": hostileText}
}

// What a server answers comes to the screen as text: its objects, its sessions, its
// refusals, and what is no JSON at all.
func TestHostileServerIsPrintedAsText(t *testing.T) {
	t.Chdir(t.TempDir())
	var session client.Session
	fillHostile(reflect.ValueOf(&session).Elem(), hostileText, byte(log.KindServer))
	object := map[string]any{}
	for _, kind := range log.Kinds() {
		b, err := json.Marshal(hostileObject(t, kind, hostileText))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &object); err != nil {
			t.Fatal(err)
		}
	}
	refusal := log.Refusal{}
	fillHostile(reflect.ValueOf(&refusal).Elem(), hostileText, 1)
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"objects": func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/cns":
				_ = json.NewEncoder(w).Encode([]client.Session{session})
			case r.URL.Path == "/overview":
				_ = json.NewEncoder(w).Encode(hostileOverview())
			case strings.HasPrefix(r.URL.Path, "/vnets/"):
				_ = json.NewEncoder(w).Encode(hostileVNet())
			case strings.Count(r.URL.Path, "/") == 1:
				_ = json.NewEncoder(w).Encode([]any{object})
			default:
				_ = json.NewEncoder(w).Encode(object)
			}
		},
		"refusals": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(refusal)
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, hostileText+"\xff\x9b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(answer))
			defer server.Close()
			t.Setenv("RUTTER_SERVER", server.URL)
			done := printedForms(t, func(_ string, flags []cli.Flag, args []string) ([]string, bool) {
				return args, app.FlagNamed(flags, "server") != nil && (name == "objects" || !slices.Contains(args, "-o"))
			})
			if name != "objects" {
				return
			}
			checkDone(t, done, "network list", "cn list", "cn show", "cn sessions", "grant list", "cluster overview")
			for _, line := range []string{"cn vnet 7", "cluster overview"} {
				code, out, errs := rutter(t, strings.Fields(line)...)
				if code != 0 || !strings.Contains(out, `\u001b[2J`) || strings.ContainsAny(out, "\x1b\r\u202e") {
					t.Errorf("rutter %s: %d %s%s", line, code, out, errs)
				}
			}
			for _, line := range []string{"cn sessions", "cn list"} {
				_, out, errs := rutter(t, strings.Fields(line)...)
				if table, _, _ := strings.Cut(out, "\n\n"); strings.Count(strings.TrimSpace(table), "\n") != 1 || !strings.Contains(table, `\u001b[2J`) {
					t.Errorf("rutter %s: want a header and one line: %s%s", line, out, errs)
				}
			}
		})
	}
}

// A name that the user gives, and which the program repeats, is text too.
func TestHostileArgumentsArePrintedAsText(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	t.Setenv("RUTTER_SERVER", server.URL)
	for _, args := range [][]string{
		{hostileText},
		{"network", hostileText},
		{"network", "list", "--" + hostileText},
		{"network", "get", hostileText},
		{"log", "show", "--data", hostileText},
		{"network", "list", "-o", hostileText},
		{"network", "list", "-s", hostileText},
		{"log", "show", "--from", hostileText},
		{"cluster", "time", "set", hostileText},
	} {
		_, out, errs := runBriefly(t, args)
		checkPrinted(t, fmt.Sprintf("%q", args), out+errs)
	}
}

// A daemon's log is lines of its own.
func TestHostileNamesAreLoggedAsText(t *testing.T) {
	var out bytes.Buffer
	screen := output.NewScreen(&out)
	logger := loggerOn(t, screen)
	logger.Warn(hostileText, hostileText, hostileText, "err", errors.New(hostileText+"\xff"))
	checkPrinted(t, "logged", out.String())
	if n := strings.Count(out.String(), "\n"); n != 1 || !utf8.ValidString(out.String()) {
		t.Errorf("%d lines: %q", n, out.String())
	}
}

func loggerOn(t *testing.T, w io.Writer) *slog.Logger {
	t.Helper()
	logger, err := term.NewLogger(w, "debug")
	if err != nil {
		t.Fatal(err)
	}
	return logger
}
