package raftstore

import (
	"os"
	"path/filepath"
	"testing"

	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/raftlog"
)

// A crash between the two writes of a founding: the server begins again instead of
// waiting without end for a leader that it alone could be.
func TestFoundingCutShort(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t, "s1", t.TempDir())
	cfg.Bootstrap = true
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.raftLog.SetUint64(raftlog.KeyCurrentTerm, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	n := launch(t, cfg)
	must(t, n, tagChange(newID(), "first"))
}

// A crash within the first write of a file: it stands under another name, and
// is made again.
func TestFileHalfMade(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t, "s1", t.TempDir())
	cfg.Bootstrap = true
	for _, name := range []string{changesdb.Name, raftlog.FileName} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, name+".new"+boltfile.PendingSuffix), make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := launch(t, cfg)
	must(t, n, tagChange(newID(), "first"))
}
