package vminfo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// maxSmallFile bounds the files of the kernel and pid files, of which a line
// matters.
const maxSmallFile = 16 << 10

// readSmall reads a small file, and no more of it than maxSmallFile.
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

// namespace is a network namespace while it is looked at; fd keeps it.
type namespace struct {
	fd  int
	ino uint64
}

func (n namespace) close() {
	if n.fd >= 0 {
		_ = unix.Close(n.fd)
	}
}

// openNamespace opens the namespace of that name; fd is -1 if there is none.
// A plain file is none (yet): ip-netns(8) makes the file first, then mounts.
func openNamespace(folder, name string) namespace {
	none := namespace{fd: -1}
	fd, err := unix.Open(filepath.Join(folder, name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return none
	}
	n := namespace{fd: fd}
	var st unix.Stat_t
	var in unix.Statfs_t
	if unix.Fstatfs(fd, &in) != nil || in.Type != unix.NSFS_MAGIC || unix.Fstat(fd, &st) != nil {
		n.close()
		return none
	}
	n.ino = st.Ino
	return n
}

// process is the init process of a VM: its pidfd tells when it ends.
type process struct {
	pid, fd int
	boot    time.Time
}

// initProcess finds the init process of a VM: who is named by its pid file or by
// systemd-machined, or else is first in its cgroup, and is in the VM's namespace
// or cgroup. A number that another process has by now is not taken for it. Once an
// init that was named has ended, what is left in the cgroup is no other init.
func (f *Folder) initProcess(vm *vmRecord, ns namespace) (process, bool) {
	named := false
	for _, find := range []func(*vmRecord) int{f.pidOfFile, f.pidOfMachine} {
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
	return process{}, false
}

func (f *Folder) pidOfFile(vm *vmRecord) int {
	text, err := readSmall(filepath.Join(f.cfg.PIDs, vm.uuid.String()+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return 0
	}
	return pid
}

// pidOfMachine reads what systemd-machined keeps of a machine: lines KEY=VALUE,
// of which LEADER is its init process.
func (f *Folder) pidOfMachine(vm *vmRecord) int {
	if f.roots[rootMachines].wd < 0 {
		return 0 // no machined here; the status says so
	}
	text, err := readSmall(filepath.Join(f.cfg.Machines, vm.zone))
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

func (f *Folder) pidOfCgroup(vm *vmRecord) int {
	if vm.cgroup < 0 {
		return 0
	}
	text, err := readSmall(filepath.Join(f.cgroupOf(vm.uuid), "cgroup.procs"))
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	pid, _ := strconv.Atoi(string(line)) // 0 is none
	return pid
}

func (f *Folder) cgroupOf(id log.UUID) string { return filepath.Join(f.cfg.Cgroup, id.String()) }

// openProcess opens a process if it lives and is the VM's.
func (f *Folder) openProcess(vm *vmRecord, ns namespace, pid int) (process, bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return process{}, false
	}
	boot, err := bootOf(pid)
	// What is read of /proc is this process's if it still lives afterwards.
	if err == nil && lives(fd) && !gated(pid) && (inNamespace(pid, ns) || f.inCgroup(pid, vm.uuid)) && lives(fd) {
		return process{pid: pid, fd: fd, boot: boot}, true
	}
	_ = unix.Close(fd)
	return process{}, false
}

// lives reports whether the process of a pidfd has not ended: the descriptor is
// readable once it has, also while it is a zombie (pidfd_open(2)).
func lives(fd int) bool {
	set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(set, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n == 0
	}
}

func inNamespace(pid int, ns namespace) bool {
	var st unix.Stat_t
	return ns.fd >= 0 && unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st) == nil && st.Ino == ns.ino
}

func (f *Folder) inCgroup(pid int, id log.UUID) bool {
	text, err := readSmall(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	want := "/" + filepath.Base(f.cfg.Cgroup) + "/" + id.String()
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

// bootOf is when a process began, to 10 ms, the same at each look.
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

// memoryFiles are where a cgroup has its limit: version 2, then version 1.
var memoryFiles = []string{"memory.max", "memory.limit_in_bytes"}

// cgroupFiles are the files of a cgroup whose writing can change a VM.
var cgroupFiles = map[string]bool{"memory.max": true, "memory.limit_in_bytes": true, "cgroup.procs": true, "cgroup.events": true}

// memoryLimit is the limit of a cgroup in bytes: 0 for none, -1 if the cgroup
// is not there.
func memoryLimit(folder string) int64 {
	for _, name := range memoryFiles {
		text, err := readSmall(filepath.Join(folder, name))
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		// Version 1 has the largest number of whole pages for no limit.
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

// readManifest reads a whole regular file, of at most maxManifest bytes.
func readManifest(path string) ([]byte, time.Time, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, time.Time{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, time.Time{}, fmt.Errorf("vminfo: %w: no regular file", fs.ErrInvalid)
	}
	if st.Size > maxManifest {
		return nil, time.Time{}, fmt.Errorf("vminfo: %d bytes, a manifest may have %d", st.Size, maxManifest)
	}
	text := make([]byte, st.Size) // if it has grown since, its closing is heard
	read := 0
	for read < len(text) {
		n, err := unix.Read(fd, text[read:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		if n == 0 {
			break
		}
		read += n
	}
	return text[:read], time.Unix(st.Mtim.Unix()), nil
}
