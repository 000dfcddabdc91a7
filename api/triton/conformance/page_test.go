package conformance

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// docs/conformance.md has what the data says.
func TestPage(t *testing.T) {
	const page = "../../../docs/conformance.md"
	groups, err := All()
	if err != nil {
		t.Fatal(err)
	}
	want := pageOf(groups)
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%s does not say what the rows say (%v): RUTTER_WRITE=1 go test ./api/triton/conformance -run TestPage", page, err)
	}
}

// pageHead is what docs/conformance.md begins with.
const pageHead = `# The conformance table

Each row is a documented call, or a documented refusal, of NAPI, CNAPI, VMAPI or their changefeed. The rows are data in [api/triton/conformance/data](../api/triton/conformance/data/README.md), and this page is made from them (RUTTER_WRITE=1 go test ./api/triton/conformance -run TestPage). ` + "`integration/conformance`" + ` runs all of them against a real server. ` + "`rutter triton check URL`" + ` sends those with an R, which need no fixtures and write nothing, to any server, the old one or Rutter's ([triton.md](triton.md), section 3).

A D marks a call that Rutter answers otherwise on purpose: section 5 of [triton.md](triton.md) has the reason.

`

// pageOf is docs/conformance.md: the rows by group, with their sources and counts.
func pageOf(groups []*Group) string {
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString("| group | rows | read-only | refusals | departures |\n|---|---|---|---|---|\n")
	var all counted
	for _, g := range groups {
		n := count(g)
		all.add(n)
		fmt.Fprintf(&b, "| %s | %s |\n", g.Title, n)
	}
	fmt.Fprintf(&b, "| all | %s |\n", all)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n| row | | call | answer | shows | source |\n|---|---|---|---|---|---|\n", g.Title)
		for _, r := range g.Rows {
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %s |\n", strings.TrimPrefix(r.ID, g.Name+"."), marks(r), r.asked(), r.answered(), cell(r.Shows), cell(r.Source))
		}
	}
	return b.String()
}

// counted are the counts of a group.
type counted struct{ rows, readOnly, refusals, departures int }

func (n counted) String() string {
	return fmt.Sprintf("%d | %d | %d | %d", n.rows, n.readOnly, n.refusals, n.departures)
}

func (n *counted) add(m counted) {
	n.rows += m.rows
	n.readOnly += m.readOnly
	n.refusals += m.refusals
	n.departures += m.departures
}

func count(g *Group) (n counted) {
	n.rows = len(g.Rows)
	for _, r := range g.Rows {
		if r.ReadOnly {
			n.readOnly++
		}
		if r.Status[0] >= http.StatusBadRequest {
			n.refusals++
		}
		if r.Departure != "" {
			n.departures++
		}
	}
	return n
}

// marks are the letters of a row.
func marks(r *Row) string {
	text := ""
	if r.ReadOnly {
		text += "R"
	}
	if r.Departure != "" {
		text += "D"
	}
	return text
}

// asked is the call with its query, as people read it.
func (r *Row) asked() string {
	text := r.Call
	separator := "?"
	for _, name := range sortedKeys(r.Query) {
		text += separator + name + "=" + r.Query[name]
		separator = "&"
	}
	return cell(text)
}

// answered is the status, and the code of a refusal.
func (r *Row) answered() string {
	var texts []string
	for _, s := range r.Status {
		texts = append(texts, fmt.Sprint(s))
	}
	return strings.TrimSpace(strings.Join(texts, " or ") + " " + r.Code)
}

// cell is a text in a table of Markdown.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}
