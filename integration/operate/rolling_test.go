package operate

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
)

// settings is the file of a server of three.
const settings = `[server]
id = "%[1]s"
data = "/var/lib/rutter"
listen = "10.0.0.%[2]d:7420"
raft = "10.0.0.%[2]d:7421"
svp = "off"
insecure = true
%[3]s
[client]
server = [%[4]s]
`

const threePeers = `peers = ["s1=10.0.0.1:7421", "s2=10.0.0.2:7421", "s3=10.0.0.3:7421"]`

// startServers starts servers as the unit does, and returns a client of them.
func startServers(t *testing.T, names []string, begin string) (*hosts, *client.Client) {
	t.Helper()
	return startServersOn(t, newHosts(t, names...), names, begin)
}

// startServersOn is startServers on hosts that were prepared.
func startServersOn(t *testing.T, h *hosts, names []string, begin string) (*hosts, *client.Client) {
	t.Helper()
	var urls, quoted []string
	for i := range names {
		urls = append(urls, fmt.Sprintf("http://%s%d:7420", h.prefix, i+1))
		quoted = append(quoted, `"`+urls[i]+`"`)
	}
	for i, name := range names {
		h.install(name, "rutter-server.service")
		h.write(name, "/etc/rutter/rutter.toml", h.rewrite(name, fmt.Sprintf(settings, name, i+1, begin, strings.Join(quoted, ", "))), 0o600)
		h.write(name, "/etc/profile.d/rutter.sh", "export RUTTER_CONFIG="+h.path(name, "/etc/rutter/rutter.toml")+"\n", 0o600)
		h.must(name, "systemctl start rutter-server")
	}
	h.must(names[0], "rutter cluster status --wait 1m")
	api, err := client.New(client.Config{Servers: urls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return h, api
}

// writers write tags until stop is called, and note what was acknowledged.
type writers struct {
	t     *testing.T
	api   *client.Client
	group sync.WaitGroup
	end   context.CancelFunc

	mu     sync.Mutex // protects what follows
	acked  map[log.UUID]log.Seq
	last   time.Time
	gap    time.Duration // the longest between two acknowledgements
	failed error
}

func startWriters(t *testing.T, api *client.Client, n int) *writers {
	ctx, cancel := context.WithCancel(t.Context())
	w := &writers{t: t, api: api, end: cancel, acked: make(map[log.UUID]log.Seq), last: time.Now()}
	t.Cleanup(cancel)
	for i := range n {
		w.group.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				w.write(fmt.Sprintf("w%d_%d", i, k))
			}
		})
	}
	return w
}

func (w *writers) write(name string) {
	result, err := w.api.Submit(w.t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name},
	}}})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failed = fmt.Errorf("write %s: %w", name, err)
		w.end()
		return
	}
	w.acked[result.ChangeID] = result.Last
	w.gap = max(w.gap, time.Since(w.last))
	w.last = time.Now()
}

func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// sofar returns what has been acknowledged.
func (w *writers) sofar() map[log.UUID]log.Seq {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.acked)
}

// morePatience is how long writers may take for thousands of writes on a machine
// that has others to serve.
const morePatience = 2 * time.Minute

// awaitMore waits until more was acknowledged, or a write failed.
func (w *writers) awaitMore(n int) {
	w.t.Helper()
	for begin, end := w.count(), time.Now().Add(morePatience); w.count() < begin+n; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		failed := w.failed
		w.mu.Unlock()
		if failed != nil || time.Now().After(end) {
			w.t.Fatalf("no %d writes more within %v: %v", n, morePatience, failed)
		}
	}
}

// stop ends the writers and returns what was acknowledged.
func (w *writers) stop() map[log.UUID]log.Seq {
	w.t.Helper()
	w.end()
	w.group.Wait()
	if w.failed != nil {
		w.t.Error(w.failed)
	}
	w.t.Logf("%d changes acknowledged, the longest time between two was %v", len(w.acked), w.gap.Round(time.Millisecond))
	return w.acked
}

// checkLogs compares the servers' whole logs with what was acknowledged.
func checkLogs(t *testing.T, api *client.Client, acked map[log.UUID]log.Seq) {
	t.Helper()
	for _, server := range api.Servers() {
		one, err := client.New(client.Config{Servers: []string{server}})
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[log.UUID]log.Seq)
		for line, err := range one.Log(t.Context(), client.LogQuery{Query: url.Values{"consistent": {"1"}}}) {
			if err != nil {
				t.Fatalf("%s: %v", server, err)
			}
			if seen[line.Event.ChangeID] != 0 && acked[line.Event.ChangeID] != 0 { // others may be of several entries
				t.Errorf("%s: change %s is there twice", server, line.Event.ChangeID)
			}
			seen[line.Event.ChangeID] = line.Seq
		}
		one.Close()
		lost := 0
		for id, seq := range acked {
			if seen[id] != seq {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%s: %d of %d acknowledged changes are lost or elsewhere", server, lost, len(acked))
		}
	}
}

// previousRelease returns the binary of the revision that PREVIOUS_RELEASE
// names, or ours: the same steps then restart the servers one by one.
func previousRelease(t *testing.T) string {
	revision := os.Getenv("PREVIOUS_RELEASE")
	if revision == "" {
		t.Log("PREVIOUS_RELEASE names no revision: the old binary is the new one")
		return program
	}
	dir := t.TempDir()
	build := exec.Command("bash", "-euo", "pipefail", "-c",
		`git -C ../.. archive "$1" | tar -x -C "$2" && cd "$2" && CGO_ENABLED=0 go build -trimpath -o previous ./cmd/rutter`, "bash", revision, dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", revision, err, out)
	}
	return filepath.Join(dir, "previous")
}

// A cluster of the previous release is upgraded and rolled back server by
// server while others write: no write fails, and none that was acknowledged is
// lost. Each stop hands the leadership over.
func TestUpgradeAndBackUnderLoad(t *testing.T) {
	t.Parallel()
	names := []string{"s1", "s2", "s3"}
	old := previousRelease(t)
	h := newHosts(t, names...)
	rounds := []string{program, old, program}
	if old == program {
		rounds = rounds[:1] // more would be the same again
	} else { // a new cluster has the feature version of the program that made it
		for _, name := range names {
			h.must(name, "rm /usr/bin/rutter && install -m 755 "+old+" /usr/bin/rutter")
		}
	}
	h, api := startServersOn(t, h, names, threePeers)
	w := startWriters(t, api, 8)
	for _, binary := range rounds {
		for _, name := range names {
			w.awaitMore(20)
			h.must(name, "install -m 755 "+binary+" /usr/bin/rutter.new && mv /usr/bin/rutter.new /usr/bin/rutter")
			h.must(name, "systemctl restart rutter-server")
			h.must(name, "rutter cluster status --wait 1m")
		}
	}
	w.awaitMore(20)
	checkLogs(t, api, w.stop())
	for _, name := range names {
		if out := h.must(name, "grep -c 'panic\\|level=ERROR' ROOT/log || true"); strings.TrimSpace(out) != "0" {
			h.showLogs()
			t.Errorf("%s logged errors", name)
		}
	}
}

// All servers stopped at once say nothing that sounds like trouble.
func TestStopTogether(t *testing.T) {
	t.Parallel()
	names := []string{"s1", "s2", "s3"}
	h, _ := startServers(t, names, threePeers)
	var stops sync.WaitGroup
	for _, name := range names {
		h.must(name, "wc -l < ROOT/log > ROOT/before")
	}
	for _, name := range names {
		stops.Go(func() {
			if out, err := h.sh(name, "systemctl stop rutter-server"); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		})
	}
	stops.Wait()
	for _, name := range names {
		out := h.must(name, `tail -n +$(($(cat ROOT/before) + 1)) ROOT/log | grep -v part=raft | grep 'level=WARN\|level=ERROR' || true`)
		if out != "" {
			t.Errorf("%s says at its end:\n%s", name, out)
		}
	}
}

// A server is told to replace its state by the others' while they write on.
func TestRebuildCommand(t *testing.T) {
	t.Parallel()
	h, api := startServers(t, []string{"s1", "s2", "s3"}, threePeers)
	w := startWriters(t, api, 4)
	w.awaitMore(20)
	for _, id := range []string{"s2", "s3"} {
		h.must("s1", "rutter cluster rebuild "+id+" && rutter cluster status --wait 1m")
		w.awaitMore(20)
	}
	checkLogs(t, api, w.stop())
}
