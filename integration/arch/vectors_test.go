package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestVectorsAreTheSame: docs/spec has the vectors that the tests read, byte for
// byte.
func TestVectorsAreTheSame(t *testing.T) {
	root := moduleRoot(t)
	for page, read := range map[string]string{
		"docs/spec/svp-vectors.json":          "varp/testdata/svp-vectors.json",
		"docs/spec/vminfod-diff-vectors.json": "agent/vminfo/vmdoc/testdata/diff-vectors.json",
	} {
		var texts [2][]byte
		for i, name := range []string{page, read} {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = b
		}
		if !bytes.Equal(texts[0], texts[1]) {
			t.Errorf("%s and %s differ", page, read)
		}
	}
}
