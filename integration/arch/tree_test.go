package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// file is one parsed Go file of the module.
type file struct {
	path string // slash-separated, relative to the module's root
	test bool   // named _test.go
	src  []byte
	fset *token.FileSet
	ast  *ast.File
}

// dir is the folder of f, which is also its import path below the module; the
// root is ".".
func (f *file) dir() string { return path.Dir(f.path) }

// at prints the place of pos as path:line.
func (f *file) at(pos token.Pos) string {
	return f.path + ":" + strconv.Itoa(f.line(pos))
}

func (f *file) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// lines is the number of lines of f.
func (f *file) lines() int { return bytes.Count(f.src, []byte("\n")) }

// imports yields the path of each import of f with its declaration.
func (f *file) imports(yield func(string, *ast.ImportSpec) bool) {
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic("arch: the parser let through the import " + spec.Path.Value)
		}
		if !yield(name, spec) {
			return
		}
	}
}

// local returns the name under which f imports the package of the given path,
// and "" if it does not import it.
func (f *file) local(pkg string) string {
	for name, spec := range f.imports {
		if name != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// parse makes a file of source text.
func parse(name string, src []byte) (*file, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	return &file{
		path: name, test: strings.HasSuffix(name, "_test.go"),
		src: src, fset: fset, ast: parsed,
	}, nil
}

// moduleFiles parses every Go file of the module, whatever its build tags.
// Hidden folders, testdata and folders with a go.mod of their own are left out,
// as the go command leaves them out.
func moduleFiles(t *testing.T) []*file {
	t.Helper()
	root := moduleRoot(t)
	var files []*file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != root && skipDir(name) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(relative), src)
		files = append(files, f)
		return err
	})
	if err != nil {
		t.Fatalf("read the module: %v", err)
	}
	return files
}

func skipDir(name string) bool {
	base := filepath.Base(name)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	return err == nil
}

// moduleRoot walks up from the test's folder to the one with go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = parent
	}
}

// byDir groups files by folder, in the order of the first file of each.
func byDir(files []*file) (dirs []string, in map[string][]*file) {
	in = make(map[string][]*file)
	for _, f := range files {
		if in[f.dir()] == nil {
			dirs = append(dirs, f.dir())
		}
		in[f.dir()] = append(in[f.dir()], f)
	}
	return dirs, in
}
