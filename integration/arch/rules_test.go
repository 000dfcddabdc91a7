package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// rule is one rule of the house. check returns what breaks it, one line each,
// as "path:line: what is wrong and what to do".
type rule struct {
	name  string
	why   string
	check func(files []*file) []string
}

// rules are all rules, in the order of what hurts most when broken.
var rules = []rule{
	{"imports", "architecture section 3: the table is the architecture; an arrow against it makes two packages one", checkImports},
	{"product alone", "what an operator runs has nothing in it that only tests need", checkProductAlone},
	{"commands apart", "a family of commands that imports another cannot be read, or changed, by itself", checkCommandsApart},
	{"pure imports", "architecture rule 2: what a pure package cannot reach, it cannot depend on", checkPureImports},
	{"pure code", "architecture rule 2: a clock, a goroutine or a float makes two servers differ", checkPureCode},
	{"no standard log", "architecture section 3: our log package has that name; slog logs better", checkStandardLog},
	{"log not aliased", "architecture section 3: one name for one thing everywhere", checkAlias},
	{"log exports", "architecture section 3: a reader who takes our log for the standard one gets a compile error, not a surprise", checkLogExports},
	{"logger name", "architecture section 3: `logger` leaves the name `log` to the package", checkLoggerName},
	{"package comment", "who opens a package reads first what it owns; a blank line below hides it from go doc", checkPackageComment},
	{"package name", "a package named for nothing attracts everything", checkPackageName},
	{"package files", "a package that one person can know has few files; more are two packages", checkPackageFiles},
	{"type methods", "a type with more methods owns more than one thing", checkTypeMethods},
	{"internal", "what nothing else imports must not become something that others rely on", checkInternal},
	{"file length", "a file that outgrows 500 lines is two", checkFileLength},
	{"function length", "a function fits a screen", checkFuncLength},
	{"constructors", "whoever starts a goroutine waits for it: Run(ctx) does, New and Open cannot", checkConstructors},
	{"plain words", "docs/contributing.md, Plain English: a comment is read once, by somebody tired", checkHardWords},
	{"plain names", "docs/contributing.md, Plain English: a name that is a metaphor sends the reader to its definition", checkGuessedNames},
	{"nothing left open", "an issue is where open work stands, the code is what is done", checkLeftOpen},
	{"one writer", "a name that a tenant chose is not to move the cursor, or to forge a line, on the screen of an operator", checkOneWriter},
	{"skips say why", "a silent skip looks like a pass", checkSkips},
}

func TestRules(t *testing.T) {
	files := moduleFiles(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, line := range r.check(files) {
				t.Errorf("%s", line)
			}
			if t.Failed() {
				t.Logf("why this rule: %s", r.why)
			}
		})
	}
}

// under reports whether pkg is parent or below it.
func under(pkg, parent string) bool {
	return pkg == parent || strings.HasPrefix(pkg, parent+"/")
}

// rowOf returns the row of pkg or of its nearest parent.
func rowOf(pkg string) (row, bool) {
	for ; pkg != "."; pkg = path.Dir(pkg) {
		for _, r := range importTable {
			if r.pkg == pkg {
				return r, true
			}
		}
	}
	return row{}, false
}

func checkImports(files []*file) (bad []string) {
	for _, f := range files {
		r, ok := rowOf(f.dir())
		if !ok {
			bad = append(bad, f.at(f.ast.Package)+": package "+f.dir()+" has no row in the import table; add it there with its reason, and to architecture section 3")
			continue
		}
		for name, spec := range f.imports {
			pkg, ours := strings.CutPrefix(name, modulePath+"/")
			if ours && !mayImport(r, f, pkg) {
				bad = append(bad, f.at(spec.Pos())+": package "+f.dir()+" may not import "+name+": "+r.why)
			}
		}
	}
	return bad
}

func mayImport(r row, f *file, pkg string) bool {
	if slices.Contains(r.may, "*") || pkg == f.dir() || slices.Contains(r.may, pkg) {
		return true
	}
	if f.test && slices.Contains(r.tests, pkg) {
		return true
	}
	// Folders without a row of their own are parts of the package whose row
	// they share, and see each other.
	target, ok := rowOf(pkg)
	return ok && target.pkg == r.pkg
}

// checkProductAlone leaves out the packages whose names end in test, as apitest: they
// are for tests, and the product imports none of them either.
func checkProductAlone(files []*file) (bad []string) {
	for _, f := range files {
		if f.test || under(f.dir(), "integration") || strings.HasSuffix(f.dir(), "test") {
			continue
		}
		for _, spec := range f.ast.Imports {
			name, _ := strconv.Unquote(spec.Path.Value) // it was parsed
			if under(name, modulePath) && strings.HasSuffix(name, "test") {
				bad = append(bad, f.at(spec.Pos())+": package "+f.dir()+" imports "+name+", which is for tests")
			}
			for only, why := range testImports {
				if under(name, only) {
					bad = append(bad, f.at(spec.Pos())+": package "+f.dir()+" imports "+name+": "+why)
				}
			}
		}
	}
	return bad
}

// checkCommandsApart holds apart the folders of cmd/rutter whose names end in cmd:
// package main puts their commands together.
func checkCommandsApart(files []*file) (bad []string) {
	isFamily := func(pkg string) bool { return under(pkg, "cmd/rutter") && strings.HasSuffix(pkg, "cmd") }
	for _, f := range files {
		for name, spec := range f.imports {
			pkg, ours := strings.CutPrefix(name, modulePath+"/")
			if !ours || !isFamily(pkg) || pkg == f.dir() || f.dir() == "cmd/rutter" {
				continue
			}
			bad = append(bad, f.at(spec.Pos())+": package "+f.dir()+" imports the commands "+name+": move what both need below them")
		}
	}
	return bad
}

func checkPureImports(files []*file) (bad []string) {
	for _, f := range files {
		if !pureDirs[f.dir()] || f.test {
			continue
		}
		for name, spec := range f.imports {
			if reason, no := impure(name); no {
				bad = append(bad, f.at(spec.Pos())+": the pure package "+f.dir()+" imports "+name+": "+reason)
			}
		}
	}
	return bad
}

// impure finds name or one of its parents in impureImports, or sees that it is
// of another module, unless it is excepted in pureImports.
func impure(name string) (reason string, no bool) {
	for parent := name; parent != "."; parent = path.Dir(parent) {
		if _, ok := pureImports[parent]; ok {
			return "", false
		}
		if reason, no := impureImports[parent]; no {
			return reason, true
		}
	}
	if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
		return "other modules are not looked at for clocks and the like", true
	}
	return "", false
}

func checkPureCode(files []*file) (bad []string) {
	for _, f := range files {
		if !pureDirs[f.dir()] || f.test {
			continue
		}
		clock := f.local("time")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if what := impureNode(n, clock); what != "" {
				bad = append(bad, f.at(n.Pos())+": the pure package "+f.dir()+" has "+what)
			}
			return true
		})
	}
	return bad
}

// impureNode says what is impure in n itself, or "". clock is the name under
// which package time is imported.
func impureNode(n ast.Node, clock string) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a go statement"
	case *ast.ChanType, *ast.SelectStmt:
		return "a channel, which needs a goroutine"
	case *ast.Ident:
		if slices.Contains([]string{"float32", "float64", "complex64", "complex128"}, n.Name) {
			return "a " + n.Name + "; count in integers"
		}
	case *ast.BasicLit:
		if n.Kind == token.FLOAT || n.Kind == token.IMAG {
			return "the float " + n.Value + "; count in integers"
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && clock != "" && x.Name == clock && !timeForFormatting[n.Sel.Name] {
			return "time." + n.Sel.Name + ", which is not for formatting; time is stamped into the change"
		}
	}
	return ""
}

func checkStandardLog(files []*file) (bad []string) {
	for _, f := range files {
		for name, spec := range f.imports {
			if name == "log" {
				bad = append(bad, f.at(spec.Pos())+": imports the standard library's log; use log/slog")
			}
		}
	}
	return bad
}

func checkAlias(files []*file) (bad []string) {
	for _, f := range files {
		for name, spec := range f.imports {
			if name == modulePath+"/log" && spec.Name != nil {
				bad = append(bad, f.at(spec.Pos())+": imports rutter/log as "+spec.Name.Name+"; import it by its own name")
			}
		}
	}
	return bad
}

func checkLogExports(files []*file) (bad []string) {
	standard, err := standardLogNames()
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range files {
		if f.dir() != "log" || f.test {
			continue
		}
		for _, name := range exported(f.ast) {
			if standard[name.Name] {
				bad = append(bad, f.at(name.Pos())+": rutter/log exports "+name.Name+", as the standard log does; choose another name")
			}
		}
	}
	return bad
}

// standardLogNames reads the names that the standard log package exports from
// the Go installation that runs the test. The go command knows where it is; a test
// that was built with -trimpath does not.
var standardLogNames = sync.OnceValues(func() (map[string]bool, error) {
	folder, err := exec.Command("go", "list", "-f", "{{.Dir}}", "log").Output()
	if err != nil {
		return nil, fmt.Errorf("go list log: %w", err)
	}
	sources, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "*.go"))
	if err != nil || len(sources) == 0 {
		return nil, fmt.Errorf("%d sources of log in %s: %w", len(sources), folder, err)
	}
	names := make(map[string]bool)
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, name := range exported(f) {
			names[name.Name] = true
		}
	}
	return names, nil
})

// exported returns the exported names that f declares at its top level.
func exported(f *ast.File) (names []*ast.Ident) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				names = append(names, decl.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name)
				case *ast.ValueSpec:
					names = append(names, spec.Names...)
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(n *ast.Ident) bool { return !n.IsExported() })
}

func checkLoggerName(files []*file) (bad []string) {
	for _, f := range files {
		slog := f.local("log/slog")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			var names []*ast.Ident
			var typ ast.Expr
			switch n := n.(type) {
			case *ast.Field:
				names, typ = n.Names, n.Type
			case *ast.ValueSpec:
				names, typ = n.Names, n.Type
			}
			for _, name := range names {
				if isLogger(typ, slog) && name.Name != "logger" && name.Name != "Logger" && name.Name != "_" {
					bad = append(bad, f.at(name.Pos())+": the logger "+name.Name+" is to be called logger")
				}
			}
			return true
		})
	}
	return bad
}

func isLogger(typ ast.Expr, slog string) bool {
	star, ok := typ.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && slog != "" && x.Name == slog && sel.Sel.Name == "Logger"
}

// leftOpen are the marks of unfinished work, written so that this file does
// not carry them itself.
var leftOpen = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

func checkLeftOpen(files []*file) (bad []string) {
	for _, f := range files {
		for _, at := range leftOpen.FindAllIndex(f.src, -1) {
			pos := f.fset.File(f.ast.FileStart).Pos(at[0])
			bad = append(bad, f.at(pos)+": "+string(f.src[at[0]:at[1]])+": do it, or open an issue")
		}
	}
	return bad
}
