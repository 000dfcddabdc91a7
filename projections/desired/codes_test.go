package desired_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rutter/projections/desired"
)

// foundIn returns each code with the levels that calls of find, fault and doubt in this
// package give it.
func foundIn(t *testing.T) map[string]map[string]bool {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	level := map[string]string{"Fault": desired.Fault, "Doubt": desired.Doubt, "Note": desired.Note, "fault": desired.Fault, "doubt": desired.Doubt}
	found := map[string]map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			method, is := call.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			of, args := level[method.Sel.Name], call.Args
			if method.Sel.Name == "find" {
				constant, is := args[0].(*ast.Ident)
				if !is || constant.Name == "level" { // of fault and doubt
					return true
				}
				of, args = level[constant.Name], args[1:]
			}
			if of == "" {
				return true
			}
			if literal, is := args[0].(*ast.BasicLit); is {
				code, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				if found[code] == nil {
					found[code] = map[string]bool{}
				}
				found[code][of] = true
			} else if method.Sel.Name == "find" {
				if ident, is := args[0].(*ast.Ident); !is || ident.Name != "code" {
					t.Errorf("%s: a code that is no literal", name)
				}
			}
			return true
		})
	}
	return found
}

// Each thing that a trace can find has one code, of one level, which is in the table of
// codes. The table has no other.
func TestCodes(t *testing.T) {
	found := foundIn(t)
	listed := map[string]bool{}
	for _, c := range desired.Codes() {
		if listed[c.Code] {
			t.Errorf("%s is listed twice", c.Code)
		}
		listed[c.Code] = true
		if levels := found[c.Code]; len(levels) != 1 || !levels[c.Level] {
			t.Errorf("%s is listed as a %s, and found as %v", c.Code, c.Level, levels)
		}
		if c.Meaning == "" {
			t.Errorf("%s has no meaning", c.Code)
		}
	}
	for code := range found {
		if !listed[code] {
			t.Errorf("%s is not in the table of codes", code)
		}
	}
}

// docs/trace.md has the table of codes. RUTTER_WRITE=1 writes it there.
func TestCodesAreInTheDocs(t *testing.T) {
	const begin, end = "<!-- codes: begin -->\n", "<!-- codes: end -->\n"
	path := filepath.Join("..", "..", "docs", "trace.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no table of codes between %s and %s", path, begin, end)
	}
	var table strings.Builder
	table.WriteString("| code | level | means |\n|---|---|---|\n")
	for _, c := range desired.Codes() {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", c.Code, c.Level, c.Meaning)
	}
	want := string(before) + begin + table.String() + end + string(after)
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("the table of codes in %s is not that of the code: RUTTER_WRITE=1 go test ./projections/desired -run TestCodesAreInTheDocs", path)
	}
}
