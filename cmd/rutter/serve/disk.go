package serve

import (
	"errors"
	"log/slog"
	"time"

	"rutter/cmd/rutter/term"
	"rutter/raftstore"
)

const (
	// hungGrace bounds the time in which a server whose disk hangs may end in order.
	hungGrace = 5 * time.Second
)

// endHung ends the process if err says that the disk hangs. First it waits, because the
// process may end in order. But a goroutine that waits for the disk, such as a request
// that writes an audit record, could prevent that.
func endHung(err error, logger *slog.Logger, exit func(code int)) {
	if !errors.Is(err, raftstore.ErrDiskHangs) {
		return
	}
	time.AfterFunc(hungGrace, func() {
		logger.Error("the process ends without waiting for the disk", "error", err)
		exit(term.ExitFailed)
	})
}
