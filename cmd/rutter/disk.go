package main

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"rutter/cmd/rutter/term"
	"rutter/raftstore"
)

const (
	// minDiskPatience bounds --disk-patience from below: twice what costs the
	// leadership, so that it was handed over by then.
	minDiskPatience = 2 * time.Second
	// hungGrace is how long a server whose disk hangs may take to end in order.
	hungGrace = 5 * time.Second
)

// lowWaterOf reads --disk-low-water; 0 is the default.
func lowWaterOf(text string) (int64, error) {
	if text == "auto" {
		return 0, nil
	}
	size, err := parseSize(text)
	if err != nil || size == 0 || size > 1<<50 {
		return 0, term.Usagef("--disk-low-water %q: want a size, as in 1GiB, or auto", text)
	}
	return int64(size), nil
}

// endHung ends the process if err says that the disk hangs, after a while in which
// it may end in order: whoever waits for the disk, as a request that is to be noted
// there, would keep it.
func endHung(err error, logger *slog.Logger) {
	if !errors.Is(err, raftstore.ErrDiskHangs) {
		return
	}
	time.AfterFunc(hungGrace, func() {
		logger.Error("the process ends without waiting for the disk", "error", err)
		os.Exit(exitFailed)
	})
}
