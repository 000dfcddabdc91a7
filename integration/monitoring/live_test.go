package monitoring

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
)

var program string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &program)) }

// patience bounds each wait: some times what a loaded machine was seen to need.
const patience = 3 * time.Minute

// files is the folder of what operators give to Prometheus.
const files = "../../scripts/monitoring"

// unpacked is where scripts/install-packages.sh unpacks Debian's prometheus.
const unpacked = "/var/cache/rutter-tests/prometheus/usr/bin/prometheus"

const cn = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"

// world is a cluster with TLS, an agent and a Prometheus.
type world struct {
	t       *testing.T
	dir     string
	cluster *bench.Cluster
	agentAt string // address of the agent's metrics
	agent   *subprocess.Process
	base    string // URL of Prometheus
}

// TestAlertsAndDashboard: every part of a healthy cluster is scraped and no alert fires; an
// agent that is stopped makes two fire, which clear when it is back; every query of the
// dashboard is answered, and those of what there is have values.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: an agent works on the kernel's links")
	}
	prometheus := unpacked
	if _, err := os.Stat(prometheus); err != nil {
		if prometheus, err = exec.LookPath("prometheus"); err != nil {
			t.Skip("no prometheus: scripts/install-packages.sh as root unpacks Debian's package")
		}
	}
	w := &world{t: t, dir: t.TempDir(), agentAt: rig.Address(t)}
	w.cluster = rig.Cluster(t, bench.Options{Program: program, TLS: true, Dir: w.dir})
	w.issue("cn", cn)
	w.issue("reader", "prometheus")
	w.issue("reader", "tenant")
	w.startAgent()
	w.refusesOthers()
	w.startPrometheus(prometheus)

	w.await("all targets are scraped", func() string {
		if up := w.value(`sum(up)`); up != 4 {
			return fmt.Sprintf("%v of 4 are up: %s", up, w.get("/api/v1/targets?state=active"))
		}
		return ""
	})
	w.await("the agent runs, as the servers see it", func() string {
		if n := w.value(`max(rutter_cns{status="running"})`); n != 1 {
			return fmt.Sprint(n, " nodes run")
		}
		return ""
	})
	w.awaitAlerts()
	if err := w.agent.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.awaitAlerts("RutterAgentDown", "RutterNodesUnknown")
	w.startAgent()
	w.awaitAlerts()
	w.dashboard()
}

func (w *world) issue(role, name string) {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), program, "cert", "issue", role, name, "--dir", filepath.Join(w.dir, "pki"), "--out", filepath.Join(w.dir, "tls-"+name)).CombinedOutput()
	if err != nil {
		w.t.Fatalf("cert issue %s: %v\n%s", name, err, out)
	}
}

func (w *world) startAgent() {
	w.t.Helper()
	folder := filepath.Join(w.dir, "agent")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		w.t.Fatal(err)
	}
	var urls []string
	for _, s := range w.cluster.Servers {
		urls = append(urls, s.URL)
	}
	w.agent = &subprocess.Process{Name: "agent", Program: program, LogFile: filepath.Join(w.dir, "agent.log"), Args: []string{
		"agent", "--cn", cn, "--servers", strings.Join(urls, ","), "--tls-dir", filepath.Join(w.dir, "tls-"+cn), "--data", folder, "--metrics", w.agentAt,
		"--svp", "off", "--listen", "off", "--socket", "off", "--vminfod", "off", "--manifests", "off", "--netns", filepath.Join(w.dir, "netns"), "--etc-netns", filepath.Join(w.dir, "etc-netns"),
	}}
	rig.Start(w.t, w.agent)
}

// refusesOthers: the node's metrics are for whom its settings name.
func (w *world) refusesOthers() {
	w.t.Helper()
	w.await("the agent's metrics for prometheus, and for no other reader", func() string {
		ask := func(name string) string {
			dir := filepath.Join(w.dir, "tls-"+name)
			out, err := exec.CommandContext(w.t.Context(), "curl", "-sS", "--max-time", "20", "--cacert", filepath.Join(dir, "ca.crt"), "--cert", filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key"), "--insecure", "https://"+w.agentAt+"/metrics").CombinedOutput()
			if err != nil {
				return err.Error()
			}
			return string(out)
		}
		if text := ask("prometheus"); !strings.Contains(text, "\nrutter_agent_following ") {
			return "prometheus gets: " + text
		}
		if text := ask("tenant"); strings.Contains(text, "rutter_agent") {
			return "another reader gets: " + text
		}
		return ""
	})
}

// startPrometheus starts one with the files that operators have, but for addresses and
// times: what takes minutes takes seconds.
func (w *world) startPrometheus(prometheus string) {
	w.t.Helper()
	home := filepath.Join(w.dir, "prometheus")
	if err := os.MkdirAll(home, 0o700); err != nil {
		w.t.Fatal(err)
	}
	var servers []string
	for _, s := range w.cluster.Servers {
		servers = append(servers, strings.TrimPrefix(s.URL, "https://"))
	}
	w.copy(home, "prometheus.yml", map[string]string{
		`"10.0.0.1:7420", "10.0.0.2:7420", "10.0.0.3:7420"`: quoted(servers),
		`"10.0.0.11:5310", "10.0.0.12:5310"`:                quoted([]string{w.agentAt}),
		"/etc/prometheus/rutter":                            filepath.Join(w.dir, "tls-prometheus"),
		"interval: 15s":                                     "interval: 1s",
	})
	w.copy(home, "alerts.yml", map[string]string{"for: 1m\n": "for: 2s\n", "for: 2m\n": "for: 2s\n", "for: 3m\n": "for: 10s\n"})
	at := rig.Address(w.t)
	w.base = "http://" + at
	rig.Start(w.t, &subprocess.Process{Name: "prometheus", Program: prometheus, LogFile: filepath.Join(home, "log"), Args: []string{
		"--config.file", filepath.Join(home, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(home, "data"), "--web.listen-address", at,
	}})
}

// copy writes a file of scripts/monitoring with these texts replaced, each of which it must have.
func (w *world) copy(home, name string, replaced map[string]string) {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(files, name))
	if err != nil {
		w.t.Fatal(err)
	}
	text := string(b)
	for from, to := range replaced {
		if !strings.Contains(text, from) {
			w.t.Fatalf("%s does not have %q", name, from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func quoted(list []string) string {
	for i := range list {
		list[i] = fmt.Sprintf("%q", list[i])
	}
	return strings.Join(list, ", ")
}

// await waits until wrong says nothing.
func (w *world) await(what string, wrong func() string) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		said := wrong()
		if said == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: after %v: %s", what, patience, said)
		}
	}
}

// get asks Prometheus; while it cannot be asked the answer is empty.
func (w *world) get(path string) string {
	resp, err := http.Get(w.base + path)
	if err != nil {
		return ""
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		return ""
	}
	return string(b)
}

// answer is Prometheus's to an instant query.
type answer struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
}

func (w *world) query(expr string) (a answer) {
	_ = json.Unmarshal([]byte(w.get("/api/v1/query?query="+url.QueryEscape(expr))), &a) // empty: it cannot be asked yet
	return a
}

// value is the one value of an expression; -1: there is none.
func (w *world) value(expr string) float64 {
	a := w.query(expr)
	if len(a.Data.Result) != 1 {
		return -1
	}
	var v float64
	if _, err := fmt.Sscan(a.Data.Result[0].Value[1].(string), &v); err != nil {
		return -1
	}
	return v
}

// awaitAlerts waits until exactly these alerts fire.
func (w *world) awaitAlerts(want ...string) {
	w.t.Helper()
	w.await(fmt.Sprintf("the alerts %q", want), func() string {
		var got []string
		for _, r := range w.query(`ALERTS{alertstate="firing"}`).Data.Result {
			got = append(got, r.Metric["alertname"])
		}
		slices.Sort(got)
		if got = slices.Compact(got); slices.Equal(got, want) && w.value("count(up)") == 4 {
			return ""
		}
		return fmt.Sprintf("%q fire", got)
	})
}

// empty are the queries of the dashboard that have no value in a small healthy cluster:
// nothing is wrong, no VM is there, and no backup is scheduled.
var empty = regexp.MustCompile(`backup|port_drops|drift|refused|cn_lag|cn_failing|programmed`)

// dashboard asks each query of the dashboard.
func (w *world) dashboard() {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(files, "dashboard.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		w.t.Fatal(err)
	}
	asked := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "10s", "$server", ".*").Replace(target.Expr)
			a := w.query(expr)
			if asked++; a.Status != "success" || len(a.Data.Result) == 0 && !empty.MatchString(expr) {
				w.t.Errorf("%s: %s: %s %s, %d values", p.Title, expr, a.Status, a.Error, len(a.Data.Result))
			}
		}
	}
	if asked < 30 {
		w.t.Errorf("%d queries asked", asked)
	}
}
