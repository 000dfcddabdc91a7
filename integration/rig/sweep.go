package rig

import (
	"os"
	"path/filepath"
	"time"
)

// cgroupsOf are the names with which cgroups of tests begin. Those of agents have others.
var cgroupsOf = []string{"rutter-qemu-", "rutter-vmstate-", "rutter-cutover-", "rutter-TestVMsDocument"}

// leftAfter is the age after which a test's cgroup is left over: no test runs as long.
const leftAfter = 2 * time.Hour

// sweep removes the cgroups below a folder which tests that were interrupted have left. One with
// a process stays: the kernel removes none such.
func sweep(folder string, now time.Time) {
	for _, name := range cgroupsOf {
		for _, pattern := range []string{filepath.Join(folder, name+"*"), filepath.Join(folder, "*", name+"*")} {
			found, _ := filepath.Glob(pattern) // the pattern is a good one
			for _, path := range found {
				if info, err := os.Stat(path); err != nil || now.Sub(info.ModTime()) < leftAfter {
					continue
				}
				inside, _ := filepath.Glob(filepath.Join(path, "*"))
				for _, one := range append(inside, path) {
					_ = os.Remove(one) // the kernel's own files are not removed, and go with their folder
				}
			}
		}
	}
}
