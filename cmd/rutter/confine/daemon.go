package confine

import (
	"fmt"
	"log/slog"
)

// DropLogged drops all capabilities except needs, and logs what is left. If a path
// belongs to another user, it also keeps the capability for files of other users.
func DropLogged(needs Set, paths []string, logger *slog.Logger) {
	if foreign := FirstForeign(paths...); foreign != "" && needs&DACOverride == 0 {
		needs |= DACOverride
		logger.Warn("a path belongs to another user: give it to the one of this process, and it needs no right to the files of others", "path", foreign)
	}
	left, err := Drop(needs)
	LogDropped(left, err, logger)
}

// LogDropped logs the result of Drop or Bound.
func LogDropped(left Set, err error, logger *slog.Logger) {
	if err != nil {
		logger.Warn("capabilities stay as they are", "capabilities", left, "error", err)
		return
	}
	logger.Info("capabilities dropped", "left", left)
}

// PrivateFolder makes a daemon's folder private to its owner.
func PrivateFolder(path string, logger *slog.Logger, marks ...string) error {
	closed, err := Folder(path, marks...)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if closed {
		logger.Warn("the data folder was open to others of this machine: it is closed now", "folder", path)
	}
	return nil
}
