package wal

import (
	"errors"
	"os"
	"syscall"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
	"golang.org/x/sys/unix"
)

// files are the log's files in the real file system. They differ from the library's in how
// they are synced: the first sync of a file is fsync(2), all others are fdatasync(2). The
// file has its whole size from the beginning, so all that changes and need not be read back
// is the time of the last change; fsync would make the file system write that into its
// journal, and wait there for whatever else was written to it, such as changes.db's pages.
type files struct{ *fs.FS }

func (f files) Create(dir, name string, size uint64) (types.WritableFile, error) {
	file, err := f.FS.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	return synced(file)
}

func (f files) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := f.FS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return synced(file)
}

// file is one of files. Its methods are called by one goroutine at a time, except for reads.
type file struct {
	types.WritableFile
	conn syscall.RawConn
	full bool // it was synced with all that is known of it, its name too if it was made
}

// synced returns a file of the library's as one of ours.
func synced(of types.WritableFile) (types.WritableFile, error) {
	with, ok := of.(syscall.Conn)
	if !ok {
		return of, nil // the library's own way: slower, and as safe
	}
	conn, err := with.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, of.Close())
	}
	return &file{WritableFile: of, conn: conn}, nil
}

// Sync implements types.WritableFile.
func (f *file) Sync() error {
	if !f.full {
		err := f.WritableFile.Sync()
		f.full = err == nil
		return err
	}
	var failed error
	err := f.conn.Control(func(fd uintptr) {
		for failed = unix.EINTR; errors.Is(failed, unix.EINTR); {
			failed = unix.Fdatasync(int(fd))
		}
	})
	return errors.Join(err, os.NewSyscallError("fdatasync", failed))
}
