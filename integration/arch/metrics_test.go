package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// metric is one that the program's source names.
type metric struct {
	name, kind, help string
	labels           []string
	where            string
}

// line is the metric's line in docs/metrics.md.
func (m metric) line() string {
	name := m.name
	if m.labels != nil {
		name += "{" + strings.Join(m.labels, ",") + "}"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", name, m.kind, m.unit(), m.help)
}

// unit is what the name of a metric says that it counts.
func (m metric) unit() string {
	name := strings.TrimSuffix(m.name, "_total")
	switch {
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.HasSuffix(name, "_ns"):
		return "ns"
	case strings.HasSuffix(name, "bytes"), strings.HasSuffix(name, "_bytes_sent"):
		return "bytes"
	case strings.HasSuffix(name, "_seq"):
		return "seq"
	}
	return "1"
}

// docs/metrics.md has a line of each metric that the source registers, and no other.
func TestDocsHaveTheMetrics(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	known := make(map[string]bool)
	for _, m := range metricsOf(moduleFiles(t)) {
		known[m.name] = true
		want := m.line()
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("%s: docs/metrics.md must have the line %s", m.where, want)
		}
	}
	for _, line := range lines {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		name, _, _ = strings.Cut(name, "{")
		if strings.HasPrefix(line, "| `rutter_") && !known[name] {
			t.Errorf("docs/metrics.md has %s, which nothing registers", name)
		}
	}
	if len(known) < 100 {
		t.Errorf("%d metrics were found: the test reads the source wrongly", len(known))
	}
}

// metricsOf are the metrics that the product's files register, by name: what a call
// of prometheus or of a helper has as a name, its help and its labels.
func metricsOf(files []*file) (all []metric) {
	for _, f := range files {
		if f.test || under(f.dir(), "integration") {
			continue
		}
		var calls []*ast.CallExpr // those that stand around the node
		ast.PreorderStack(f.ast, nil, func(n ast.Node, stack []ast.Node) bool {
			calls = calls[:0]
			for _, above := range slices.Backward(stack) {
				if call, ok := above.(*ast.CallExpr); ok {
					calls = append(calls, call)
				}
			}
			m, ok := metricAt(n, calls)
			if ok {
				m.where = f.at(n.Pos())
				all = append(all, m)
			}
			return true
		})
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return all
}

// metricAt is the metric that a node registers; calls are those around it, the nearest
// first.
func metricAt(n ast.Node, calls []*ast.CallExpr) (m metric, ok bool) {
	switch n := n.(type) {
	case *ast.CompositeLit: // prometheus.CounterOpts{Name: …, Help: …}
		kind, ok := strings.CutSuffix(lastName(n.Type), "Opts")
		if !ok || len(n.Elts) == 0 {
			return m, false
		}
		m.kind = strings.ToLower(kind)
		for _, e := range n.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok {
				switch lastName(pair.Key) {
				case "Name":
					m.name = textOf(pair.Value)
				case "Help":
					m.help = textOf(pair.Value)
				}
			}
		}
		if len(calls) > 0 && len(calls[0].Args) > 1 {
			m.labels = textsOf(calls[0].Args[1])
		}
	case *ast.CallExpr:
		m = metricOfCall(n)
	}
	return m, strings.HasPrefix(m.name, "rutter_")
}

func metricOfCall(n *ast.CallExpr) (m metric) {
	if len(n.Args) < 2 {
		return m
	}
	m.name, m.help = textOf(n.Args[0]), textOf(n.Args[1])
	switch lastName(n.Fun) {
	case "counter":
		m.kind = "counter"
	case "gauge":
		m.kind = "gauge"
	case "Requests":
		m.kind, m.labels = "counter", []string{"route", "method", textOf(n.Args[2])}
	case "counts":
		m.kind, m.labels, m.help = "counter", []string{textOf(n.Args[1])}, textOf(n.Args[2])
	case "times":
		m.kind = "histogram"
	case "NewDesc":
		m.kind = "gauge"
		if strings.HasSuffix(m.name, "_total") {
			m.kind = "counter"
		}
		if len(n.Args) > 2 {
			m.labels = textsOf(n.Args[2])
		}
	case "add": // of the store's metrics
		if kind := lastName(n.Args[0]); kind == "counter" || kind == "gauge" {
			m = metric{name: "rutter_store_" + textOf(n.Args[1]), kind: kind, help: textOf(n.Args[2])}
		}
	default:
		return metric{}
	}
	return m
}

// lastName is the name of an expression, without its package; "" if it has none.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// textOf is a text that stands in the source; "" if it is something else.
func textOf(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		text, _ := strconv.Unquote(lit.Value) // the parser took it
		return text
	}
	return ""
}

// textsOf are the texts of a list; nil if it is something else.
func textsOf(e ast.Expr) (all []string) {
	if list, ok := e.(*ast.CompositeLit); ok {
		for _, one := range list.Elts {
			all = append(all, textOf(one))
		}
	}
	return all
}
