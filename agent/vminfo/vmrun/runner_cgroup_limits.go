package vmrun

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// cpuPeriod is in how many microseconds a VM has its share of CPU time.
const cpuPeriod = 100_000

// controllers are the cgroup controllers that limit VMs, by their names in both
// versions. In version 1 each has a hierarchy of its own.
var controllers = []string{"memory", "pids", "cpu"}

// firstHierarchies is where version 1 has its hierarchies.
const firstHierarchies = "/sys/fs/cgroup"

// cgroups are the folders of a VM's cgroups: the one that package system knows, and in
// version 1 those of the other controllers.
func (r *Runner) cgroups(id log.UUID) []string {
	folders := []string{r.finder.CgroupOf(id)}
	name, first := strings.CutPrefix(filepath.Clean(r.cfg.Cgroup), firstHierarchies+"/memory/")
	if !first {
		return folders
	}
	for _, controller := range controllers[1:] {
		hierarchy := filepath.Join(firstHierarchies, controller)
		var st unix.Statfs_t
		if err := unix.Statfs(hierarchy, &st); err == nil && st.Type == unix.CGROUP_SUPER_MAGIC {
			folders = append(folders, filepath.Join(hierarchy, strings.ReplaceAll(name, "/", "-")+"-"+id.String()))
		}
	}
	return folders
}

// makeCgroups makes the cgroups of a VM.
func (r *Runner) makeCgroups(id log.UUID) error {
	for _, folder := range r.cgroups(id) {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	r.enableControllers()
	return nil
}

// enableControllers enables the controllers for the VMs' cgroups, which version 2 needs
// in each folder above. One that cannot be enabled is an error only for its limit.
func (r *Runner) enableControllers() {
	var above []string
	for at := filepath.Clean(r.cfg.Cgroup); at != "/" && system.Exists(filepath.Join(at, "cgroup.subtree_control")); at = filepath.Dir(at) {
		above = append(above, at)
	}
	for i := len(above) - 1; i >= 0; i-- {
		for _, controller := range controllers {
			_ = os.WriteFile(filepath.Join(above[i], "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
	}
}

// removeCgroups removes the cgroups of a VM besides the one of package system.
func (r *Runner) removeCgroups(id log.UUID) error {
	for _, folder := range r.cgroups(id)[1:] {
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}

// setLimit writes a limit into the first of names that a cgroup of the VM has.
func (r *Runner) setLimit(id log.UUID, value string, names ...string) error {
	for _, folder := range r.cgroups(id) {
		for _, name := range names {
			err := os.WriteFile(filepath.Join(folder, name), []byte(value), 0o644)
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
	}
	return fmt.Errorf("no cgroup of it has %s: %w", strings.Join(names, " or "), fs.ErrNotExist)
}

// limit sets the limits of the VM's cgroups from its manifest: max_physical_memory
// (MiB), max_lwps (processes and threads), and cpu_cap (percent of one CPU).
func (r *Runner) limit(m system.Manifest) error {
	p, err := programOf(m)
	if err != nil {
		return nil // what runs, if it runs, keeps its limits
	}
	memory := int64(0) // none
	switch {
	case p.machine != nil:
		memory = m.Number("ram", vmdoc.DefaultRAM) + vmdoc.HardwareMemory
	case !p.idle:
		memory = vmdoc.DefaultMemory
	}
	if memory = m.Number("max_physical_memory", memory); memory > 0 {
		if err := r.setLimit(m.UUID, strconv.FormatInt(memory*system.Mebi, 10), system.MemoryFiles...); err != nil {
			return fmt.Errorf("vminfo: VM %s: its memory limit of %d MiB: %w", m.UUID, memory, err)
		}
	}
	processes := m.Number("max_lwps", vmdoc.DefaultLWPs)
	if err := r.setLimit(m.UUID, strconv.FormatInt(processes, 10), "pids.max"); err != nil {
		return fmt.Errorf("vminfo: VM %s: its limit of %d processes: %w", m.UUID, processes, err)
	}
	share := m.Number("cpu_cap", 0)
	if share == 0 {
		return nil
	}
	quota := strconv.FormatInt(share*cpuPeriod/100, 10)
	err = r.setLimit(m.UUID, fmt.Sprintf("%s %d", quota, cpuPeriod), "cpu.max")
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(r.setLimit(m.UUID, strconv.Itoa(cpuPeriod), "cpu.cfs_period_us"), r.setLimit(m.UUID, quota, "cpu.cfs_quota_us"))
	}
	if err != nil {
		return fmt.Errorf("vminfo: VM %s: its limit of %d%% of a CPU: %w", m.UUID, share, err)
	}
	return nil
}
