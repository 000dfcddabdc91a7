package system

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// maxSmallFile bounds the bytes of the kernel's files and of pid files, of which one
// line matters.
const maxSmallFile = 16 << 10

// readSmall reads a small file, at most maxSmallFile bytes.
func readSmall(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, maxSmallFile)
	n, err := unix.Read(fd, b)
	return b[:max(n, 0)], err
}

// Namespace is an open network namespace; fd keeps it alive.
type Namespace struct {
	Fd  int
	Ino uint64
}

// Close releases the namespace.
func (n Namespace) Close() {
	if n.Fd >= 0 {
		_ = unix.Close(n.Fd)
	}
}

// OpenNamespace opens the namespace of that name; fd is -1 if there is none.
// A plain file is none (yet): ip-netns(8) makes the file first, then mounts.
func OpenNamespace(folder, name string) Namespace {
	none := Namespace{Fd: -1}
	fd, err := unix.Open(filepath.Join(folder, name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return none
	}
	n := Namespace{Fd: fd}
	var st unix.Stat_t
	var in unix.Statfs_t
	if unix.Fstatfs(fd, &in) != nil || in.Type != unix.NSFS_MAGIC || unix.Fstat(fd, &st) != nil {
		n.Close()
		return none
	}
	n.Ino = st.Ino
	return n
}

// Process is the init process of a VM: its pidfd reports its end.
type Process struct {
	Pid, Fd int
	Boot    time.Time
}

// Finder finds the running parts of a VM. It is immutable.
type Finder struct {
	PIDs     string // the folder of UUID.pid
	Machines string // where systemd-machined keeps its machines
	Cgroup   string // the folder of the VMs' cgroups
}

// VM names a VM and says where to look for it.
type VM struct {
	UUID      log.UUID
	Zone      string
	HasCgroup bool
	// Machined: systemd-machined is on this node.
	Machined bool
}

// InitProcess finds the init process of a VM: the process that its pid file or
// systemd-machined names, or otherwise the first in its cgroup; and it is in the VM's
// namespace or cgroup. A process number that was reused is not accepted. Once a named
// init has ended, what is left in the cgroup is not an init process.
func (f Finder) InitProcess(vm VM, ns Namespace) (Process, bool) {
	named := false
	for _, find := range []func(VM) int{f.pidOfFile, f.pidOfMachine} {
		pid := find(vm)
		if pid <= 0 {
			continue
		}
		named = true
		if p, ok := f.openProcess(vm, ns, pid); ok {
			return p, true
		}
	}
	if pid := f.pidOfCgroup(vm); pid > 0 && !named {
		return f.openProcess(vm, ns, pid)
	}
	return Process{}, false
}

func (f Finder) pidOfFile(vm VM) int {
	text, err := readSmall(filepath.Join(f.PIDs, vm.UUID.String()+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return 0
	}
	return pid
}

// pidOfMachine reads the file of a machine of systemd-machined: lines KEY=VALUE, of
// which LEADER is its init process.
func (f Finder) pidOfMachine(vm VM) int {
	if !vm.Machined {
		return 0 // machined is not here; the status reports that
	}
	text, err := readSmall(filepath.Join(f.Machines, vm.Zone))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "LEADER="); ok {
			pid, _ := strconv.Atoi(value) // 0 is none
			return pid
		}
	}
	return 0
}

func (f Finder) pidOfCgroup(vm VM) int {
	if !vm.HasCgroup {
		return 0
	}
	text, err := readSmall(filepath.Join(f.CgroupOf(vm.UUID), "cgroup.procs"))
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	pid, _ := strconv.Atoi(string(line)) // 0 is none
	return pid
}

// CgroupOf returns the folder of a VM's cgroup.
func (f Finder) CgroupOf(id log.UUID) string { return filepath.Join(f.Cgroup, id.String()) }

// openProcess opens a process if it runs and is the VM's.
func (f Finder) openProcess(vm VM, ns Namespace, pid int) (Process, bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return Process{}, false
	}
	boot, err := bootOf(pid)
	// What was read from /proc is of this process if it still runs afterwards.
	if err == nil && Lives(fd) && !isWaiting(pid) && (inNamespace(pid, ns) || f.inCgroup(pid, vm.UUID)) && Lives(fd) {
		return Process{Pid: pid, Fd: fd, Boot: boot}, true
	}
	_ = unix.Close(fd)
	return Process{}, false
}

// Lives reports whether the process of a pidfd has not ended: the descriptor is
// readable once it has, also while it is a zombie (pidfd_open(2)).
func Lives(fd int) bool {
	set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(set, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n == 0
	}
}

func inNamespace(pid int, ns Namespace) bool {
	var st unix.Stat_t
	return ns.Fd >= 0 && unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st) == nil && st.Ino == ns.Ino
}

func (f Finder) inCgroup(pid int, id log.UUID) bool {
	text, err := readSmall(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	want := "/" + filepath.Base(f.Cgroup) + "/" + id.String()
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(strings.TrimSpace(line), want) {
			return true
		}
	}
	return false
}

// userHz is in what part of a second /proc counts; the kernel's interface to
// programs has 100 on every architecture that Go knows (proc(5), sysconf _SC_CLK_TCK).
const userHz = 100

// bootOf is when a process began, to 10 ms; it is the same at each call.
func bootOf(pid int) (time.Time, error) {
	text, err := readSmall(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// The name in parentheses may hold anything. starttime is field 22, state
	// after the name is field 3 (proc(5)).
	_, rest, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if len(fields) < 20 {
		return time.Time{}, fmt.Errorf("vminfo: /proc/%d/stat: %d fields", pid, len(fields))
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	return machineBoot().Add(time.Duration(ticks) * time.Second / userHz), nil
}

// machineBoot is when the machine began, in whole seconds (proc(5), btime).
func machineBoot() time.Time {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Unix(0, 0)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Unix(seconds, 0)
		}
	}
	return time.Unix(0, 0)
}

// MemoryFiles are where a cgroup has its limit: version 2, then version 1.
var MemoryFiles = []string{"memory.max", "memory.limit_in_bytes"}

// CgroupFiles are the files of a cgroup that can change a VM when they are written.
var CgroupFiles = map[string]bool{"memory.max": true, "memory.limit_in_bytes": true, "cgroup.procs": true, "cgroup.events": true}

// MemoryLimit is the limit of a cgroup in bytes: 0 for none, -1 if the cgroup
// is not there.
func MemoryLimit(folder string) int64 {
	for _, name := range MemoryFiles {
		text, err := readSmall(filepath.Join(folder, name))
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		// In version 1, the largest number of whole pages means no limit.
		if err != nil || limit >= math.MaxInt64-int64(os.Getpagesize()) {
			return 0 // "max"
		}
		return limit
	}
	return -1
}

// DefaultCgroup is where the VMs' cgroups are, in the hierarchy that has the
// memory controller.
func DefaultCgroup() string {
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		return "/sys/fs/cgroup/memory/rutter"
	}
	return "/sys/fs/cgroup/rutter"
}

// Exists reports whether there is something of that name.
func Exists(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil
}

// SyncFolder syncs the names in a folder to the disk.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// ErrNoManifests refuses a configuration.
var ErrNoManifests = errors.New("vminfo: no folder of manifests: name one")

// Default folders.
const (
	DefaultPIDs  = "/run/rutter/vms"
	DefaultNetNS = "/run/netns"
)
