package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

// The files are as the tables have them; RUTTER_WRITE=1 writes them.
func TestFilesAreMade(t *testing.T) {
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := write(root); err != nil {
			t.Fatal(err)
		}
	}
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range all {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not as the tables have it (%v): go run ./scripts/monitoring", path, err)
		}
	}
}

// promtool finds Prometheus's tool, or skips.
func promtool(t *testing.T) string {
	t.Helper()
	unpacked := "/var/cache/rutter-tests/prometheus/usr/bin/promtool"
	if _, err := os.Stat(unpacked); err == nil {
		return unpacked
	}
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: scripts/install-packages.sh as root unpacks Debian's package prometheus")
	}
	return path
}

// Prometheus takes the rules; each fires when it shall and is silent when it shall be.
func TestRules(t *testing.T) {
	tool := promtool(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml", "alerts_day_test.yml"}, {"check", "config", "--syntax-only", "prometheus.yml"}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	names := map[string]bool{}
	for _, a := range alerts() {
		fires, silent := 0, 0
		for _, c := range a.cases {
			if len(c.fires) > 0 {
				fires++
			} else {
				silent++
			}
		}
		if fires == 0 || silent == 0 {
			t.Errorf("%s: %d cases in which it fires, %d in which it must not: both are needed", a.name, fires, silent)
		}
		if names[a.name] || a.severity != page && a.severity != ticket || a.look == "" || a.do == "" || a.means == "" {
			t.Errorf("%s: named twice, or without severity or words for the page", a.name)
		}
		names[a.name] = true
	}
}

// Prometheus takes each query of the dashboard.
func TestQueries(t *testing.T) {
	tool := promtool(t)
	var f struct {
		Groups []any `yaml:"groups"`
	}
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []record
	for _, q := range queries() {
		all = append(all, record{fmt.Sprintf("query_%d", len(all)), strings.ReplaceAll(q.expr, "$__rate_interval", "5m")})
	}
	f.Groups = append(f.Groups, map[string]any{"name": "dashboard", "rules": all})
	b, err := yaml.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", "--lint=none", path).CombinedOutput(); err != nil || len(all) < 30 {
		t.Errorf("%d queries: %v\n%s", len(all), err, out)
	}
}

// Each metric that a rule or the dashboard names is one that the program has.
func TestMetricsExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(rutter_\\w+)(?:\\{[^}]*\\})?` \\| (\\w+) ").FindAllStringSubmatch(string(text), -1) {
		known[m[1]] = true
		if m[2] == "histogram" {
			known[m[1]+"_bucket"] = true
		}
	}
	used := map[string][]string{}
	note := func(where, expr string) {
		for _, name := range regexp.MustCompile(`\brutter_\w+`).FindAllString(expr, -1) {
			used[name] = append(used[name], where)
		}
	}
	for _, a := range alerts() {
		note("alert "+a.name, a.expr)
		note("alert "+a.name, a.look)
	}
	for _, q := range queries() {
		note("dashboard", q.expr)
	}
	for name, where := range used {
		if !known[name] {
			t.Errorf("%s is not in docs/metrics.md; used by %s", name, strings.Join(where, ", "))
		}
	}
	if len(used) < 40 {
		t.Errorf("%d metrics found: the test reads the tables wrongly", len(used))
	}
}

// queries are those of all panels.
func queries() (all []query) {
	for _, r := range rows() {
		for _, c := range r.panels {
			all = append(all, c.queries...)
		}
	}
	return all
}

// Panels do not lie over each other, and none leaves the grid.
func TestPanels(t *testing.T) {
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range theDashboard().Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: id %d twice, or beyond the grid", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" {
					t.Fatalf("%s lies over %s", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s has no query", p.Title)
		}
	}
}
