package raftstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// A file system that passes everything on to a folder, counts what is written
// and synced, and fails or crashes when it is told to. It is served by a child:
// a process that waits for a page of a file that it serves itself, waits without
// end.

// faultFSEnv, if set, makes this test binary that child: MOUNTPOINT FOLDER.
const faultFSEnv = "RAFTSTORE_FAULTFS"

// faults is what the child does to the operations that change or sync a file.
type faults struct {
	mu    sync.Mutex
	count int // operations since the last command
	after int // those that still succeed; the rest fails; < 0: all succeed
	only  string
	errno syscall.Errno
	slow  time.Duration
	lossy bool   // a sync that fails loses what was written, and who reads it from memory does not notice
	undo  []undo // writes that were not synced, oldest first
	// renamed counts the renames into a folder since it was synced, by its path.
	renamed map[string]int
}

// undo is what stood where a write went.
type undo struct {
	path string
	at   int64
	old  []byte
}

// step counts an operation and says what becomes of it.
func (f *faults) step(what string) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.only != "" && f.only != what {
		return 0
	}
	f.count++
	time.Sleep(f.slow)
	if f.after >= 0 && f.count > f.after {
		return f.errno
	}
	return 0
}

// note keeps what a write is about to replace.
func (f *faults) note(path string, at int64, n int) {
	old := make([]byte, n)
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.ReadAt(old, at) // beyond the end are zeros
	f.mu.Lock()
	f.undo = append(f.undo, undo{path, at, old})
	f.mu.Unlock()
}

func (f *faults) synced(path string) {
	f.mu.Lock()
	f.undo = slices.DeleteFunc(f.undo, func(u undo) bool { return u.path == path })
	f.mu.Unlock()
}

// lose takes back what was written to a file and not synced, in secret: the file's
// times are what they were, so that the kernel keeps what it has of it.
func (f *faults) lose(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lossy {
		return
	}
	info, err := os.Stat(path)
	if err != nil {
		return
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer os.Chtimes(path, info.ModTime(), info.ModTime())
	defer file.Close()
	for _, u := range slices.Backward(f.undo) {
		if u.path == path {
			_, _ = file.WriteAt(u.old, u.at)
		}
	}
	f.undo = slices.DeleteFunc(f.undo, func(u undo) bool { return u.path == path })
}

// keep reports whether the kernel is to keep what it has of a file that is opened.
func (f *faults) keep() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lossy
}

// powerCut takes back some of the writes that were not synced, as a disk does that writes
// in an order of its own.
func (f *faults) powerCut(seed uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, u := range slices.Backward(f.undo) {
		if rng.IntN(2) == 0 {
			continue
		}
		file, err := os.OpenFile(u.path, os.O_WRONLY, 0)
		if err != nil {
			continue // renamed or removed
		}
		_, err = file.WriteAt(u.old, u.at)
		if err := file.Close(); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
	f.undo = nil
	return nil
}

// faultNode and faultFile are those of the loopback with faults before them.
type faultNode struct {
	fs.LoopbackNode
	f *faults
}

type faultFile struct {
	fs.FileHandle
	file *fs.LoopbackFile
	path string
	f    *faults
}

func (n *faultNode) path(name string) string {
	p := n.RootData.Path + "/" + n.Path(n.Root())
	if name != "" {
		p += "/" + name
	}
	return p
}

func (n *faultNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, ff, errno := n.LoopbackNode.Open(ctx, flags)
	if n.f.keep() {
		ff |= fuse.FOPEN_KEEP_CACHE
	}
	return n.wrap(h, ""), ff, errno
}

func (n *faultNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.f.step("create"); errno != 0 {
		return nil, nil, 0, errno
	}
	inode, h, ff, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return inode, n.wrap(h, name), ff, errno
}

func (n *faultNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if errno := n.f.step("rename"); errno != 0 {
		return errno
	}
	errno := n.LoopbackNode.Rename(ctx, name, to, newName, flags)
	if target, ok := to.(*faultNode); ok && errno == 0 {
		n.f.noteRename(target.path(newName))
	}
	return errno
}

func (n *faultNode) wrap(h fs.FileHandle, name string) fs.FileHandle {
	file, ok := h.(*fs.LoopbackFile)
	if !ok {
		return h
	}
	return &faultFile{file: file, path: n.path(name), f: n.f}
}

func (h *faultFile) Read(ctx context.Context, b []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	return h.file.Read(ctx, b, at)
}

func (h *faultFile) Write(ctx context.Context, b []byte, at int64) (uint32, syscall.Errno) {
	if errno := h.f.step("write"); errno != 0 {
		return 0, errno
	}
	h.f.note(h.path, at, len(b))
	return h.file.Write(ctx, b, at)
}

func (h *faultFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if errno := h.f.step("sync"); errno != 0 {
		h.f.lose(h.path)
		return errno
	}
	errno := h.file.Fsync(ctx, flags)
	if errno == 0 {
		h.f.synced(h.path)
	}
	return errno
}

func (h *faultFile) Setattr(ctx context.Context, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := h.f.step("size"); errno != 0 {
		return errno
	}
	return h.file.Setattr(ctx, in, out)
}

func (h *faultFile) Getattr(ctx context.Context, out *fuse.AttrOut) syscall.Errno {
	return h.file.Getattr(ctx, out)
}
func (h *faultFile) Flush(ctx context.Context) syscall.Errno   { return h.file.Flush(ctx) }
func (h *faultFile) Release(ctx context.Context) syscall.Errno { return h.file.Release(ctx) }

// WrapChild makes every node below a faulty one faulty.
func (n *faultNode) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	if data, ok := child.(*fs.LoopbackNode); ok {
		return &faultNode{LoopbackNode: fs.LoopbackNode{RootData: data.RootData}, f: n.f}
	}
	return child
}

// faultFSChild serves the file system of a test until its input ends, or
// returns false. Each line of input is a command; each is answered by a line.
func faultFSChild() bool {
	args := strings.Fields(os.Getenv(faultFSEnv))
	if len(args) != 2 {
		return false
	}
	f := &faults{after: -1}
	root := &fs.LoopbackRoot{Path: args[1]}
	node := &faultNode{LoopbackNode: fs.LoopbackNode{RootData: root}, f: f}
	root.RootNode = node
	_, err := fs.Mount(args[0], node, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true, FsName: "faultfs", ExplicitDataCacheControl: true}})
	if err != nil {
		fmt.Println("mount:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(f.command(in.Text()))
	}
	// server.Unmount would wait for every mount namespace that another process has made
	// meanwhile: they all have the mount. The end of this process ends it everywhere.
	_ = syscall.Unmount(args[0], syscall.MNT_DETACH)
	return true
}

// command does one of: fail AFTER ONLY ERRNO, slow MILLISECONDS, lossy 0|1, crash
// SEED, count, unsynced.
func (f *faults) command(line string) string {
	var after, n int
	var only string
	var seed uint64
	switch {
	case scan(line, "fail %d %s %d", &after, &only, &n):
		f.mu.Lock()
		defer f.mu.Unlock()
		f.count, f.after, f.only, f.errno = 0, after, strings.Trim(only, "-"), syscall.Errno(n)
	case scan(line, "slow %d", &n):
		f.mu.Lock()
		defer f.mu.Unlock()
		f.slow = time.Duration(n) * time.Millisecond
	case scan(line, "lossy %d", &n):
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lossy = n > 0
	case scan(line, "crash %d", &seed):
		if err := f.powerCut(seed); err != nil {
			return err.Error()
		}
	case line == "unsynced":
		return fmt.Sprint(f.unsynced())
	case line == "count":
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Sprint(f.count)
	default:
		return "what? " + line
	}
	return "done"
}

func scan(line, format string, args ...any) bool {
	n, err := fmt.Sscanf(line, format, args...)
	return err == nil && n == len(args)
}

// faultFS is the test's end of the file system.
type faultFS struct {
	t       testing.TB
	mount   string // what the store sees
	folder  string // what is on the disk
	in      io.WriteCloser
	answers *bufio.Scanner
	unmount func() // once; at the end of the test at the latest
}

// newFaultFS mounts one, or skips the test.
func newFaultFS(t testing.TB) *faultFS { return newFaultFSOn(t, fastDir(t)) }

// newFaultFSOn mounts one on a folder.
func newFaultFSOn(t testing.TB, folder string) *faultFS {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs /dev/fuse and root")
	}
	f := &faultFS{t: t, mount: t.TempDir(), folder: folder}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", faultFSEnv, f.mount, f.folder))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		f.in, err = child.StdinPipe()
	}
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	f.unmount = sync.OnceFunc(func() {
		_ = f.in.Close()
		_ = syscall.Unmount(f.mount, syscall.MNT_DETACH)
		_ = child.Wait()
	})
	t.Cleanup(f.unmount)
	f.answers = bufio.NewScanner(out)
	if !f.answers.Scan() || f.answers.Text() != "ready" {
		t.Skipf("no FUSE here: %s", f.answers.Text())
	}
	return f
}

// do gives a command and returns its answer.
func (f *faultFS) do(format string, args ...any) string {
	f.t.Helper()
	if _, err := fmt.Fprintf(f.in, format+"\n", args...); err != nil {
		f.t.Fatal(err)
	}
	if !f.answers.Scan() {
		f.t.Fatal("the file system's process ended")
	}
	return f.answers.Text()
}
