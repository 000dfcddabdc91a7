package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ChosenBy is the variable of the environment that names the mutant of a program of Together.
// If it is empty or not set, the program is the product as it is.
const ChosenBy = "RUTTER_MUTANT"

// Together builds the tests of a package with many mutants in it, of which ChosenBy names the one
// that a process runs: building each by itself takes longer than running it. It returns the
// program's path, in dir, and the mutants that cannot be built in this way, because what they
// change is not within functions. folder is the package's, from the module's root.
func Together(ctx context.Context, list []Mutant, root, dir, folder string) (program string, alone []Mutant, err error) {
	files, replace := map[string]*together{}, map[string]string{}
	for _, m := range list {
		if files[m.File] == nil {
			if files[m.File], err = readTogether(root, m.File); err != nil {
				return "", nil, err
			}
		}
		ok, err := files[m.File].add(root, m)
		if err != nil {
			return "", nil, err
		}
		if !ok {
			alone = append(alone, m)
		}
	}
	written := 0
	put := func(name, text string) error {
		original, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		broken := filepath.Join(dir, fmt.Sprintf("together-%d.go", written))
		written++
		replace[original] = broken
		return os.WriteFile(broken, []byte(text), 0o644)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if len(f.cases) == 0 {
			continue
		}
		chosen := fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar plantedMutant = os.Getenv(%q)\n", f.tree.Name.Name, ChosenBy)
		if err := put(name, f.text()); err != nil {
			return "", nil, err
		}
		if err := put(path.Join(path.Dir(name), "zz_planted_mutant.go"), chosen); err != nil {
			return "", nil, err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay := filepath.Join(dir, "overlay-together.json")
	if err := os.WriteFile(overlay, b, 0o644); err != nil {
		return "", nil, err
	}
	program = filepath.Join(dir, strings.ReplaceAll(folder, "/", "_")+"-together.test")
	return program, alone, goBuild(ctx, root, overlay, "test", "-c", "-vet=off", "-o", program, "./"+folder)
}

// together is a file whose functions have several forms.
type together struct {
	source string
	tree   *ast.File
	set    *token.FileSet
	cases  map[string][]string // of a function, by functionName: what chooses its other forms
	forms  []string            // the other forms
}

func readTogether(root, name string) (*together, error) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	f := &together{source: string(b), set: token.NewFileSet(), cases: map[string][]string{}}
	f.tree, err = parser.ParseFile(f.set, name, b, parser.SkipObjectResolution)
	return f, err
}

// add adds the functions that m changes. It reports false if m changes anything else.
func (f *together) add(root string, m Mutant) (bool, error) {
	text, err := m.Text(root)
	if err != nil {
		return false, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, m.File, text, parser.SkipObjectResolution)
	if err != nil {
		return false, fmt.Errorf("mutant %q: %w", m.Name, err)
	}
	if len(tree.Decls) != len(f.tree.Decls) {
		return false, nil
	}
	cases, forms := map[string]string{}, []string{}
	for i, decl := range tree.Decls {
		was := between(f.set, f.source, f.tree.Decls[i].Pos(), f.tree.Decls[i].End())
		is := between(set, text, decl.Pos(), decl.End())
		if was == is {
			continue
		}
		changed, ok := decl.(*ast.FuncDecl)
		original, same := f.tree.Decls[i].(*ast.FuncDecl)
		if !ok || !same || changed.Name.Name != original.Name.Name || changed.Name.Name == "init" {
			return false, nil
		}
		name := changed.Name.Name + "__" + strings.ReplaceAll(m.Name, "-", "_")
		call, ok := f.call(original, name)
		if !ok {
			return false, nil
		}
		at := set.Position(changed.Name.Pos()).Offset - set.Position(changed.Pos()).Offset
		if changed.Doc != nil {
			is = text[set.Position(changed.Type.Func).Offset:set.Position(changed.End()).Offset]
			at = set.Position(changed.Name.Pos()).Offset - set.Position(changed.Type.Func).Offset
		}
		forms = append(forms, is[:at]+name+is[at+len(changed.Name.Name):])
		cases[functionName(original)] = fmt.Sprintf("case %q: %s", m.Name, call)
	}
	for function, choice := range cases {
		f.cases[function] = append(f.cases[function], choice)
	}
	f.forms = append(f.forms, forms...)
	return len(forms) > 0, nil
}

// between is the text of a part of a file.
func between(set *token.FileSet, text string, from, to token.Pos) string {
	return text[set.Position(from).Offset:set.Position(to).Offset]
}

// functionName is unique among the functions of a file.
func functionName(fn *ast.FuncDecl) string { return fmt.Sprint(fn.Name.Name, fn.Pos()) }

// call is a call of another form of fn with the arguments that fn has.
func (f *together) call(fn *ast.FuncDecl, name string) (string, bool) {
	var args []string
	for _, field := range fn.Type.Params.List {
		if len(field.Names) == 0 {
			return "", false
		}
		_, variadic := field.Type.(*ast.Ellipsis)
		for _, id := range field.Names {
			arg := id.Name
			if arg == "_" {
				arg = fmt.Sprint("unnamed", f.set.Position(id.Pos()).Offset)
			}
			if variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	if fn.Recv != nil {
		names := fn.Recv.List[0].Names
		if len(names) == 0 || names[0].Name == "_" {
			return "", false
		}
		name = names[0].Name + "." + name
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if fn.Type.Results == nil {
		return call + "; return", true
	}
	return "return " + call, true
}

// text is the file with all forms.
func (f *together) text() string {
	var b strings.Builder
	at := 0
	for _, decl := range f.tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || len(f.cases[functionName(fn)]) == 0 {
			continue
		}
		for _, field := range fn.Type.Params.List {
			for _, id := range field.Names {
				if start := f.set.Position(id.Pos()).Offset; id.Name == "_" {
					b.WriteString(f.source[at:start])
					fmt.Fprint(&b, "unnamed", start)
					at = start + 1
				}
			}
		}
		body := f.set.Position(fn.Body.Lbrace).Offset + 1
		b.WriteString(f.source[at:body])
		b.WriteString("\nswitch plantedMutant {\n" + strings.Join(f.cases[functionName(fn)], "\n") + "\n}\n")
		at = body
	}
	b.WriteString(f.source[at:])
	b.WriteString("\n" + strings.Join(f.forms, "\n\n") + "\n")
	return b.String()
}
