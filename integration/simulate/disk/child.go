package disk

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Serve serves the file systems of a test, if this process was started for that, and returns
// true when the test has ended: TestMain then returns.
func Serve() bool {
	memory := os.Getenv(serveEnv)
	if memory == "" {
		return false
	}
	served := make(map[string]*faults)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(command(served, in.Text()))
	}
	for _, f := range served {
		f.unmount()
	}
	_ = os.RemoveAll(memory)
	return true
}

// command carries out one line: the name of a folder, and what is to be done there.
func command(served map[string]*faults, line string) string {
	name, line, _ := strings.Cut(line, " ")
	var mount, backing string
	if scan(line, "mount %s %s", &mount, &backing) {
		f, err := serve(mount, backing)
		if err != nil {
			return err.Error()
		}
		served[name] = f
		return "done"
	}
	f := served[name]
	if f == nil {
		return "there is no such folder"
	}
	if line == "unmount" {
		delete(served, name)
		f.unmount()
		return "done"
	}
	return f.command(line)
}

// faults is what happens to the operations of one folder.
type faults struct {
	mount, backing string

	space sync.Mutex // held by one operation that needs room; before mu
	mu    sync.Mutex
	count int // operations since the last command
	after int // those that still succeed; the rest fails; < 0: all succeed
	only  string
	errno syscall.Errno
	slow  time.Duration
	room  int64 // bytes; < 0: no bound
	lossy bool  // a sync that fails loses what was written, and who reads it from memory does not notice

	inodes  map[uint64]*inode
	journal []*change
	kept    int // files in the folder of what was replaced
	// renamed counts the renames into a folder since it was synced, by its path.
	renamed map[string]int
}

// serve mounts one.
func serve(mount, backing string) (*faults, error) {
	f := &faults{mount: mount, backing: filepath.Clean(backing), after: -1, room: -1, inodes: make(map[uint64]*inode), renamed: make(map[string]int)}
	root := &fs.LoopbackRoot{Path: f.backing}
	n := &node{LoopbackNode: fs.LoopbackNode{RootData: root}, f: f}
	root.RootNode = n
	_, err := fs.Mount(mount, n, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true, FsName: "faultfs", ExplicitDataCacheControl: true}})
	return f, err
}

// unmount ends the file system. The server's Unmount would wait for every mount namespace that
// another process has made meanwhile: they all have the mount. The end of this process ends it
// everywhere.
func (f *faults) unmount() {
	_ = syscall.Unmount(f.mount, syscall.MNT_DETACH)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
}

// command does one of: fail AFTER ONLY- ERRNO, heal, slow MILLISECONDS, lossy BOOL, room BYTES,
// crash SEED, copy FOLDER BOOL SEED, flip SEED BITS, empty, count, unsynced.
func (f *faults) command(line string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var after, n int
	var only string
	var seed uint64
	var lossy, power bool
	var to string
	var room int64
	var err error
	switch {
	case scan(line, "fail %d %s %d", &after, &only, &n):
		f.count, f.after, f.only, f.errno = 0, after, strings.TrimSuffix(only, "-"), syscall.Errno(n)
	case line == "heal":
		f.heal()
	case scan(line, "slow %d", &n):
		f.slow = time.Duration(n) * time.Millisecond
	case scan(line, "lossy %t", &lossy):
		f.lossy = lossy
	case scan(line, "room %d", &room):
		f.room = room
	case scan(line, "crash %d", &seed):
		if err = f.powerCut(seed, side{base: f.backing}); err == nil {
			f.forget()
		}
	case scan(line, "copy %s %t %d", &to, &power, &seed):
		err = f.copy(to, power, seed)
	case scan(line, "flip %d %d", &seed, &n):
		err = f.flip(seed, n)
	case line == "empty":
		f.heal()
		err = f.empty()
	case line == "unsynced":
		for _, names := range f.renamed {
			n += names
		}
		return fmt.Sprint(n)
	case line == "count":
		return fmt.Sprint(f.count)
	default:
		return "there is no such command: " + line
	}
	if err != nil {
		return err.Error()
	}
	return "done"
}

func scan(line, format string, args ...any) bool {
	n, err := fmt.Sscanf(line, format, args...)
	return err == nil && n == len(args)
}

func (f *faults) heal() {
	f.count, f.after, f.only, f.errno, f.slow, f.room, f.lossy = 0, -1, "", 0, 0, -1, false
}

// empty deletes everything, and what is known of it.
func (f *faults) empty() error {
	f.forget()
	names, err := os.ReadDir(f.backing)
	for _, name := range names {
		if err == nil {
			err = os.RemoveAll(filepath.Join(f.backing, name.Name()))
		}
	}
	return err
}

// step counts an operation and says what becomes of it.
func (f *faults) step(what string) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.only != "" && f.only != what {
		return 0
	}
	f.count++
	if f.slow > 0 {
		time.Sleep(f.slow)
	}
	if f.after >= 0 && f.count > f.after {
		return f.errno
	}
	return 0
}
