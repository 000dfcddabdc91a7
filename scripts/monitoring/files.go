package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// made says at the top of each file where it comes from.
const made = "Made by go run ./scripts/monitoring from the tables there; do not edit."

// selector is a label matcher of all labels, sorted.
func selector(labels map[string]string) string {
	names := make([]string, 0, len(labels))
	for name := range labels {
		names = append(names, name)
	}
	slices.Sort(names)
	pairs := make([]string, len(names))
	for i, name := range names {
		pairs[i] = fmt.Sprintf("%s=%q", name, labels[name])
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// Forms of Prometheus's files of rules and of their tests (prometheus.io/docs, "Alerting
// rules" and "Unit testing for rules").
type (
	ruleFile struct {
		Groups []ruleGroup `yaml:"groups"`
	}
	ruleGroup struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	rule struct {
		Alert       string            `yaml:"alert"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	}
	testFile struct {
		RuleFiles []string   `yaml:"rule_files"`
		Interval  string     `yaml:"evaluation_interval"`
		Tests     []testCase `yaml:"tests"`
	}
	testCase struct {
		Name     string      `yaml:"name"`
		Interval string      `yaml:"interval"`
		Series   []input     `yaml:"input_series"`
		Alerts   []alertTest `yaml:"alert_rule_test"`
	}
	input struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	alertTest struct {
		At     string     `yaml:"eval_time"`
		Alert  string     `yaml:"alertname"`
		Expect []expected `yaml:"exp_alerts"`
	}
	expected struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	}
)

// anchor is the heading of the alert in docs/alerts.md.
func (a alert) anchor() string { return strings.ToLower(a.name) }

// annotations are those of the rule; only the summary has what Prometheus fills in.
func (a alert) annotations(summary string) map[string]string {
	return map[string]string{
		"summary": summary, "description": a.means + " Begin with: " + a.look,
		"runbook": "docs/alerts.md#" + a.anchor(),
	}
}

// templated is a value or a label that Prometheus fills in.
var templated = regexp.MustCompile(`\{\{ \$(value|labels\.(\w+))[^}]*\}\}`)

// filled is the summary as Prometheus fills it in for an alert with these labels.
func (a alert) filled(labels map[string]string) string {
	return templated.ReplaceAllStringFunc(a.summary, func(s string) string {
		if label := templated.FindStringSubmatch(s)[2]; label != "" {
			return labels[label]
		}
		return a.shows
	})
}

// rules are the alert rules.
func rules() (f ruleFile) {
	for _, g := range groups() {
		out := ruleGroup{Name: g.name}
		for _, a := range g.alerts {
			out.Rules = append(out.Rules, rule{
				Alert: a.name, Expr: a.expr, For: a.after,
				Labels:      map[string]string{"severity": a.severity},
				Annotations: a.annotations(a.summary),
			})
		}
		f.Groups = append(f.Groups, out)
	}
	return f
}

// tests are the cases of the alerts that wait for a day, or of all others. For the former the
// rules are evaluated each half an hour: promtool evaluates all rules for each case, and 25 hours
// of minutes were nine tenths of its time.
func tests(day bool) testFile {
	f := testFile{RuleFiles: []string{"alerts.yml"}, Interval: "1m"}
	if day {
		f.Interval = "30m"
	}
	for _, a := range alerts() {
		if (a.after == "1d") != day {
			continue
		}
		for i, c := range a.cases {
			t := testCase{Name: fmt.Sprintf("%s, case %d", a.name, i+1), Interval: "1m"}
			for _, s := range c.series {
				t.Series = append(t.Series, input{s.name, s.values})
			}
			expect := alertTest{At: c.at, Alert: a.name, Expect: []expected{}}
			for _, labels := range c.fires {
				expect.Expect = append(expect.Expect, expected{more(labels, "severity", a.severity), a.annotations(a.filled(labels))})
			}
			t.Alerts = []alertTest{expect}
			f.Tests = append(f.Tests, t)
		}
	}
	return f
}

// alertPage is docs/alerts.md.
func alertPage() string {
	var b strings.Builder
	b.WriteString("# Alerts\n\n<!-- " + made + " -->\n\n" + pageHead)
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n## %s\n", g.title)
		for _, a := range g.alerts {
			fmt.Fprintf(&b, "\n### %s\n\n", a.name)
			fmt.Fprintf(&b, "%s\n\n", wrapped(a.means))
			fmt.Fprintf(&b, "- When: `%s`", a.expr)
			if a.after != "0m" {
				fmt.Fprintf(&b, " for %s", a.after)
			}
			fmt.Fprintf(&b, " (%s).\n- Begin with: `%s`\n- What ends it: %s\n", a.severity, a.look, a.do)
		}
	}
	return b.String()
}

const pageHead = `The rules are in [scripts/monitoring/alerts.yml](../scripts/monitoring/alerts.yml); in a
package they are in /usr/share/rutter/monitoring. [monitoring.md](monitoring.md) says how to
set them up, [metrics.md](metrics.md) what each metric is. An alert with the severity page
is worth waking an operator; a ticket is seen to in working hours. promtool tests each rule
with a case in which it fires and one in which it must not (alerts_test.yml).
`

// wrapped is text in lines of at most 92 bytes.
func wrapped(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > 92 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n")
}

// files are all that this program makes, by their path from the module's root.
func files() (map[string][]byte, error) {
	all := map[string][]byte{"docs/alerts.md": []byte(alertPage())}
	for path, v := range map[string]any{"scripts/monitoring/alerts.yml": rules(), "scripts/monitoring/alerts_test.yml": tests(false), "scripts/monitoring/alerts_day_test.yml": tests(true)} {
		var b bytes.Buffer
		b.WriteString("# " + made + "\n")
		e := yaml.NewEncoder(&b)
		e.SetIndent(2)
		if err := e.Encode(v); err != nil {
			return nil, err
		}
		all[path] = b.Bytes()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(theDashboard()); err != nil {
		return nil, err
	}
	all["scripts/monitoring/dashboard.json"] = b.Bytes()
	return all, nil
}
