package budget

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/safety.md has each budget as the code has it.
func TestDocsHaveTheTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, b := range Table() {
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s | %s |", b.Name, b.Of, b.What, b, b.Why))
	}
	if want := strings.Join(lines, "\n") + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("docs/safety.md, W1, must have these lines:\n%s", want)
	}
}
