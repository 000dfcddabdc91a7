package raftstore

import (
	"testing"
	"time"

	"rutter/log"
)

// What changes.db is told of one entry stays as it is: the persister reads it while
// the next entry is applied.
func TestWindowChangesAreOfOneEntry(t *testing.T) {
	t.Parallel()
	w := newWindow(time.Hour, 10, log.UUID{})
	w.contained = true
	of := w.takeChanges() // an entry that draws no line
	w.drawLine(log.Asker{1}, newID())
	if len(of.lines) != 0 {
		t.Errorf("the entry before is told of %d lines, want none", len(of.lines))
	}
	if next := w.takeChanges(); len(next.lines) != 1 {
		t.Errorf("the entry that draws a line is told of %d, want it", len(next.lines))
	}
}
