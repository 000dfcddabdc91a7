package vmrun

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
)

// ErrNoCgroup: the folder of the VMs' cgroups is in no cgroup hierarchy. What is made
// there would be plain files, which hold no process and no limit.
var ErrNoCgroup = errors.New("vminfo: not in a cgroup hierarchy")

// CheckCgroup reports whether VMs can have their cgroups where the configuration
// says: in a mounted hierarchy, of either version. Error: ErrNoCgroup.
func (r *Runner) CheckCgroup() error {
	for at := r.cfg.Cgroup; ; at = filepath.Dir(at) {
		var st unix.Statfs_t
		err := unix.Statfs(at, &st)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue // it is made with the first VM
		}
		if err == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s is an ordinary folder", at)
		}
		return fmt.Errorf("%w: %s: %w: name a folder under a mounted one, as in %s", ErrNoCgroup, r.cfg.Cgroup, err, system.DefaultCgroup())
	}
}
