package simulate

import (
	"fmt"
	"path/filepath"

	"rutter/integration/simulate/mutants"
)

// Planted is what is known of bugs that are planted (package mutants).
type Planted struct {
	Found int // by the simulator
	Own   int // not by the simulator, but by a test of their own
	Total int
}

// CountPlanted reads what the simulator found. root is the module's root.
func CountPlanted(root string) (p Planted, err error) {
	found, err := mutants.ReadFound(filepath.Join(root, filepath.FromSlash(mutants.FoundFile)))
	if err != nil {
		return p, fmt.Errorf("simulate: %w", err)
	}
	for _, m := range mutants.All("") {
		p.Total++
		switch {
		case found[m.Name].After > 0:
			p.Found++
		case len(m.Own) > 0:
			p.Own++
		}
	}
	return p, nil
}

// String is it as key=value.
func (p Planted) String() string {
	return fmt.Sprintf("planted_found=%d planted_own_test=%d planted_total=%d", p.Found, p.Own, p.Total)
}
