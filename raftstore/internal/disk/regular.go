package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrNotRegular: a name is that of a pipe, a device or a folder, where a file is
// wanted.
var ErrNotRegular = errors.New("no regular file")

// OpenRegular opens a file that somebody named, to be read. It does not wait for
// the other end of a pipe, which nothing could interrupt. Errors: ErrNotRegular.
func OpenRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is %w, its mode is %s: copy what it has to a file, and name that", path, ErrNotRegular, info.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// CheckRegular refuses what is no regular file; it is for files that a library opens by name.
func CheckRegular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is %w, its mode is %s", path, ErrNotRegular, info.Mode())
	}
	return err
}
