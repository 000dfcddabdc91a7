package serve

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"rutter/cmd/rutter/term"
	"rutter/raftstore"
)

const (
	// hungGrace is how long a server whose disk hangs may take to end in order.
	hungGrace = 5 * time.Second
)

// endHung ends the process if err says that the disk hangs, after a while in which
// it may end in order: whoever waits for the disk, as a request that is to be noted
// there, would keep it.
func endHung(err error, logger *slog.Logger) {
	if !errors.Is(err, raftstore.ErrDiskHangs) {
		return
	}
	time.AfterFunc(hungGrace, func() {
		logger.Error("the process ends without waiting for the disk", "error", err)
		os.Exit(term.ExitFailed)
	})
}
