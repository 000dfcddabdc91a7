package metrics

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	agentmetrics "rutter/agent/metrics"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/messages"
)

// page has a line of each metric.
const page = "../../docs/metrics.md"

// metric is one that a collector describes.
type metric struct {
	name, kind, help string
	labels           []string
}

// describedForm is what Desc.String makes, the only way to read a Desc.
var describedForm = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// described returns the metrics of collectors that are ours, by name.
func described(t *testing.T, collectors []prometheus.Collector) map[string]metric {
	t.Helper()
	all := make(map[string]metric)
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		n := 0
		for desc := range descs {
			n++
			parts := describedForm.FindStringSubmatch(desc.String())
			if parts == nil {
				t.Fatalf("what is this? %s", desc)
			}
			m := metric{kind: kindOf(c)}
			var err error
			if m.name, err = strconv.Unquote(parts[1]); err != nil {
				t.Fatal(err)
			}
			if m.help, err = strconv.Unquote(parts[2]); err != nil {
				t.Fatal(err)
			}
			if parts[3] != "" {
				m.labels = strings.Split(parts[3], ",")
			}
			if m.kind == "" {
				m.kind = "gauge"
				if strings.HasSuffix(m.name, "_total") {
					m.kind = "counter"
				}
			}
			if _, twice := all[m.name]; twice {
				t.Errorf("%s is described twice", m.name)
			}
			if strings.HasPrefix(m.name, "rutter_") {
				all[m.name] = m
			}
		}
		if n == 0 {
			t.Errorf("%T describes nothing", c)
		}
	}
	return all
}

// kindOf is the type of a collector's metrics, as its own type says it; "" if it does not.
// TestThePageIsWhatIsAnswered compares the types with what is answered.
func kindOf(c prometheus.Collector) string {
	name := strings.ToLower(reflect.Indirect(reflect.ValueOf(c)).Type().Name())
	for _, kind := range []string{"histogram", "counter", "gauge"} {
		if strings.HasPrefix(name, kind) {
			return kind
		}
	}
	return ""
}

// histograms are those of collectors that have other metrics too.
var histograms = map[string]bool{"rutter_programmed_seconds": true, "rutter_agent_programmed_seconds": true}

// unit is what the name of a metric says that it counts.
func (m metric) unit() string {
	name := strings.TrimSuffix(m.name, "_total")
	switch {
	case strings.HasSuffix(name, "_per_second"):
		return "1/s"
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.HasSuffix(name, "_ratio"):
		return "ratio"
	case strings.HasSuffix(name, "bytes"), strings.HasSuffix(name, "_bytes_sent"):
		return "bytes"
	case strings.HasSuffix(name, "_seq"):
		return "seq"
	}
	return "1"
}

// line is the metric's line in the page.
func (m metric) line() string {
	name := m.name
	if m.labels != nil {
		name += "{" + strings.Join(m.labels, ",") + "}"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", name, m.kind, m.unit(), m.help)
}

// section is a part of the page, with the metrics whose names begin with one of prefixes.
type section struct {
	title    string
	text     string // before the table
	prefixes []string
	// guide are lines behind the table that say what to ask these metrics for, and where
	// to read on.
	guide []string
}

// ofServers and ofAgents return what each has, with every part that is optional.
func ofServers(t *testing.T, w *world) map[string]metric {
	return described(t, append(slices.Clone(w.server.Collectors()), tlsgate.Metrics{}))
}

func ofAgents(t *testing.T) map[string]metric {
	return described(t, append([]prometheus.Collector{agentmetrics.New(agentmetrics.Config{})}, messages.Collectors("rutter_agent_")...))
}

// render makes the page.
func render(t *testing.T, servers, agents map[string]metric) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(opening)
	left := make(map[string]metric)
	for _, m := range servers {
		left[m.name] = m
	}
	for _, m := range agents {
		if other, both := left[m.name]; both && !reflect.DeepEqual(m, other) {
			t.Errorf("%s is one thing on servers and another on agents", m.name)
		}
		left[m.name] = m
	}
	for _, s := range sections {
		var rows []metric
		for name, m := range left {
			if slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				rows = append(rows, m)
				delete(left, name)
			}
		}
		if rows == nil {
			t.Errorf("the section %q has no metric", s.title)
		}
		slices.SortFunc(rows, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
		fmt.Fprintf(&b, "\n## %s\n\n%s| metric | type | unit | meaning |\n|---|---|---|---|\n", s.title, s.text)
		for _, m := range rows {
			if histograms[m.name] {
				m.kind = "histogram"
			}
			fmt.Fprintln(&b, m.line())
		}
		if s.guide != nil {
			b.WriteString("\n")
		}
		for _, line := range s.guide {
			fmt.Fprintln(&b, line)
		}
	}
	for name := range left {
		t.Errorf("%s belongs to no section: page_test.go has them", name)
	}
	return b.String()
}

// docs/metrics.md has each metric of servers and of agents, as its collector describes it,
// and no other. RUTTER_WRITE=1 writes the page.
func TestDocsHaveTheMetrics(t *testing.T) {
	w := start(t)
	servers, agents := ofServers(t, w), ofAgents(t)
	if len(servers) < 120 || len(agents) < 55 {
		t.Errorf("%d metrics of servers and %d of agents: some collectors are missing", len(servers), len(agents))
	}
	want := render(t, servers, agents)
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, []byte(want)) {
		have := strings.Split(string(got), "\n")
		for line := range strings.Lines(want) {
			if line = strings.TrimSuffix(line, "\n"); !slices.Contains(have, line) {
				t.Errorf("%s lacks: %s", filepath.Base(page), line)
			}
		}
		for _, line := range have {
			if !strings.Contains(want, line+"\n") {
				t.Errorf("%s must not have: %s", filepath.Base(page), line)
			}
		}
		t.Error("write it with: RUTTER_WRITE=1 go test ./integration/metrics -run DocsHave")
	}
}

// What a server and an agent answer is what the page says: each name with its type, its
// labels and its help.
func TestThePageIsWhatIsAnswered(t *testing.T) {
	w := start(t)
	_, status := w.startNode(t, cns(1), "node")
	await(t, w.url, "the node is there", func(all map[string]float64) bool { return all["rutter_cns_connected"] == 1 })
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string) // by name: labels, type, help
	for _, row := range regexp.MustCompile("(?m)^\\| `(rutter_[a-z0-9_]+)(?:\\{(.*)\\})?` \\| ([a-z]+) \\| [^|]* \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		rows[row[1]] = row[2:]
	}
	found := 0
	for _, url := range []string{w.url, status} {
		answer := scrape(t, url)
		for _, head := range regexp.MustCompile(`(?m)^# HELP (rutter_[a-z0-9_]+) (.*)\n# TYPE (?:\S+) (\S+)\n([^ ]+)`).FindAllStringSubmatch(answer, -1) {
			row := rows[head[1]]
			if row == nil || row[1] != head[3] || row[2] != head[2] {
				t.Errorf("%s is a %s, %q; the page has %q", head[1], head[3], head[2], row)
				continue
			}
			found++
			for _, label := range regexp.MustCompile(`[{,]([a-z_]+)="`).FindAllStringSubmatch(head[4], -1) {
				if label[1] != "le" && !slices.Contains(strings.Split(row[0], ","), label[1]) {
					t.Errorf("%s has the label %s, and the page %q", head[1], label[1], row[0])
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d metrics were found in the answers", found)
	}
}
