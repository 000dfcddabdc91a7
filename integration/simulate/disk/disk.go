// Package disk gives simulated machines disks that fail: a FUSE file system that passes
// everything on to a folder in memory, counts what changes it, and fails, fills, loses or flips
// what it is told to. The tests of raftstore and the simulator use it.
//
// The file system is served by a child, another process of the same test binary: a process that
// waits for a page of a file that it serves itself waits without end. So TestMain has to begin
// with Serve. Nothing in here waits in simulated time: in a bubble of testing/synctest an
// operation takes none.
//
// What a power cut may take back follows what Linux's file systems promise and no more. Of the
// bytes that were written to a file since it was synced, any may be lost, sector by sector. Names
// and sizes of files are kept in a journal, of which an end may be lost: a sync of a file keeps
// everything up to its own last entry, and that of a folder everything up to its last name.
package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serveEnv, if set, makes this test binary the child. It is the folder of the folders, which the
// child deletes: the test may end without its cleanup.
const serveEnv = "RUTTER_SIMULATE_DISK"

// Disk is a child and what it serves. Its methods and those of its folders may be called at the
// same time. They panic if the child has ended.
type Disk struct {
	mu      sync.Mutex
	in      io.WriteCloser
	answers *bufio.Scanner
	memory  string // the folder of the folders
	mounts  string // the folder of the mount points
	folders map[string]*Folder
}

// Folder is the disk of one machine.
type Folder struct {
	d       *Disk
	name    string
	mount   string
	backing string
}

// inMemory is where files are that need no real disk.
const inMemory = "/dev/shm"

// Memory makes an empty folder in memory: within the folder for temporary files, if that is in
// memory. Clear removes it. What processes left there that were killed is removed.
func Memory(name string) (folder string, err error) {
	within := inMemory
	if strings.HasPrefix(os.TempDir(), inMemory+"/") {
		within = os.TempDir()
	}
	name = "rutter-" + name + "-"
	left, err := filepath.Glob(filepath.Join(within, name+"*"))
	if err != nil {
		return "", err
	}
	for _, folder := range left {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), name), "-")
		if pid, err := strconv.Atoi(owner); err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = Clear(folder) // as others may do now
		}
	}
	return os.MkdirTemp(within, fmt.Sprintf("%s%d-", name, os.Getpid()))
}

// Clear removes a folder of a process that has ended, and what that left mounted in it.
func Clear(folder string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], folder+"/") {
			err = errors.Join(err, syscall.Unmount(fields[4], syscall.MNT_DETACH))
		}
	}
	return errors.Join(err, os.RemoveAll(folder))
}

// New starts a child, which ends with the test. It skips the test where FUSE cannot be had. It
// is called outside of a bubble, and serves any number of folders, one history after another.
func New(t testing.TB) *Disk {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs /dev/fuse and root")
	}
	d := &Disk{mounts: t.TempDir(), folders: make(map[string]*Folder)}
	var err error
	if d.memory, err = Memory("disk"); err != nil {
		d.memory = t.TempDir()
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), serveEnv+"="+d.memory)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		d.in, err = child.StdinPipe()
	}
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.answers = bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = d.in.Close()
		for _, f := range d.folders {
			_ = syscall.Unmount(f.mount, syscall.MNT_DETACH)
		}
		_ = child.Wait()
	})
	probe, err := d.mounted("probe", filepath.Join(d.memory, "probe"))
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	probe.Unmount()
	return d
}

// Folder returns the empty folder of a machine, whose disk has no fault. What it had under this
// name is deleted; the program that used it must have ended.
func (d *Disk) Folder(name string) *Folder {
	d.mu.Lock()
	f := d.folders[name]
	d.mu.Unlock()
	if f == nil {
		var err error
		if f, err = d.mounted(name, filepath.Join(d.memory, name)); err != nil {
			panic(err)
		}
	}
	f.must("empty")
	return f
}

// Mount serves what is in a folder that there is already, until Unmount. The backing folder's
// neighbour that has its name and ".unsynced" must not exist.
func (d *Disk) Mount(name, backing string) *Folder {
	f, err := d.mounted(name, backing)
	if err != nil {
		panic(err)
	}
	return f
}

func (d *Disk) mounted(name, backing string) (*Folder, error) {
	f := &Folder{d: d, name: name, mount: filepath.Join(d.mounts, name), backing: backing}
	for _, dir := range []string{f.mount, backing} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if answer := f.do("mount %s %s", f.mount, backing); answer != "done" {
		return nil, fmt.Errorf("disk %s: %s", name, answer)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.folders[name] = f
	return f, nil
}

// Unmount ends the file system; what is behind it stays.
func (f *Folder) Unmount() {
	f.must("unmount")
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	delete(f.d.folders, f.name)
}

// Path returns the folder as a program is to see it.
func (f *Folder) Path() string { return f.mount }

// Backing returns the folder as it is on the disk, without faults.
func (f *Folder) Backing() string { return f.backing }

// FailAfter lets n more operations that change or sync something succeed; all later ones
// return EIO, until Heal. Negative: all succeed.
func (f *Folder) FailAfter(n int) { f.Fail(n, "", syscall.EIO) }

// Fail is FailAfter for operations of one kind, and with another error. The kinds are create,
// mkdir, rename, remove, write, size, sync and syncdir; "" is all.
func (f *Folder) Fail(n int, only string, errno syscall.Errno) {
	f.must("fail %d %s %d", n, only+"-", errno)
}

// Heal lets operations succeed again, and ends Room, Slow and Lossy.
func (f *Folder) Heal() { f.must("heal") }

// Ops returns how many operations there were that change or sync something (of the kind that
// Fail named last), since Folder, Mount, Fail or Heal.
func (f *Folder) Ops() int { return f.number("count") }

// PowerCut takes back some of what was not synced. The program that used the folder must have
// ended.
func (f *Folder) PowerCut(seed uint64) error { return f.try("crash %d", seed) }

// Crash is for a machine whose program ends at this instant, while in the simulator's process it
// still runs: what it changes from now on fails with EIO, and reads go on. Crash returns a folder
// of another name, without faults, that has what the disk had at this instant; if the power
// failed, without some of what was not synced.
func (f *Folder) Crash(to string, power bool, seed uint64) (*Folder, error) {
	next := f.d.Folder(to)
	if err := f.try("copy %s %t %d", next.backing, power, seed); err != nil {
		return nil, err
	}
	return next, nil
}

// Room lets bytes more be stored; what needs more gets ENOSPC. Negative: there is no bound. What
// statfs returns as free follows.
func (f *Folder) Room(bytes int64) { f.must("room %d", bytes) }

// Flip flips bits of files. The program that used the folder must have ended.
func (f *Folder) Flip(seed uint64, bits int) error { return f.try("flip %d %d", seed, bits) }

// Slow lets each operation that changes or syncs something take d of real time.
func (f *Folder) Slow(d time.Duration) { f.must("slow %d", d.Milliseconds()) }

// Lossy lets a sync that fails lose what was written, in secret: programs that have the file
// open see it until they open it anew, as on Linux.
func (f *Folder) Lossy(lossy bool) { f.must("lossy %v", lossy) }

// Unsynced returns how many renames there are into folders that were not synced since.
func (f *Folder) Unsynced() int { return f.number("unsynced") }

func (f *Folder) must(format string, args ...any) {
	if err := f.try(format, args...); err != nil {
		panic(err)
	}
}

func (f *Folder) try(format string, args ...any) error {
	if answer := f.do(format, args...); answer != "done" {
		return fmt.Errorf("disk %s: %s: %s", f.name, fmt.Sprintf(format, args...), answer)
	}
	return nil
}

func (f *Folder) number(command string) int {
	answer := f.do("%s", command)
	n, err := strconv.Atoi(answer)
	if err != nil {
		panic(fmt.Sprintf("disk %s: %s: %s", f.name, command, answer))
	}
	return n
}

// do gives a command to the child and returns its answer.
func (f *Folder) do(format string, args ...any) string {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if _, err := fmt.Fprintf(f.d.in, f.name+" "+format+"\n", args...); err != nil {
		panic(fmt.Sprintf("disk %s: the process of the file system ended: %v", f.name, err))
	}
	if !f.d.answers.Scan() {
		panic(fmt.Sprintf("disk %s: the process of the file system ended", f.name))
	}
	return strings.TrimSpace(f.d.answers.Text())
}
