package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// partAgain is how long a part of an agent that failed rests before it begins anew.
const partAgain = 5 * time.Second

// troubles are what an agent found at its start that people must see to.
type troubles struct {
	mu    sync.Mutex // protects lines
	lines []string
}

func (t *troubles) note(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
}

func (t *troubles) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}

// workFolder is a folder of the agent's data, or, where the disk does not make it,
// one that lasts as long as this process: a node works without its disk.
func workFolder(data, name string, found *troubles, logger *slog.Logger) string {
	path := filepath.Join(data, name)
	err := os.MkdirAll(path, 0o700)
	if err == nil {
		return path
	}
	instead, tempErr := os.MkdirTemp("", "rutter-agent-"+name+"-")
	if tempErr != nil {
		return path // who needs it says so
	}
	logger.Error("a folder cannot be made: what belongs there is kept for this run only", "folder", path, "instead", instead, "error", err)
	found.note("what belongs to " + path + " is kept in " + instead + " for this run only: " + err.Error())
	return instead
}

// unending runs a part of an agent until ctx ends, anew after each failure: the
// node's network does not depend on it.
func unending(ctx context.Context, what string, logger *slog.Logger, run func(ctx context.Context) error) error {
	for {
		err := run(ctx)
		if ctx.Err() != nil || err == nil {
			return err
		}
		logger.Error("a part of the agent failed: it begins anew", "part", what, "error", err, "again", partAgain)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(partAgain):
		}
	}
}
