package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrNotRegular: a name is that of a pipe, a device or a folder, but a file is needed.
var ErrNotRegular = errors.New("no regular file")

// OpenRegular opens a file that a user named, for reading. It does not wait for the other
// end of a pipe, because that wait could not be interrupted. Errors: ErrNotRegular.
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

// CheckRegular returns ErrNotRegular unless path is a regular file. It is for files that
// a library opens by name.
func CheckRegular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is %w, its mode is %s", path, ErrNotRegular, info.Mode())
	}
	return err
}
