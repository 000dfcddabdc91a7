package raftstore

import (
	"testing"

	faultdisk "rutter/integration/simulate/disk"
)

// newFaultFS mounts a file system that fails and crashes when it is told to, or skips the test.
func newFaultFS(t testing.TB) *faultdisk.Folder { return newFaultFSOn(t, fastDir(t)) }

// newFaultFSOn mounts one on a folder.
func newFaultFSOn(t testing.TB, folder string) *faultdisk.Folder {
	t.Helper()
	return faultdisk.New(t).Mount("data", folder)
}
