package raftstore

import (
	"os"

	"rutter/raftstore/internal/disk"
)

// ErrNotRegular: a name is that of a pipe, a device or a folder, where a file is
// wanted.
var ErrNotRegular = disk.ErrNotRegular

// OpenRegular opens a file that somebody named, to be read. It does not wait for
// the other end of a pipe, which nothing could interrupt. Errors: ErrNotRegular.
func OpenRegular(path string) (*os.File, error) { return disk.OpenRegular(path) }
