package simulate

import "testing"

// worlds are what a worker can run histories in.
var worlds = map[string]Run{"": whole, "tiny": tiny}

// TestWorker is no test: it is what a Pool's processes run.
func TestWorker(t *testing.T) {
	name, ok := Working()
	if !ok {
		t.Skip("only a Pool starts workers")
	}
	Work(t, worlds[name])
}
