package arch

import (
	"fmt"
	"go/doc"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	packagesBegin = "<!-- packages -->\n"
	packagesEnd   = "<!-- end of packages -->\n"
)

// TestPackagesAreInTheArchitecture: docs/architecture.md has a line for each
// package of the product with the first sentence of its comment, so that the tree,
// read with one sentence for each folder, is the architecture.
func TestPackagesAreInTheArchitecture(t *testing.T) {
	page := filepath.Join(moduleRoot(t), "docs", "architecture.md")
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), packagesBegin)
	table, after, ended := strings.Cut(rest, packagesEnd)
	if !found || !ended {
		t.Fatalf("docs/architecture.md has no lines %q and %q", packagesBegin, packagesEnd)
	}
	want := packagesTable(moduleFiles(t))
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(page, []byte(before+packagesBegin+want+packagesEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Error("the table of packages in docs/architecture.md is not that of the code: RUTTER_WRITE=1 writes it anew")
	}
}

// packagesTable is the product's packages as docs/architecture.md shows them.
func packagesTable(files []*file) string {
	var b strings.Builder
	b.WriteString("\n| package | what it is |\n|---|---|\n")
	dirs, in := byDir(files)
	for _, dir := range dirs {
		if under(dir, "integration") || strings.HasSuffix(dir, "test") {
			continue
		}
		for _, f := range in[dir] {
			if f.ast.Doc == nil || f.test {
				continue
			}
			text := new(doc.Package).Synopsis(f.ast.Doc.Text())
			for _, name := range []string{"Package " + f.ast.Name.Name, "Command " + filepath.Base(dir)} {
				text = strings.TrimPrefix(text, name+" ")
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", dir, text)
		}
	}
	return b.String() + "\n"
}
