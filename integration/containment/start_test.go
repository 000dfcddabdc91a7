package containment

import (
	"testing"

	"rutter/cmd/rutter/bench"
)

// A cluster starts, has a leader and answers: what every test here begins with.
func TestClusterStarts(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{})
	if _, err := c.Leader(patience(t)); err != nil {
		t.Fatal(err)
	}
}
