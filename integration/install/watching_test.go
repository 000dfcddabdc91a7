package install

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"rutter/integration/pages"
)

// monitoring is where the package puts what Prometheus gets.
const monitoring = "/usr/share/rutter/monitoring"

// Times of the files of Prometheus that the walk shortens, in the files of the package, before
// they are copied. What an operator waits for is longer: see typing.
var shortened = []struct{ file, from, to string }{
	{"prometheus.yml", "interval: 15s", "interval: 1s"},
	{"alerts.yml", "for: 1m$", "for: 2s"},
	{"alerts.yml", "for: 2m$", "for: 2s"},
	{"alerts.yml", "for: 3m$", "for: 10s"},
}

// shorten makes seconds of the minutes in the files of Prometheus.
func shorten(w *walk, _ pages.Step) {
	for _, s := range shortened {
		file := monitoring + "/" + s.file
		w.must("admin", fmt.Sprintf("grep -q '%s' %s && sed -i 's/%s/%s/' %s", s.from, file, s.from, s.to, file))
	}
}

// answer is that of Prometheus.
type answer struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
}

func (w *walk) query(expr string) (a answer) {
	w.t.Helper()
	out, err := w.sh("admin", "curl -sS --data-urlencode query='"+strings.ReplaceAll(expr, "'", `'\''`)+"' http://127.0.0.1:9090/api/v1/query")
	if err == nil {
		err = json.Unmarshal([]byte(out), &a)
	}
	if err != nil {
		w.t.Fatalf("Prometheus was asked %s: %v\n%s", expr, err, out)
	}
	return a
}

// value is the one value of an expression; "": there is none.
func (w *walk) value(expr string) string {
	w.t.Helper()
	a := w.query(expr)
	if len(a.Data.Result) != 1 {
		return ""
	}
	return fmt.Sprint(a.Data.Result[0].Value[1])
}

// panels are the queries of the dashboard of the package, by title.
func (w *walk) panels() map[string][]string {
	w.t.Helper()
	b, err := os.ReadFile(w.path("admin", "root"+monitoring+"/dashboard.json"))
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string][]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], strings.NewReplacer("$__rate_interval", "10s", "$server", ".*").Replace(target.Expr))
		}
	}
	return all
}

// awaitPanels waits until the first queries of these panels have these values.
func (w *walk) awaitPanels(want map[string]string) {
	w.t.Helper()
	all := w.panels()
	for end := time.Now().Add(scriptPatience); ; time.Sleep(200 * time.Millisecond) {
		var wrong []string
		for title, value := range want {
			if got := w.value(all[title][0]); got != value {
				wrong = append(wrong, fmt.Sprintf("%s: %q, want %q", title, got, value))
			}
		}
		if wrong == nil {
			return
		}
		if time.Now().After(end) {
			w.t.Errorf("the dashboard's panels after %v: %s; %v", scriptPatience, strings.Join(wrong, "; "), w.firing())
			return
		}
	}
}

// firing are the alerts that fire.
func (w *walk) firing() (names []string) {
	w.t.Helper()
	for _, r := range w.query(`ALERTS{alertstate="firing"}`).Data.Result {
		names = append(names, r.Metric["alertname"])
	}
	return names
}

// healthy: the dashboard says so, and the agents' metrics have their helpers'.
func healthy(w *walk, _, _ string) {
	w.awaitPanels(map[string]string{"Servers that can serve": "3", "Leaders": "1", "Alerts": "0", "Nodes that are not heard of": "0", "NICs waiting": "0", "Agents that answer": "2"})
	for expr, want := range map[string]string{
		"sum(rutter_agent_vm_helper_up)":                                     "2",
		`sum(rutter_agent_vm_helper_requests_total{result="done"}) >=bool 1`: "1",
		`sum(rutter_agent_vm_helper_requests_total{result="failed"})`:        "0",
	} {
		if got := w.value(expr); got != want {
			w.t.Errorf("%s is %q, want %q", expr, got, want)
		}
	}
}

// shown: the dashboard has the agent that stopped, and no alert fires but those about it.
func shown(w *walk, _, _ string) {
	w.awaitPanels(map[string]string{"Nodes that are not heard of": "1", "Agents that answer": "1", "Alerts": "2"})
	for _, name := range w.firing() {
		if name != "RutterAgentDown" && name != "RutterNodesUnknown" {
			w.t.Errorf("%s fires", name)
		}
	}
}

func cleared(w *walk, _, _ string) {
	w.awaitPanels(map[string]string{"Nodes that are not heard of": "0", "Agents that answer": "2", "Alerts": "0"})
}

// empty are queries of the dashboard that have no value in a small cluster where nothing is wrong.
var empty = regexp.MustCompile(`port_drops|drift|refused|cn_lag|cn_failing|programmed`)

// restored: what was compared had the four NICs of the page. The dashboard is looked at here,
// because there is a backup now.
func restored(w *walk, name, _ string) {
	if out := w.must(name, "cat /root/drill.csv"); strings.Count(out, "\n") != 5 || !strings.Contains(out, "10.7.0.12") {
		w.t.Errorf("the restored server has these NICs:\n%s", out)
	}
	dashboard(w)
}

// dashboard: Prometheus answers each query of the dashboard. Grafana itself is not run: it is
// not in Debian.
func dashboard(w *walk) {
	w.awaitPanels(map[string]string{"Alerts": "0"})
	asked := 0
	for title, list := range w.panels() {
		for _, expr := range list {
			a := w.query(expr)
			if asked++; a.Status != "success" || len(a.Data.Result) == 0 && !empty.MatchString(expr) {
				w.t.Errorf("%s: %s: %s %s, %d values", title, expr, a.Status, a.Error, len(a.Data.Result))
			}
		}
	}
	if asked < 30 {
		w.t.Errorf("%d queries asked", asked)
	}
}

// helperEnds: a helper of VMs that stands still is ended by its watchdog and started again,
// with the stacks of its goroutines in the journal. The VM goes on.
func helperEnds(w *walk, name, _ string) {
	const pid = "cat /run/rutter/vms/5595d88c-6e4d-4bda-b58e-97dd02e30001*"
	w.vm1 = w.must(name, pid)
	w.must(name, `mkdir -p /run/systemd/system/rutter-vms.service.d
printf '[Service]\nWatchdogSec=2\n' > /run/systemd/system/rutter-vms.service.d/test.conf
systemctl daemon-reload
systemctl restart rutter-vms
kill -STOP $(systemctl show -P MainPID rutter-vms)`)
	w.awaitText(name, "systemctl show -P NRestarts rutter-vms", "1")
	w.awaitText(name, "systemctl show -P StatusText rutter-vms", "runs VMs for the agent")
	journal := w.must(name, "journalctl --no-pager -o cat -u rutter-vms")
	for _, want := range []string{"Watchdog timeout", "goroutine ", "status=2"} {
		if !strings.Contains(journal, want) {
			w.t.Errorf("the journal of rutter-vms lacks %q", want)
		}
	}
	w.must(name, "rm -r /run/systemd/system/rutter-vms.service.d; systemctl daemon-reload; systemctl restart rutter-vms")
	if now := w.must(name, pid); now != w.vm1 {
		w.t.Errorf("the VM was process %s and is %s", w.vm1, now)
	}
}
