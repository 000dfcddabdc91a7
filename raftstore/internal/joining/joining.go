// Package joining keeps, in a file of a server's data folder, that this server joined a
// cluster for a vote and has not got it yet.
//
// A server that was stopped while it caught up asks for its vote again because of this
// file. A replica has no such file, so no start makes it a voter.
package joining

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"rutter/raftstore/internal/disk"
)

// name is the file's name in the data folder. Programs that do not know it leave it alone.
const name = "joins-for-a-vote"

// Noted reports whether the file is there.
func Noted(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Note writes the file. If it is lost in a crash, the server follows without a vote, and an
// operator promotes it.
func Note(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		return err
	}
	return disk.SyncDir(dir)
}

// Forget removes the file, if it is there.
func Forget(dir string) error {
	err := os.Remove(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, disk.SyncDir(dir))
}
