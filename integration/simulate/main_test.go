package simulate

import (
	"os"
	"testing"

	"rutter/integration/simulate/disk"
)

func TestMain(m *testing.M) {
	if disk.Serve() {
		return
	}
	os.Exit(m.Run())
}

// TestWorker is no test: it is what a Pool's processes run.
func TestWorker(t *testing.T) {
	name, ok := Working()
	if !ok {
		t.Skip("only a Pool starts workers")
	}
	if name == "tiny" {
		Work(t, tiny)
		return
	}
	var d *disk.Disk
	if _, err := os.Stat("/dev/fuse"); err == nil && os.Geteuid() == 0 {
		d = disk.New(t) // else servers that lose power are killed, and lose nothing
	}
	Work(t, whole(d))
}
