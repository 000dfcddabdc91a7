package arch

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// example is a small module and what a rule must find in it: each text of want
// in one line of its own, and nothing else.
type example struct {
	rule  string
	name  string
	files map[string]string
	want  []string
}

// one is a module of one file.
func one(path, src string) map[string]string { return map[string]string{path: src} }

// many is a module of so many files, whose names begin with prefix.
func many(prefix string, n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%s%d.go", prefix, i)] = "package " + strings.Split(prefix, "/")[0] + "\n"
	}
	return files
}

// methods is a file of package api with so many methods of a type.
func methods(typ string, n int) string {
	var b strings.Builder
	b.WriteString("package api\ntype " + typ + " struct{}\n")
	for i := range n {
		fmt.Fprintf(&b, "func (%s) M%d() {}\n", typ, i)
	}
	return b.String()
}

var examples = []example{
	{"imports", "upward", one("log/a.go", "package log\nimport \"rutter/projections\"\n"), []string{"log/a.go:2: package log may not import rutter/projections"}},
	{"imports", "upward in a test", one("log/a_test.go", "package log\nimport \"rutter/projections\"\n"), []string{"log/a_test.go:2"}},
	{"imports", "store in the api", one("api/a.go", "package api\nimport \"rutter/raftstore\"\n"), []string{"api/a.go:2"}},
	{"imports", "part of a package is held to its row", one("varp/wire/a.go", "package wire\nimport \"rutter/api\"\n"), []string{"varp/wire/a.go:2"}},
	{"imports", "a child with its own row is not a part", one("api/a.go", "package api\nimport \"rutter/api/client\"\n"), []string{"api/a.go:2"}},
	{"imports", "no row", one("gossip/a.go", "package gossip\n"), []string{"gossip/a.go:1: package gossip has no row"}},
	{"imports", "no row at the root", one("a.go", "package rutter\n"), []string{"a.go:1"}},
	{"imports", "by the table", map[string]string{
		"projections/a.go":   "package projections\nimport \"rutter/log\"\n",
		"agent/a.go":         "package agent\nimport (\"rutter/agent/link\"; \"net/http\")\n",
		"varp/a.go":          "package varp\nimport \"rutter/varp/wire\"\n",
		"varp/wire/a.go":     "package wire\nimport \"rutter/varp\"\n",
		"api/a_test.go":      "package api_test\nimport (\"rutter/api\"; \"rutter/raftstore\")\n",
		"cmd/rutter/main.go": "package main\nimport \"rutter/raftstore\"\n",
	}, nil},

	{"product alone", "integration", one("cmd/rutter/a.go", "package main\nimport \"rutter/integration/guest\"\n"), []string{"cmd/rutter/a.go:2"}},
	{"product alone", "testing", one("agent/a.go", "package agent\nimport (\n\"testing/synctest\"\n\"pgregory.net/rapid\"\n)\n"), []string{"a.go:3", "a.go:4"}},
	{"product alone", "a package for tests", one("api/a.go", "package api\nimport \"rutter/api/internal/apitest\"\n"), []string{"api/a.go:2"}},
	{"product alone", "fine", map[string]string{
		"api/internal/apitest/a.go": "package apitest\nimport \"testing\"\n",
		"agent/a_test.go":           "package agent\nimport (\"testing\"; \"rutter/integration/guest\")\n",
		"integration/guest/a.go":    "package guest\nimport (\"testing\"; \"rutter/integration/rig\")\n",
	}, nil},

	{"commands apart", "one family in another", one("cmd/rutter/vmcmd/a.go", "package vmcmd\nimport \"rutter/cmd/rutter/cncmd\"\n"), []string{"a.go:2"}},
	{"commands apart", "a family in what they share", one("cmd/rutter/term/a.go", "package term\nimport \"rutter/cmd/rutter/cncmd\"\n"), []string{"a.go:2"}},
	{"commands apart", "fine", map[string]string{
		"cmd/rutter/main.go":    "package main\nimport \"rutter/cmd/rutter/vmcmd\"\n",
		"cmd/rutter/vmcmd/a.go": "package vmcmd\nimport \"rutter/cmd/rutter/term\"\n",
	}, nil},

	{"pure imports", "os", one("log/a.go", "package log\nimport \"os\"\n"), []string{"log/a.go:2"}},
	{"pure imports", "below a banned one", one("projections/a.go", "package projections\nimport \"math/rand/v2\"\n"), []string{"math/rand/v2"}},
	{"pure imports", "sockets, not addresses", one("log/a.go", "package log\nimport (\n\"net\"\n\"net/netip\"\n)\n"), []string{"log/a.go:3"}},
	{"pure imports", "another module", one("log/a.go", "package log\nimport \"example.org/fast\"\n"), []string{"example.org/fast"}},
	{"pure imports", "fine", map[string]string{
		"log/a.go":       "package log\nimport (\"net/netip\"; \"slices\"; \"github.com/vmihailenco/msgpack/v5/msgpcode\")\n",
		"log/a_test.go":  "package log\nimport \"os\"\n",
		"log/feed/a.go":  "package feed\nimport \"net\"\n",
		"raftstore/a.go": "package raftstore\nimport \"os\"\n",
	}, nil},

	{"pure code", "clock", one("log/a.go", "package log\nimport \"time\"\nvar x = time.Now()\nfunc f() { time.Sleep(1) }\n"), []string{":3:", ":4:"}},
	{"pure code", "clock by another name", one("log/a.go", "package log\nimport clock \"time\"\nvar x = clock.Since\n"), []string{"time.Since"}},
	{"pure code", "goroutine", one("projections/a.go", "package projections\nfunc f() { go f() }\nvar c chan int\n"), []string{":2:", ":3:"}},
	{"pure code", "float", one("projections/a.go", "package projections\ntype x float64\nvar y = 1.5\n"), []string{":2:", ":3:"}},
	{"pure code", "fine", map[string]string{
		"log/a.go":      "package log\nimport \"time\"\nvar x = time.Unix(0, 1).UTC().Format(time.RFC3339)\n",
		"log/a_test.go": "package log\nimport \"time\"\nvar x = time.Now()\n",
		"api/a.go":      "package api\nimport \"time\"\nfunc f() { go f(); time.Now() }\n",
	}, nil},

	{"no standard log", "even in a test", one("api/a_test.go", "package api\nimport \"log\"\n"), []string{"api/a_test.go:2"}},
	{"no standard log", "fine", one("api/a.go", "package api\nimport (\"log/slog\"; \"rutter/log\")\n"), nil},

	{"log not aliased", "aliased", one("api/a.go", "package api\nimport rlog \"rutter/log\"\n"), []string{"rlog"}},
	{"log not aliased", "dot", one("log/a_test.go", "package log_test\nimport . \"rutter/log\"\n"), []string{":2:"}},
	{"log not aliased", "fine", one("api/a.go", "package api\nimport \"rutter/log\"\n"), nil},

	{"log exports", "function", one("log/a.go", "package log\nfunc New() {}\n"), []string{"New"}},
	{"log exports", "type and constant", one("log/a.go", "package log\ntype Logger int\nconst LUTC = 1\n"), []string{"Logger", "LUTC"}},
	{"log exports", "fine", map[string]string{
		"log/a.go":      "package log\nfunc NewID() {}\nfunc (NewID) New() {}\ntype Event int\n",
		"log/feed/a.go": "package feed\nfunc New() {}\n",
	}, nil},

	{"logger name", "field", one("api/a.go", "package api\nimport \"log/slog\"\ntype s struct{ l *slog.Logger }\n"), []string{":3:"}},
	{"logger name", "parameter", one("api/a.go", "package api\nimport \"log/slog\"\nfunc f(log *slog.Logger) {}\n"), []string{"the logger log"}},
	{"logger name", "fine", one("api/a.go", "package api\nimport \"log/slog\"\ntype c struct{ Logger *slog.Logger }\nfunc f(logger *slog.Logger) *slog.Logger { return logger }\n"), nil},

	{"package comment", "none", one("api/a.go", "package api\n"), []string{"api/a.go:1"}},
	{"package comment", "a blank line below", one("api/a.go", "// Package api lets people in.\n\npackage api\n"), []string{"Package api "}},
	{"package comment", "only in a test", map[string]string{"api/a.go": "package api\n", "api/a_test.go": "// Package api is\npackage api\n"}, []string{"api/a.go"}},
	{"package comment", "a command's", one("cmd/rutter/main.go", "// Package main is\npackage main\n"), []string{"Command rutter "}},
	{"package comment", "fine", map[string]string{
		"api/a.go":           "package api\n",
		"api/doc.go":         "// Package api lets people in.\npackage api\n",
		"cmd/rutter/main.go": "// Command rutter does.\npackage main\n",
	}, nil},

	{"package name", "clause", one("api/x/a.go", "package util\n"), []string{"util"}},
	{"package name", "folder", one("api/helpers/a_test.go", "package helpers_test\n"), []string{"helpers"}},
	{"package name", "fine", one("api/client/a.go", "package client\n"), nil},

	{"package files", "too many", many("api/f", maxPackageFiles+1), []string{"26 files"}},
	{"package files", "fine", many("api/f", maxPackageFiles), nil},
	{"package files", "kinds are counted apart", many("log/kind_", 2*maxPackageFiles), nil},
	{"package files", "tests are not counted", map[string]string{"api/a.go": "package api\n", "api/a_test.go": "package api\n"}, nil},

	{"type methods", "too many", one("api/a.go", methods("Server", maxTypeMethods+1)), []string{"api.Server has 61 methods"}},
	{"type methods", "fine", one("api/a.go", methods("Server", maxTypeMethods)), nil},
	{"type methods", "those of an embedded type are its own", one("api/a.go", methods("Server", maxTypeMethods)+"type outer struct{ Server }\nfunc (outer) One() {}\n"), nil},

	{"internal", "of its parent only", map[string]string{
		"raftstore/a.go":       "package raftstore\nimport \"rutter/raftstore/pages\"\n",
		"raftstore/pages/a.go": "package pages\n",
	}, []string{"raftstore/pages/a.go:1"}},
	{"internal", "fine", map[string]string{
		"raftstore/a.go":                "package raftstore\nimport (\"rutter/raftstore/pages\"; \"rutter/raftstore/internal/files\")\n",
		"raftstore/internal/files/a.go": "package files\n",
		"raftstore/pages/a.go":          "package pages\n",
		"api/a.go":                      "package api\nimport \"rutter/raftstore/pages\"\n",
	}, nil},

	{"file length", "too long", one("api/a.go", "package api\n"+strings.Repeat("\n", maxFileLines)), []string{"api/a.go: 501 lines"}},
	{"file length", "fine", map[string]string{
		"api/a.go":      "package api\n" + strings.Repeat("\n", maxFileLines-1),
		"api/a_test.go": "package api\n" + strings.Repeat("\n", 2*maxFileLines),
	}, nil},

	{"function length", "too long", one("api/a.go", "package api\nfunc (s *T[K]) f() {"+strings.Repeat("\n", maxFuncLines)+"}\n"), []string{"api/a.go:2: T.f has 71 lines"}},
	{"function length", "a table outside cmd", one("api/a.go", "package api\nvar _ = 1\nfunc f() []int { return []int{"+strings.Repeat("\n1,", maxFuncLines)+"\n}}\n"), []string{"f has"}},
	{"function length", "code in a table", one("cmd/rutter/a.go", "package main\nfunc f() { _ = []func(){func() {"+strings.Repeat("\nf()", maxFuncLines)+"\n}}}\n"), []string{"f has"}},
	{"function length", "fine", map[string]string{
		"api/a.go":        "package api\nfunc f() {" + strings.Repeat("\n", maxFuncLines-1) + "}\n",
		"cmd/rutter/a.go": "package main\nfunc f() []int { return []int{" + strings.Repeat("\n1,", maxFuncLines) + "\n}}\n",
	}, nil},

	{"constructors", "go", one("api/a.go", "package api\nfunc NewServer() { go f() }\n"), []string{"NewServer starts"}},
	{"constructors", "in a closure", one("api/a.go", "package api\nfunc Open() { func() { go f() }() }\n"), []string{"Open starts"}},
	{"constructors", "group and timer", one("api/a.go", "package api\nfunc New() { g.Go(f)\ntime.AfterFunc(1, f) }\n"), []string{":2:", ":3:"}},
	{"constructors", "fine", one("api/a.go", "package api\nfunc (s *S) Run() { go f() }\nfunc NewServer() {}\nfunc (s *S) NewConn() { go f() }\n"), nil},

	{"plain words", "no subject", one("api/a.go", "package api\n// Stop is heard by whoever waits.\nfunc Stop() {}\n"), []string{"api/a.go:2: whoever"}},
	{"plain words", "an old word", one("api/b.go", "package api\n// a lock, lest a reader waits\n"), []string{"lest"}},
	{"plain words", "fine", one("api/a.go", "package api\n// Stop ends all waits.\nfunc Stop() { print(\"nobody\") }\n"), nil},

	{"plain names", "file", one("api/crew.go", "package api\n"), []string{"api/crew.go:1: the file crew"}},
	{"plain names", "type, field and function", one("api/a.go", "package api\ntype Desk struct {\nheard int }\nfunc told() {}\n"), []string{":2:", ":3:", ":4:"}},
	{"plain names", "fine", one("api/a.go", "package api\ntype desktop struct{ Office2 int }\n"), nil},

	{"nothing left open", "comment", one("api/a.go", "package api\n// TO"+"DO: later\n"), []string{"api/a.go:2"}},
	{"nothing left open", "any mark", one("api/a_test.go", "package api\n// FIX"+"ME\n// XX"+"X\n"), []string{":2:", ":3:"}},
	{"nothing left open", "context", one("api/a.go", "package api\nvar x = context.TO"+"DO()\n"), []string{":2:"}},
	{"nothing left open", "fine", one("api/a.go", "package api\n// TO"+"DOs and xx"+"x\n"), nil},

	{"one writer", "past the writer", map[string]string{
		"agent/a.go":                 "package agent\nimport (\"fmt\"; \"os\")\nfunc f() { fmt.Println(1); fmt.Fprintf(os.Stderr, \"x\") }\n",
		"cmd/rutter/cncmd/a.go":      "package cncmd\nimport \"fmt\"\nfunc f() { fmt.Fprint(w, name) }\nfunc g() { c.App.Writer.Write(name) }\nfunc h() { println(1) }\n",
		"cmd/rutter/vmcmd/a.go":      "package vmcmd\nfunc f() { output.Printf(w, name) }\nfunc g() { output.Printf(w, \"a\"+\"%s\", name) }\nfunc h() { output.Escaped(w, name) }\n",
		"cmd/rutter/importcmd/a.go":  "package importcmd\nimport \"encoding/csv\"\n",
		"cmd/rutter/output/a.go":     "package output\nimport \"os\"\nvar x = os.Stderr\n",
		"integration/operate/a.go":   "package operate\nimport \"fmt\"\nfunc f() { fmt.Println(1) }\n",
		"cmd/rutter/cncmd/a_test.go": "package cncmd\nimport \"fmt\"\nfunc f() { fmt.Println(1) }\n",
	}, []string{
		"agent/a.go:3: fmt.Println goes past", "agent/a.go:3: os.Stderr goes past", "cmd/rutter/cncmd/a.go:3: fmt.Fprint goes past", "cmd/rutter/cncmd/a.go:4: .Write goes past",
		"cmd/rutter/cncmd/a.go:5: println goes past", "cmd/rutter/importcmd/a.go:2: imports encoding/csv", "cmd/rutter/vmcmd/a.go:2: the text of output.Printf is no literal", "cmd/rutter/vmcmd/a.go:4: output.Escaped goes past",
	}},
	{"one writer", "by the writer", one("cmd/rutter/cncmd/a.go", "package cncmd\nfunc f() { output.Printf(c.App.Writer, `%s`, name); output.Print(w, \"x\\n\") }\n"), nil},
	{"one writer", "an exception that is not used", one("cmd/rutter/netlab/enter.go", "package netlab\nvar x = os.Stderr\n"), []string{"cmd/rutter/netlab/enter.go: has no os.Stdout any more"}},

	{"skips say why", "now", one("api/a_test.go", "package api\nfunc f() { t.SkipNow() }\n"), []string{":2:"}},
	{"skips say why", "empty", one("api/a_test.go", "package api\nfunc f() {\nt.Skip()\nt.Skip(\" \")\nb.Skipf(``)\n}\n"), []string{":3:", ":4:", ":5:"}},
	{"skips say why", "fine", one("api/a_test.go", "package api\nfunc f() { t.Skip(\"needs root\"); t.Skip(err); decoder.Skip() }\n"), nil},
}

func TestRulesCatchExamples(t *testing.T) {
	for _, e := range examples {
		t.Run(e.rule+"/"+e.name, func(t *testing.T) {
			var files []*file
			for _, name := range slices.Sorted(maps.Keys(e.files)) {
				f, err := parse(name, []byte(e.files[name]))
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			got := ruleNamed(t, e.rule).check(files)
			if len(got) != len(e.want) {
				t.Fatalf("got %d findings %q, want %d", len(got), got, len(e.want))
			}
			for i, want := range e.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("finding %d: got %q, want it to contain %q", i, got[i], want)
				}
			}
		})
	}
}

func ruleNamed(t *testing.T, name string) rule {
	t.Helper()
	i := slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
	if i < 0 {
		t.Fatalf("no rule is called %q", name)
	}
	return rules[i]
}

// TestEachRuleHasExamples: a rule without a bad example may be passing
// everything, one without a good example may be refusing everything.
func TestEachRuleHasExamples(t *testing.T) {
	for _, r := range rules {
		var good, bad bool
		for _, e := range examples {
			good = good || e.rule == r.name && len(e.want) == 0
			bad = bad || e.rule == r.name && len(e.want) > 0
		}
		if !good || !bad {
			t.Errorf("rule %q: has a good example %v, a bad one %v; want both", r.name, good, bad)
		}
		if r.why == "" {
			t.Errorf("rule %q has no reason", r.name)
		}
	}
}

// TestTablesAreAlive: a row or an exception for what no longer exists hides the
// next mistake.
func TestTablesAreAlive(t *testing.T) {
	files := moduleFiles(t)
	if len(files) < 10 {
		t.Fatalf("found %d Go files in the module; the walk is broken", len(files))
	}
	seen := make(map[string]*file)
	funcs := make(map[string]bool)
	for _, f := range files {
		seen[f.path] = f
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				funcs[f.path+" "+funcName(fn)] = true
			}
		}
	}
	for path := range longFiles {
		if f := seen[path]; f == nil || f.lines() <= maxFileLines {
			t.Errorf("longFiles lists %s, which is gone or short enough: take it out", path)
		}
	}
	for list, exceptions := range map[string]map[string]string{"largePackages": largePackages, "openPackages": openPackages} {
		for dir, why := range exceptions {
			if !slices.ContainsFunc(files, func(f *file) bool { return f.dir() == dir }) || why == "" {
				t.Errorf("%s lists %s, which is gone, or has no reason", list, dir)
			}
		}
	}
	for name := range longFuncs {
		if !funcs[name] {
			t.Errorf("longFuncs lists %s, which is gone: take it out", name)
		}
	}
	for _, r := range importTable {
		if r.why == "" {
			t.Errorf("the row of %s has no reason", r.pkg)
		}
	}
}
