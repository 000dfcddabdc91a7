package zonename

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"a": true, "east-2": true, "9": true, "-": true, strings.Repeat("z", Max): true,
		"": false, "East": false, "a b": false, "a_b": false, "ä": false, "a\n": false, strings.Repeat("z", Max+1): false,
	} {
		if err := Check(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
