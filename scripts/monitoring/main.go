package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

func main() {
	if err := write("."); err != nil {
		slog.Error("cannot write the files", "error", err)
		os.Exit(1)
	}
}

// write writes all files below root, the module's folder.
func write(root string) error {
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return fmt.Errorf("run it in the module's folder: %w", err)
	}
	all, err := files()
	if err != nil {
		return err
	}
	for path, b := range all {
		if err := os.WriteFile(filepath.Join(root, path), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
