package rig

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestSweep: only old cgroups of tests are removed, with those inside.
func TestSweep(t *testing.T) {
	t.Parallel()
	root, now := t.TempDir(), time.Now()
	for _, name := range []string{"memory/rutter-qemu-1/a", "memory/rutter-qemu-2/a", "cpu/rutter-vmstate-1-b", "rutter-cutover-7", "memory/rutter/c", "memory/rutter-5595d88c-6e4d-4bda-b58e-97dd02e30001"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	paths, err := filepath.Glob(filepath.Join(root, "*", "rutter*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, filepath.Join(root, "rutter-cutover-7")) {
		if filepath.Base(path) == "rutter-qemu-2" {
			continue
		}
		if err := os.Chtimes(path, now, now.Add(-2*leftAfter)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(root, now)
	var left []string
	for _, pattern := range []string{"rutter*", "*/rutter*"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is a good one
		left = append(left, found...)
	}
	for i, path := range left {
		left[i] = filepath.Base(path)
	}
	if want := []string{"rutter", "rutter-5595d88c-6e4d-4bda-b58e-97dd02e30001", "rutter-qemu-2"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
