package arch

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// This file holds the rules about the size of packages and types, and about which of
// them others can reach.

const (
	maxPackageFiles = 25 // outside tests; a file of a kind in log is not counted
	maxTypeMethods  = 60 // of the type itself, outside tests
)

// largePackages lists the packages over maxPackageFiles, each with its reason.
var largePackages = map[string]string{}

// largeTypes lists the types over maxTypeMethods, each with its reason.
var largeTypes = map[string]string{
	"api/triton/cnapi.Service": "each method is the handler of a route of CNAPI, or its form; it has no state besides the log's",
	"api/triton/napi.Service":  "each method is the handler of a route of NAPI, or its form; it has no state besides the log's",
}

// openPackages lists packages that only their parent's tree imports and that do not
// stand under internal, each with its reason.
var openPackages = map[string]string{
	"api/console":    "a surface of the API, as api/triton and api/native are",
	"api/feedserver": "a surface of the API, to which docs and package agent's tests refer",
}

func checkPackageFiles(files []*file) (bad []string) {
	dirs, in := byDir(withoutTests(files))
	for _, dir := range dirs {
		n := 0
		for _, f := range in[dir] {
			if dir != "log" || !strings.HasPrefix(path.Base(f.path), "kind_") {
				n++
			}
		}
		if n > maxPackageFiles && largePackages[dir] == "" {
			bad = append(bad, fmt.Sprintf("%s: %d files, over %d; take out what has a name of its own", in[dir][0].at(in[dir][0].ast.Package), n, maxPackageFiles))
		}
	}
	return bad
}

func checkTypeMethods(files []*file) (bad []string) {
	methods := map[string]int{}
	first := map[string]string{}
	var names []string
	for _, f := range withoutTests(files) {
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			typ, _, _ := strings.Cut(funcName(fn), ".")
			name := f.dir() + "." + typ
			if methods[name]++; methods[name] == 1 {
				first[name] = f.at(fn.Pos())
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		if methods[name] > maxTypeMethods && largeTypes[name] == "" {
			bad = append(bad, fmt.Sprintf("%s: %s has %d methods, over %d; part it into types that own their state", first[name], name, methods[name], maxTypeMethods))
		}
	}
	return bad
}

// checkInternal looks for packages that only their parent's tree imports, the parent's
// own package or another below it.
func checkInternal(files []*file) (bad []string) {
	importers := map[string][]string{}
	for _, f := range files {
		for pkg := range f.imports {
			if of, ours := strings.CutPrefix(pkg, modulePath+"/"); ours && of != f.dir() {
				importers[of] = append(importers[of], f.dir())
			}
		}
	}
	dirs, in := byDir(withoutTests(files))
	for _, dir := range dirs {
		parent := path.Dir(dir)
		// Other packages cannot reach the tree of a command by its own rules, and
		// integration is of tests.
		if parent == "." || openPackages[dir] != "" || slices.Contains(strings.Split(dir, "/"), "internal") || under(dir, "cmd") || under(dir, "integration") {
			continue
		}
		by := importers[dir]
		if len(by) > 0 && !slices.ContainsFunc(by, func(of string) bool { return !under(of, parent) }) {
			bad = append(bad, fmt.Sprintf("%s: only the tree of %s imports package %s; it belongs under %s/internal", in[dir][0].at(in[dir][0].ast.Package), parent, dir, parent))
		}
	}
	return bad
}
