package addkind

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

// step is one thing that is done by hand: text that is put behind a text of a file.
type step struct{ file, behind, text string }

// steps are those of docs/contributing.md, beside the new files: the lines in the table
// of kinds, and nothing in packages projections and rules.
var steps = []step{
	{"log/kinds.go", "\tKindCertificate: &certificateKind,\n", "\tKindRack: &rackKind,\n\tKindShelf: &shelfKind,\n"},
}

// files are the new ones, by their names in testdata.
var files = map[string]string{
	"rack.txt":          "log/kind_rack.go",
	"event-rack-v1.hex": "log/testdata/event-rack-v1.hex",
	"object-rack.json":  "log/testdata/object-rack.json",

	"shelf.txt":          "log/kind_shelf.go",
	"event-shelf-v1.hex": "log/testdata/event-shelf-v1.hex",
	"object-shelf.json":  "log/testdata/object-shelf.json",
}

// addRack returns a copy of the module that has racks.
func addRack(t *testing.T) string {
	t.Helper()
	module := filepath.Join(t.TempDir(), "module")
	if err := os.CopyFS(module, os.DirFS("../..")); err != nil {
		t.Fatal(err)
	}
	for from, to := range files {
		b, err := os.ReadFile(filepath.Join("testdata", from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(module, to), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range steps {
		name := filepath.Join(module, s.file)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b, []byte(s.behind)); n != 1 {
			t.Fatalf("%s has %q %d times, want it once: change the walk, here and in docs/contributing.md", s.file, s.behind, n)
		}
		if err := os.WriteFile(name, bytes.Replace(b, []byte(s.behind), []byte(s.behind+s.text), 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return module
}

// goTool runs the go command in a module.
func goTool(t *testing.T, module string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "PWD="+module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// asking gives up on a server that does not answer.
var asking = http.Client{Timeout: 10 * time.Second}

// varies are the parts of what is printed that are not the same each time: times,
// UUIDs, and the spaces of tables.
var varies = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(` +`), " "},
}

// A kind is added by one file, its golden files and its line in the table: then it
// has a command, paths, lists with filters, and entries in the log.
func TestAddKind(t *testing.T) {
	module := addRack(t)
	goTool(t, module, "test", "./log")
	rutter := filepath.Join(module, "rutter-with-racks")
	goTool(t, module, "build", "-o", rutter, "./cmd/rutter")
	url := rig.Cluster(t, bench.Options{Program: rutter, Servers: 1}).Servers[0].URL
	for _, do := range []struct {
		args string
		code int
		want string
	}{
		{"rack create name=r1 room=b2 units=42", 0, "NAME ROOM UNITS\nr1 b2 42\n"},
		{"rack create name=r2 room=b3 units=48", 0, "NAME ROOM UNITS\nr2 b3 48\n"},
		{"rack create name=r1 units=1", 3, "rutter: InvalidParameters: Invalid parameters; name: Already exists (choose another, or update the one there)\n"},
		{"rack create name=r3", 3, "rutter: InvalidParameters: Invalid parameters; units: Missing parameter (send its height)\n"},
		{"shelf create label=s1 rack=r1", 0, "LABEL RACK\ns1 r1\n"},
		{"shelf create label=s1 rack=r9", 3, "rutter: InvalidParameters: Invalid parameters; rack: rack \"r9\" does not exist (create the rack first); label: Already exists (choose another, or update the one there)\n"},
		{"rack delete r1", 3, "rutter: InUse: rack is in use; name: In use by shelf \"UUID\" (take it out of what uses it first)\n"},
		{"rack list", 0, "NAME ROOM UNITS\nr1 b2 42\nr2 b3 48\n"},
		{"rack list units=48", 0, "NAME ROOM UNITS\nr2 b3 48\n"},
		{"rack get r1 -o ndjson", 0, "{\"name\":\"r1\",\"room\":\"b2\",\"units\":42}\n"},
		{"rack update r1 units=48", 0, "NAME ROOM UNITS\nr1 b2 48\n"},
		{"rack update r1 name=r9", 3, "rutter: InvalidParameters: Invalid parameters; name: Rack updates for this field are not supported (leave it out, or create another rack)\n"},
		{"rack delete r2", 0, ""},
		{"rack get r2", 3, "rutter: ResourceNotFound: rack not found\n"},
		{"log show 4", 0, "TIME #4 rack r1 units changed :: 42 -> 48 by anonymous@127.0.0.1\n"},
		{"log show 5", 0, "TIME #5 rack r2 delete by anonymous@127.0.0.1\n"},
	} {
		out, err := exec.Command(rutter, append(strings.Fields(do.args), "-s", url)...).CombinedOutput()
		got := string(out)
		for _, v := range varies {
			got = v.pattern.ReplaceAllString(got, v.text)
		}
		code := 0
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if got != do.want || code != do.code {
			t.Errorf("rutter %s: %d\n%s\nwant %d\n%s", do.args, code, got, do.code, do.want)
		}
	}
	patch(t, url)
}

// patch changes a rack by the API, as it was read, and then as it was before.
func patch(t *testing.T, url string) {
	t.Helper()
	etag := ""
	for i, want := range []string{`{"name":"r1","room":"b4","units":48}`, "PreconditionFailed"} {
		if i == 0 {
			response, err := asking.Get(url + "/racks/r1")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			etag = response.Header.Get("Etag")
		}
		request, err := http.NewRequest(http.MethodPut, url+"/racks/r1", strings.NewReader(`{"room": "b4"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("If-Match", etag)
		response, err := asking.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("the update with the etag %s answered %s, %v: %s\nwant %s", etag, response.Status, err, b, want)
		}
	}
}
