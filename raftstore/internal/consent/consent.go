// Package consent keeps, in a file of a server's data folder, up to which feature version
// an operator has said that the cluster may rise.
package consent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rutter/log"
)

// name is the file's name in the data folder. Programs that do not know it leave it alone.
const name = "feature-consent"

// Load returns the version; 0 if none was agreed to.
func Load(dir string) (uint32, error) {
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: want a feature version, as rutter cluster finalize writes it: delete the file, and run that again: %w: %w", path, err, log.ErrCorrupt)
	}
	return uint32(v), nil
}

// Save writes the version, synced: a crash leaves the old one or the new one.
func Save(dir string, version uint32) (err error) {
	file, err := os.CreateTemp(dir, name+".*.pending")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, version)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
