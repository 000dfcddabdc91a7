package main

import "testing"

// TestNewsAfterRestart: the bench's figure is one batch of illumos.
func TestNewsAfterRestart(t *testing.T) {
	if took, err := newsAfterRestart(); err != nil || took != illumosBatch {
		t.Errorf("a client of illumos' pace hears of a move after %s, error %v; want %s", took, err, illumosBatch)
	}
}
