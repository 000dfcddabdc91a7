package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A reference is a piece of a comment or of a page that names a file, a section,
// a rule or a test. The tests of this file follow each one: a reader who looks up
// what a comment argues from must find it, in this repository.

// text is what references are looked for in: a page as it is, and of a Go file
// its comments, besides the pages that its strings name.
type text struct {
	path  string // from the module's root, with slashes
	body  string // the whole file
	prose string // the comments of a Go file; else body
}

// book is all that references may lead to.
type book struct {
	texts []text
	files map[string]bool     // each file and folder of the module
	bases map[string][]string // the last element of each Go file's path -> its folders
	tests map[string]bool     // names of tests, fuzz targets, benchmarks and examples
	rules map[string]bool     // headings "(NAME)" of docs/safety.md
	// architecture are the numbers of the rules in docs/architecture.md, section 2.
	architecture map[string]bool
	heads        map[string][]string // the headings of each page
	makes        map[string]bool     // targets of the Makefile
}

var (
	goodTest    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	goodHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	goodRule    = regexp.MustCompile(`(?m)^#+ .*\((\w+)\)$`)
	goodNumber  = regexp.MustCompile(`(?m)^(\d+)\. \*\*`)
	goodTarget  = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

// readBook reads the module.
func readBook(root string) (*book, error) {
	b := &book{
		files: map[string]bool{}, bases: map[string][]string{}, tests: map[string]bool{}, rules: map[string]bool{},
		heads: map[string][]string{}, makes: map[string]bool{}, architecture: map[string]bool{},
	}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			if relative == ".git" || relative == "bin" {
				return filepath.SkipDir
			}
			b.files[relative] = true
			return nil
		}
		b.files[relative] = true
		switch path.Ext(relative) {
		case ".go", ".md", ".sh", ".service":
		default:
			if relative != "Makefile" {
				return nil
			}
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return b.add(relative, src)
	})
	return b, err
}

// add takes in one file.
func (b *book) add(name string, src []byte) error {
	b.files[name] = true
	t := text{path: name, body: string(src), prose: string(src)}
	switch path.Ext(name) {
	case ".go":
		if strings.Contains(name, "testdata/") {
			return nil
		}
		f, err := parse(name, src)
		if err != nil {
			return err
		}
		var prose strings.Builder
		for _, group := range f.ast.Comments {
			prose.WriteString(group.Text() + "\n")
		}
		t.prose = prose.String()
		b.bases[path.Base(name)] = append(b.bases[path.Base(name)], path.Dir(name))
		if f.test {
			for _, m := range goodTest.FindAllStringSubmatch(t.body, -1) {
				b.tests[m[1]] = true
			}
		}
	case ".md":
		for _, m := range goodHeading.FindAllStringSubmatch(t.body, -1) {
			b.heads[name] = append(b.heads[name], m[1])
		}
		if name == "docs/architecture.md" {
			for _, m := range goodNumber.FindAllStringSubmatch(t.body, -1) {
				b.architecture[m[1]] = true
			}
		}
		if name == "docs/safety.md" {
			for _, m := range goodRule.FindAllStringSubmatch(t.body, -1) {
				b.rules[m[1]] = true
			}
		}
	}
	if name == "Makefile" {
		for _, m := range goodTarget.FindAllStringSubmatch(t.body, -1) {
			b.makes[m[1]] = true
		}
	}
	b.texts = append(b.texts, t)
	return nil
}

// A kind of reference: where it is looked for, and whether it leads somewhere.
type reference struct {
	name string
	find *regexp.Regexp
	in   func(t text) string
	good func(b *book, t text, m []string) bool
}

func prose(t text) string { return t.prose }
func body(t text) string  { return t.body }

// history is what may name what is gone: the changelog, and what upstream did.
func history(t text) bool { return t.path == "CHANGELOG.md" }

var references = []reference{
	{"page", regexp.MustCompile(`\b(docs/[\w/.-]+\.(?:md|json))`), body, func(b *book, _ text, m []string) bool {
		return b.files[m[1]]
	}},
	{"section of a specification", regexp.MustCompile(`\bspec/([\w-]+\.md)(?:,? (?:sections?|§) ?|§| §)?(\d+(?:\.\d+)*)?`), prose, func(b *book, _ text, m []string) bool {
		page := "docs/spec/" + m[1]
		return b.files[page] && (m[2] == "" || b.section(page, m[2]))
	}},
	{"section of the architecture", regexp.MustCompile(`\barchitecture(?:\.md)?,? (?:section|§) ?(\d+)`), prose, func(b *book, _ text, m []string) bool {
		return b.section("docs/architecture.md", m[1])
	}},
	{"rule of the architecture", regexp.MustCompile(`\barchitecture rule (\d+)`), prose, func(b *book, _ text, m []string) bool {
		return b.architecture[m[1]]
	}},
	{"rule of safety", regexp.MustCompile(`\bSAFETY,? ([A-Z]\d)(?:(?:, | and | to )([A-Z]\d))?`), prose, func(b *book, _ text, m []string) bool {
		return b.rules[m[1]] && (m[2] == "" || b.rules[m[2]])
	}},
	{"what stands outside", regexp.MustCompile(`\b(?:shared/|\.\./shared|DESIGN (?:§|section|rule)|SAFETY\.md|PEERS\.md|EXAMPLES\.md)`), prose, func(*book, text, []string) bool {
		return false
	}},
	{"link", regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)\s]*)?\)`), func(t text) string {
		if path.Ext(t.path) != ".md" {
			return ""
		}
		return t.body
	}, func(b *book, t text, m []string) bool {
		return b.files[path.Join(path.Dir(t.path), m[1])]
	}},
	{"Go file", regexp.MustCompile(`\b((?:[\w-]+/)*[a-z][\w]*\.go)\b`), prose, func(b *book, t text, m []string) bool {
		return b.goFile(t, m[1])
	}},
	{"test", regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)\b`), prose, func(b *book, _ text, m []string) bool {
		return b.tests[m[1]] || b.prefix(m[1])
	}},
	{"script", regexp.MustCompile(`\b(scripts/[\w/.-]+\w)`), body, func(b *book, _ text, m []string) bool {
		return b.files[m[1]]
	}},
	{"target of the Makefile", regexp.MustCompile("`make ([a-z][a-z-]*)"), prose, func(b *book, _ text, m []string) bool {
		return b.makes[m[1]]
	}},
}

// section reports whether a page has a heading that begins with a number.
func (b *book) section(page, number string) bool {
	return slices.ContainsFunc(b.heads[page], func(head string) bool {
		head = strings.TrimPrefix(strings.TrimPrefix(head, "Section "), "§")
		rest, ok := strings.CutPrefix(head, number)
		return ok && (rest == "" || !strings.ContainsAny(rest[:1], "0123456789") && (rest[0] != '.' || len(rest) == 1 || rest[1] == ' '))
	})
}

// prefix reports whether several tests begin with a name, as an option -run has it.
func (b *book) prefix(name string) bool {
	n := 0
	for test := range b.tests {
		if strings.HasPrefix(test, name) {
			n++
		}
	}
	return n > 1
}

// goFile reports whether a Go file that a text names exists: by its path from the
// root or from the text's folder, or, if only a name is given, in the text's
// package, or once in the module.
func (b *book) goFile(t text, name string) bool {
	if strings.Contains(name, "/") {
		if b.files[name] || b.files[path.Join(path.Dir(t.path), name)] {
			return true
		}
		for file := range b.files {
			if strings.HasSuffix(file, "/"+name) {
				return true
			}
		}
		return false
	}
	return len(b.bases[name]) > 0
}

// broken returns what leads nowhere, one line each.
func (b *book) broken(r reference) (bad []string) {
	for _, t := range b.texts {
		if history(t) {
			continue
		}
		seen := map[string]bool{}
		for _, m := range r.find.FindAllStringSubmatch(r.in(t), -1) {
			if !seen[m[0]] && !r.good(b, t, m) && !elsewhere(t, m[0]) {
				bad = append(bad, fmt.Sprintf("%s: %q leads nowhere", t.path, m[0]))
			}
			seen[m[0]] = true
		}
	}
	return bad
}

// elsewhere are names of files and tests of other projects, as "path name".
func elsewhere(t text, name string) bool {
	return foreign[name] || strings.HasPrefix(t.path, "integration/arch/") || strings.HasPrefix(t.path, "docs/spec/")
}

// foreign are files of other projects that comments name: bbolt's internal/common
// and hashicorp/raft's.
var foreign = map[string]bool{"page.go": true, "meta.go": true, "bucket.go": true, "inode.go": true, "raft.go": true}

func TestReferences(t *testing.T) {
	b, err := readBook(moduleRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.texts) < 100 || len(b.tests) < 100 {
		t.Fatalf("%d texts and %d tests were read; the walk is broken", len(b.texts), len(b.tests))
	}
	for _, r := range references {
		t.Run(r.name, func(t *testing.T) {
			for _, line := range b.broken(r) {
				t.Errorf("%s: mend it, or name what it is now", line)
			}
		})
	}
}

// TestReferencesAreFound: each kind of reference finds a broken one, and lets a
// good one be.
func TestReferencesAreFound(t *testing.T) {
	for _, e := range []struct{ kind, good, bad string }{
		{"page", "see docs/safety.md", "see docs/nowhere.md"},
		{"section of a specification", "spec/napi.md section 3.1, spec/napi.md", "spec/napi.md section 3.2"},
		{"section of the architecture", "architecture section 3", "architecture section 9"},
		{"rule of the architecture", "architecture rule 3", "architecture rule 4"},
		{"rule of safety", "(SAFETY S1)", "(SAFETY S1, S7)"},
		{"what stands outside", "the design", "shared/DESIGN.md"},
		{"link", "[safety](docs/safety.md#apply)", "[x](safety.md)"},
		{"Go file", "a.go and log/a.go", "b.go"},
		{"test", "TestGood holds it", "TestGone holds it"},
		{"script", "scripts/fuzz.sh runs it", "scripts/gone.sh runs it"},
		{"target of the Makefile", "`make test` runs it", "`make gone` runs it"},
	} {
		t.Run(e.kind, func(t *testing.T) {
			i := slices.IndexFunc(references, func(r reference) bool { return r.name == e.kind })
			if i < 0 {
				t.Fatal("there is no such kind")
			}
			for _, want := range []bool{true, false} {
				b := &book{
					files: map[string]bool{"scripts/fuzz.sh": true}, bases: map[string][]string{}, tests: map[string]bool{},
					rules: map[string]bool{}, heads: map[string][]string{}, makes: map[string]bool{}, architecture: map[string]bool{},
				}
				said := e.bad
				if want {
					said = e.good
				}
				for name, src := range map[string]string{
					"docs/safety.md":       "## A snapshot (S1)\n",
					"docs/spec/napi.md":    "## 3.1 Objects\n",
					"docs/architecture.md": "## 3. Layout\n3. **Every server.**\n",
					"log/a.go":             "package log\n",
					"log/a_test.go":        "package log\nfunc TestGood(t *testing.T) {}\n",
					"Makefile":             "test: vet\n",
					"README.md":            said + "\n",
				} {
					if err := b.add(name, []byte(src)); err != nil {
						t.Fatal(err)
					}
				}
				if got := b.broken(references[i]); (len(got) == 0) != want {
					t.Errorf("%q: got %q", said, got)
				}
			}
		})
	}
	if n := len(references); n != 11 {
		t.Errorf("%d kinds of references, 11 have examples here", n)
	}
}
