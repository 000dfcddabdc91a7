package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// This file holds the rules about the shape of packages, files and functions.

func checkPackageComment(files []*file) (bad []string) {
	dirs, in := byDir(files)
	for _, dir := range dirs {
		// The comment may stand in a test only where there is nothing else.
		of := in[dir]
		if code := withoutTests(of); len(code) > 0 {
			of = code
		}
		want := "Package " + of[0].ast.Name.Name + " "
		if of[0].ast.Name.Name == "main" {
			want = "Command " + dir[strings.LastIndex(dir, "/")+1:] + " "
		}
		if !slices.ContainsFunc(of, func(f *file) bool { return strings.HasPrefix(f.ast.Doc.Text(), want) }) {
			bad = append(bad, fmt.Sprintf("%s: no package comment directly above the package clause that begins with %q", of[0].at(of[0].ast.Package), want))
		}
	}
	return bad
}

func withoutTests(files []*file) []*file {
	return slices.DeleteFunc(slices.Clone(files), func(f *file) bool { return f.test })
}

// vagueNames are the package names that say nothing.
var vagueNames = []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "shared", "lib"}

func checkPackageName(files []*file) (bad []string) {
	for _, f := range files {
		for _, part := range append(strings.Split(f.dir(), "/"), f.ast.Name.Name) {
			if slices.Contains(vagueNames, strings.TrimSuffix(part, "_test")) {
				bad = append(bad, f.at(f.ast.Package)+": a package called "+part+"; name it for what it owns")
				break
			}
		}
	}
	return bad
}

func checkFileLength(files []*file) (bad []string) {
	for _, f := range withoutTests(files) {
		limit := maxFileLines
		if longFiles[f.path] != "" {
			limit = hardFileLines
		}
		if n := f.lines(); n > limit {
			bad = append(bad, fmt.Sprintf("%s: %d lines, over %d; split it by what its parts own", f.path, n, limit))
		}
	}
	return bad
}

func checkFuncLength(files []*file) (bad []string) {
	for _, f := range withoutTests(files) {
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || longFuncs[f.path+" "+funcName(fn)] != "" {
				continue
			}
			n := f.line(fn.End()) - f.line(fn.Pos()) + 1
			if under(f.dir(), "cmd") {
				n -= literalLines(f, fn) // a table of flags or commands is data
			}
			if n > maxFuncLines {
				bad = append(bad, fmt.Sprintf("%s: %s has %d lines, over %d; take out what has a name of its own", f.at(fn.Pos()), funcName(fn), n, maxFuncLines))
			}
		}
	}
	return bad
}

// funcName is Receiver.Name or Name.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	typ := fn.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// literalLines counts the lines of fn that only continue a composite literal.
// The bodies of functions inside a literal are code, and are not counted.
func literalLines(f *file, fn *ast.FuncDecl) int {
	data := make(map[int]bool)
	mark := func(n ast.Node, isData bool) {
		for line := f.line(n.Pos()) + 1; line <= f.line(n.End()); line++ {
			data[line] = isData
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			mark(n, true)
		case *ast.FuncLit:
			mark(n, false)
		}
		return true
	})
	count := 0
	for _, isData := range data {
		if isData {
			count++
		}
	}
	return count
}

func checkConstructors(files []*file) (bad []string) {
	for _, f := range withoutTests(files) {
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "New") && !strings.HasPrefix(fn.Name.Name, "Open") {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if startsGoroutine(n) {
					bad = append(bad, f.at(n.Pos())+": "+fn.Name.Name+" starts a goroutine; start it in Run(ctx), which waits for it")
				}
				return true
			})
		}
	}
	return bad
}

// startsGoroutine sees a go statement, the Go method of a wait group or an
// errgroup, and time.AfterFunc.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && (sel.Sel.Name == "Go" || sel.Sel.Name == "AfterFunc")
	}
	return false
}

func checkSkips(files []*file) (bad []string) {
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && silentSkip(call) {
				bad = append(bad, f.at(call.Pos())+": a skip without a reason; say what is missing and what brings it")
			}
			return true
		})
	}
	return bad
}

// silentSkip sees SkipNow, and Skip or Skipf without a text, of a variable with
// one of the usual names of a testing.TB.
func silentSkip(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok || !slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) {
		return false
	}
	switch sel.Sel.Name {
	case "SkipNow":
		return true
	case "Skip", "Skipf":
		return len(call.Args) == 0 || isBlank(call.Args[0])
	}
	return false
}

// isBlank reports whether e is a string literal with nothing but space in it.
func isBlank(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return false
	}
	text, err := strconv.Unquote(lit.Value)
	return err == nil && strings.TrimSpace(text) == ""
}
