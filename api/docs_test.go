package api

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"rutter/api/internal/openapi"
	"rutter/log"
)

// docs/api.md has the tables of routes that the code makes. RUTTER_WRITE=1 writes them.
func TestDocsHaveTheRoutes(t *testing.T) {
	const page = "../docs/api.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: newMemory()})
	if err != nil {
		t.Fatal(err)
	}
	made := string(text)
	for section, rows := range tablesOf(t, s.Described()) {
		_, after, found := strings.Cut(made, "\n## "+section+"\n")
		_, table, more := strings.Cut(after, "\n"+tableHead)
		if !found || !more {
			t.Fatalf("docs/api.md has no section %q with a table", section)
		}
		if end := strings.Index(table, "\n\n"); end >= 0 {
			table = table[:end+1]
		}
		made = strings.Replace(made, tableHead+table, tableHead+rows, 1)
	}
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(page, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if made != string(text) {
		t.Error("docs/api.md differs from the routes: run this test with RUTTER_WRITE=1 and read what it wrote")
	}
}

const tableHead = "| route | who may | answers |\n|---|---|---|\n"

// tablesOf returns the rows of each section. The paths of kinds that are alike have one row.
func tablesOf(t *testing.T, endpoints []openapi.Endpoint) map[string]string {
	kindOfRow := func(e openapi.Endpoint) string {
		for _, k := range kinds {
			if rest, of := strings.CutPrefix(e.Pattern, "/"+k.path); of && k.kind != log.KindSetting {
				if a, ok := aboutKind(k, e.Method, rest); ok && a.Answers == e.About.Answers {
					return "/KIND" + rest
				}
			}
		}
		return e.Pattern
	}
	who, tables := map[string]string{}, map[string]string{}
	for _, e := range endpoints {
		if e.About.Answers == "" || e.About.Section == "" {
			t.Errorf("%s %s: nothing says what it answers", e.Method, e.Pattern)
		}
		name := e.Method + " " + kindOfRow(e)
		if was, seen := who[name]; seen {
			if was != e.Who {
				t.Errorf("%s %s: %s may, but the row %s says %s", e.Method, e.Pattern, e.Who, name, was)
			}
			continue
		}
		who[name] = e.Who
		tables[e.About.Section] += fmt.Sprintf("| `%s` | %s | %s |\n", name, e.Who, e.About.Answers)
	}
	return tables
}

// Reads have HEAD as well, which stands in no line.
func TestHeadGoesWithGet(t *testing.T) {
	b := newBed(t)
	for _, path := range []string{"/nic_tags", "/livez", "/status"} {
		get, head := b.call(http.MethodGet, path, ""), b.call(http.MethodHead, path, "")
		if head.Code != get.Code || head.Header().Get("Content-Type") != get.Header().Get("Content-Type") {
			t.Errorf("HEAD %s: %d, want %d as GET has it", path, head.Code, get.Code)
		}
	}
}
