package mutants

import (
	"fmt"
	"strings"
)

// FoundFile has what the simulator found, from the module's root.
const FoundFile = "integration/simulate/mutants/testdata/found.json"

// Page is docs/mutants.md below its introduction: a table of the mutants of each area.
func Page(found map[string]Found) string {
	var b strings.Builder
	for _, area := range []string{"store", "node"} {
		fmt.Fprintf(&b, "\n## Mutants of the %s\n\n", map[string]string{"store": "servers", "node": "nodes, rights and limits"}[area])
		b.WriteString("| mutant | where | what goes wrong | breaks | tests that notice it | simulator |\n|---|---|---|---|---|---|\n")
		for _, m := range All(area) {
			tests := "none"
			if len(m.Own) > 0 {
				tests = "`" + strings.Join(m.Own, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s | %s |\n", m.Name, m.File, m.Breaks, m.why(), tests, m.found(found[m.Name]))
		}
	}
	return b.String()
}

// why names the rules that m breaks, and where the bug is from.
func (m Mutant) why() string {
	parts := append([]string(nil), m.Rules...)
	for _, from := range []string{m.Peer, m.Past} {
		if from != "" {
			parts = append(parts, from)
		}
	}
	return strings.Join(parts, ", ")
}

// found is a cell of the table.
func (m Mutant) found(f Found) string {
	switch {
	case m.Unseen != "" && f.After == 0:
		return "not to be seen from outside, because " + m.Unseen
	case f.After == 1:
		return "after 1 history"
	case f.After > 0:
		return fmt.Sprintf("after %d histories", f.After)
	case f.Tried > 0:
		return fmt.Sprintf("not in %d histories", f.Tried)
	default:
		return "not tried"
	}
}
