package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// One program has each mutant, chosen by ChosenBy, and is the product without one.
func TestTogether(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.24\n")
	write("m.go", `package m

import "strings"

type T struct{}

// Join joins.
func (t *T) Join(_ int, parts ...string) string { return strings.Join(parts, ",") }

const limit = 1

func Sum(a, b int) (sum int) { sum = a + b; return }
`)
	write("m_test.go", `package m

import (
	"fmt"
	"testing"
)

func TestM(*testing.T) { fmt.Println("says", new(T).Join(1, "a", "b"), Sum(2, 3)) }
`)
	list := []Mutant{
		{Name: "no-comma", File: "m.go", Old: `","`, New: `""`},
		{Name: "other-join", File: "m.go", Old: `strings.Join(parts, ",")`, New: `parts[0]`},
		{Name: "difference", File: "m.go", Old: "a + b", New: "a - b"},
		{Name: "constant", File: "m.go", Old: "limit = 1", New: "limit = 2"},
	}
	program, alone, err := Together(t.Context(), list, root, t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(alone) != 1 || alone[0].Name != "constant" {
		t.Errorf("these are not in the program: %v", alone)
	}
	for name, want := range map[string]string{"": "says a,b 5", "no-comma": "says ab 5", "other-join": "says a 5", "difference": "says a,b -1", "constant": "says a,b 5"} {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=TestM")
		cmd.Env = append(os.Environ(), ChosenBy+"="+name)
		out, err := cmd.CombinedOutput()
		if line, _, _ := strings.Cut(string(out), "\n"); err != nil || line != want {
			t.Errorf("with %q: %s (%v), want %s", name, out, err, want)
		}
	}
}
