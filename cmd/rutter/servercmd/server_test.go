package servercmd

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/raftstore"
)

// A new server that was told of no cluster says what it waits for.
func TestWarnAlone(t *testing.T) {
	old := t.TempDir()
	if err := os.WriteFile(filepath.Join(old, "raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg    raftstore.Config
		warned bool
	}{
		"nothing said": {raftstore.Config{Dir: t.TempDir()}, true},
		"it has data":  {raftstore.Config{Dir: old}, false},
		"bootstrap":    {raftstore.Config{Dir: t.TempDir(), Bootstrap: true}, false},
		"peers":        {raftstore.Config{Dir: t.TempDir(), InitialMembers: []raftstore.Member{{ID: "s1"}}}, false},
		"join":         {raftstore.Config{Dir: t.TempDir(), Join: []string{"10.0.0.1:7421"}}, false},
	} {
		var out bytes.Buffer
		warnAlone(c.cfg, slog.New(slog.NewTextHandler(&out, nil)))
		if got := strings.Contains(out.String(), "belongs to no cluster"); got != c.warned {
			t.Errorf("%s: warned %v, want %v: %s", name, got, c.warned, out.String())
		}
	}
}
