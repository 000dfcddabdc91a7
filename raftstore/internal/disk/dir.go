package disk

import (
	"fmt"
	"os"
)

// SyncDir makes the names in a folder durable. Errors: ErrTrouble.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w: %w", ErrTrouble, err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w: %w", ErrTrouble, err)
	}
	return nil
}
