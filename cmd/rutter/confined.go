package main

import (
	"fmt"
	"log/slog"

	"rutter/cmd/rutter/confine"
)

func drop(needs confine.Set, paths []string, logger *slog.Logger) {
	if foreign := confine.Foreign(paths...); foreign != "" && needs&confine.DACOverride == 0 {
		needs |= confine.DACOverride
		logger.Warn("a path belongs to another user: give it to the one of this process, and it needs no right to the files of others", "path", foreign)
	}
	left, err := confine.Drop(needs)
	told(left, err, logger)
}

func told(left confine.Set, err error, logger *slog.Logger) {
	if err != nil {
		logger.Warn("capabilities stay as they are", "capabilities", left, "error", err)
		return
	}
	logger.Info("capabilities dropped", "left", left)
}

// privateFolder closes a daemon's folder to others.
func privateFolder(path string, logger *slog.Logger, marks ...string) error {
	closed, err := confine.Folder(path, marks...)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if closed {
		logger.Warn("the data folder was open to others of this machine: it is closed now", "folder", path)
	}
	return nil
}
