package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rutter/integration/simulate/history"
)

// Mutant is one place of the product that is broken on purpose.
type Mutant struct {
	Name string // unique, in lower case with hyphens
	File string // from the module's root
	// Old is a text that File has exactly once, and New is what replaces it.
	Old, New string
	// Breaks says in one sentence, without a full stop, what the product does then.
	Breaks string
	// Rules are the rules of docs/safety.md that it breaks, e.g. "S4".
	Rules []string
	// Peer is the bug of a peer that it is, as package faults names it, e.g. "etcd#13766".
	Peer string
	// Past is empty, Survivor, or the bug of ours that it plants again.
	Past string
	// Themes are those of the histories in which it is looked for; empty: those of its File's package.
	Themes []history.Theme
	// Unseen says why no history of a whole cluster can show it; empty: one may.
	Unseen string
	// Own are the tests that notice it, as FOLDER.TEST or FOLDER.TEST/SUBTEST from the
	// module's root. Each of them must fail. If empty, the simulator must find it.
	Own []string
}

// Survivor is the Past of a mutant that no test noticed when mutants were first made by hand.
const Survivor = "survived the first round of mutants"

// Areas are the tables of mutants by their names.
var Areas = map[string][][]Mutant{
	"store": {store, storeApply, storeLog, storeTransport, storeFeed},
	"node":  {node},
}

// All are the mutants of an area in the order of the tables, or of all areas if area is empty.
func All(area string) []Mutant {
	var all []Mutant
	for _, name := range []string{"store", "node"} {
		if area == "" || area == name {
			all = append(all, slices.Concat(Areas[name]...)...)
		}
	}
	return all
}

// Find is the mutant of a name.
func Find(name string) (Mutant, error) {
	all := All("")
	i := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
	if i < 0 {
		return Mutant{}, fmt.Errorf("there is no mutant %q: the list is docs/mutants.md", name)
	}
	return all[i], nil
}

var goodName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Text is the file of m with the mutant in it. root is the module's root.
func (m Mutant) Text(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return "", fmt.Errorf("mutant %q: %w", m.Name, err)
	}
	switch n := strings.Count(string(b), m.Old); {
	case m.Old == "" || m.Old == m.New:
		return "", fmt.Errorf("mutant %q changes nothing", m.Name)
	case n != 1:
		return "", fmt.Errorf("mutant %q: %s has its old text %d times, want once; the code has changed, so change the mutant with it", m.Name, m.File, n)
	}
	return strings.Replace(string(b), m.Old, m.New, 1), nil
}

// Check reports what is wrong with m as a row of the list. root is the module's root.
func (m Mutant) Check(root string) error {
	if !goodName.MatchString(m.Name) {
		return fmt.Errorf("mutant %q: a name has lower case letters, digits and hyphens", m.Name)
	}
	if m.Breaks == "" || strings.HasSuffix(m.Breaks, ".") {
		return fmt.Errorf("mutant %q: Breaks must be a sentence without its full stop", m.Name)
	}
	if _, err := m.Text(root); err != nil {
		return err
	}
	for _, own := range m.Own {
		folder, test := splitTest(own)
		if !strings.HasPrefix(test, "Test") && !strings.HasPrefix(test, "Fuzz") {
			return fmt.Errorf("mutant %q: %q is not FOLDER.TEST", m.Name, own)
		}
		function, _, _ := strings.Cut(test, "/")
		if !hasTest(filepath.Join(root, filepath.FromSlash(folder)), function) {
			return fmt.Errorf("mutant %q: there is no %s", m.Name, own)
		}
	}
	return nil
}

// splitTest parts FOLDER.TEST. No folder of the module has a dot in its name.
func splitTest(own string) (folder, test string) {
	folder, test, _ = strings.Cut(own, ".")
	return folder, test
}

// hasTest reports whether a folder has a test function.
func hasTest(folder, function string) bool {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), "func "+function+"(")
	})
}
