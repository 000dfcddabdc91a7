package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// restartPause is the pause before a failed part of an agent starts again.
const restartPause = 5 * time.Second

// troubles are the problems that an agent found at its start and that operators must
// mend.
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

// workFolder returns a folder of the agent's data. If the disk cannot have it, it
// returns a temporary one, because a node works without its disk.
func workFolder(data, name string, found *troubles, logger *slog.Logger) string {
	path := filepath.Join(data, name)
	err := os.MkdirAll(path, 0o700)
	if err == nil {
		return path
	}
	instead, tempErr := os.MkdirTemp("", "rutter-agent-"+name+"-")
	if tempErr != nil {
		return path // the caller that uses it reports the error
	}
	logger.Error("a folder cannot be made: what belongs there is kept for this run only", "folder", path, "instead", instead, "error", err)
	found.note("what belongs to " + path + " is kept in " + instead + " for this run only: " + err.Error())
	return instead
}

// restarting runs a part of an agent until ctx ends, and starts it again after each
// failure. The node's network does not depend on the part.
func restarting(ctx context.Context, what string, logger *slog.Logger, run func(ctx context.Context) error) error {
	for {
		err := run(ctx)
		if ctx.Err() != nil || err == nil {
			return err
		}
		logger.Error("a part of the agent failed: it begins anew", "part", what, "error", err, "again", restartPause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restartPause):
		}
	}
}
