package install

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cgroupRoot is where the hierarchies of cgroups are.
const cgroupRoot = "/sys/fs/cgroup"

// cgroupName is the name of a machine's own cgroups, in each hierarchy of version 1.
func (m *machines) cgroupName(machine string) string {
	return "rutter-" + filepath.Base(filepath.Dir(m.dir)) + "-" + machine
}

// letWrite gives a compute node what VMs need of a machine, and a container has read-only: the
// settings of networks, and cgroups of its own of version 1. Of version 2 a container has its own.
func (m *machines) letWrite(name string) {
	m.t.Helper()
	m.must(name, `mount -o remount,bind,rw /proc/sys
for at in /sys/fs/cgroup/memory /sys/fs/cgroup/pids /sys/fs/cgroup/cpu; do
	[ -e $at/tasks ] || continue
	mount -o remount,bind,rw $at
	mkdir $at/`+m.cgroupName(name)+`
	mount --bind $at/`+m.cgroupName(name)+` $at
done`)
}

// removeCgroups removes the cgroups that letWrite made, when the processes in it have ended.
func (m *machines) removeCgroups() {
	var wrong error
	for end := time.Now().Add(bootPatience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if wrong = m.removeOwn(); wrong == nil {
			return
		}
	}
	m.t.Error(wrong)
}

func (m *machines) removeOwn() error {
	var all []string
	err := filepath.WalkDir(cgroupRoot, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, m.cgroupName("")) {
			all = append(all, path)
		}
		return nil // cgroups of others come and go
	})
	for i := len(all) - 1; i >= 0; i-- {
		if wrong := os.Remove(all[i]); wrong != nil {
			err = fmt.Errorf("a cgroup stays: %w", wrong)
		}
	}
	return err
}
