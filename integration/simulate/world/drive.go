package world

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rutter/integration/simulate/disk"
	"rutter/integration/simulate/history"
)

// drive is where a machine has its files, through its programs' restarts.
type drive struct {
	world   *world
	machine string
	disk    waits
	dir     string
	// folder is the disk that dir is on, if it can fail; nil: it is plain memory.
	folder *disk.Folder
}

// driveOf gives a machine an empty folder: on a disk that can fail, if that happens to it.
func (w *world) driveOf(machine string) *drive {
	d := &drive{world: w, machine: machine, dir: filepath.Join(w.folder, machine)}
	if w.o.Disk != nil && slices.ContainsFunc(w.h.Faults, func(f history.Fault) bool {
		return f.On == machine && (f.Kind == history.Power || f.Kind == history.Full)
	}) {
		d.folder = w.o.Disk.Folder(machine)
		d.dir = d.folder.Path()
	}
	return d
}

// next is the name of a folder that this history has not used.
func (d *drive) next() string {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	d.world.killed++
	return fmt.Sprintf("%s.%d", d.machine, d.world.killed)
}

// cut takes the disk away at this instant from the program that runs, and from the machine, which
// gone says is no more. The next program gets a copy, and may start at once; if the power failed,
// some of what was not synced is not in it.
func (d *drive) cut(power bool, seed uint64, gone func()) error {
	if d.folder == nil {
		return d.world.freeze(func() error {
			if err := d.world.aside(d.dir); err != nil {
				return err
			}
			gone()
			return nil
		})
	}
	next, err := d.folder.Crash(d.next(), power, seed)
	if err != nil {
		return err
	}
	gone()
	d.folder, d.dir = next, next.Path()
	return nil
}

// leave gives the machine's next program a copy of the files: goroutines of the last one, which
// waited for the disk that hung, have them open, and no end of a process closes them here.
func (d *drive) leave() error {
	if d.folder == nil {
		return d.world.freeze(func() error { return d.world.aside(d.dir) })
	}
	return d.fill(d.dir)
}

// fill gives the machine's next program a copy of the files of another folder.
func (d *drive) fill(from string) error {
	if err := d.empty(); err != nil {
		return err
	}
	return os.CopyFS(d.dir, os.DirFS(from))
}

// empty gives the machine's next program an empty folder.
func (d *drive) empty() error {
	if d.folder == nil {
		return os.RemoveAll(d.dir)
	}
	d.folder = d.world.o.Disk.Folder(d.next()) // what still runs of the last process has the other
	d.dir = d.folder.Path()
	return nil
}

// await lets the disk fail from the n-th operation on, and returns when that came, or does not
// come. It reports whether an operation failed: of a transaction, or of a log that is written.
func (d *drive) await(n int64) (failed bool) {
	d.folder.FailAfter(int(n))
	for begun := time.Now(); d.folder.Ops() <= int(n) && time.Since(begun) < 5*time.Second; {
		time.Sleep(5 * time.Millisecond)
	}
	return d.folder.Ops() > int(n)
}

// full leaves n bytes of room on the disk.
func (d *drive) full(f history.Fault) error {
	d.folder.Room(f.N)
	time.Sleep(f.For)
	d.folder.Room(-1)
	return nil
}

func (d *drive) rot(seed uint64, bits int64) error {
	if d.folder != nil {
		return d.folder.Flip(seed, int(bits))
	}
	return rot(d.dir, seed, bits)
}

// waits makes the operations on a machine's disk wait.
type waits struct {
	mu    sync.Mutex
	hangs map[chan struct{}]bool
	each  time.Duration // of each operation
}

// delay is DiskDelay of raftstore.Config and agent.Config.
func (d *waits) delay(string) {
	for {
		d.mu.Lock()
		each := d.each
		var hang chan struct{}
		for c := range d.hangs {
			hang = c
			break
		}
		d.mu.Unlock()
		if hang == nil {
			if each > 0 {
				time.Sleep(each)
			}
			return
		}
		<-hang
	}
}

// hang lets operations wait until end is called.
func (d *waits) hang() (end func()) {
	c := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hangs == nil {
		d.hangs = map[chan struct{}]bool{}
	}
	d.hangs[c] = true
	return sync.OnceFunc(func() {
		d.mu.Lock()
		delete(d.hangs, c)
		d.mu.Unlock()
		close(c)
	})
}

// slow lets the operations of a disk wait, as a fault says.
func (d *waits) slow(f history.Fault) error {
	if f.Kind == history.Hang {
		end := d.hang()
		defer end()
		time.Sleep(f.For)
		return nil
	}
	set := func(each time.Duration) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.each += each
	}
	set(time.Duration(f.N) * time.Millisecond)
	time.Sleep(f.For)
	set(-time.Duration(f.N) * time.Millisecond)
	return nil
}

// rot flips bits in the files of a folder.
func rot(dir string, seed uint64, bits int64) error {
	rnd := rand.New(rand.NewPCG(seed, 3))
	type file struct {
		path string
		size int64
	}
	var files []file
	var size int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			files = append(files, file{path, info.Size()})
			size += info.Size()
		}
		return err
	})
	if err != nil || size == 0 {
		return err
	}
	for range bits {
		at := rnd.Int64N(size)
		for _, f := range files {
			if at >= f.size {
				at -= f.size
				continue
			}
			h, err := os.OpenFile(f.path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			var b [1]byte
			_, err = h.ReadAt(b[:], at)
			b[0] ^= 1 << rnd.IntN(8)
			if err == nil {
				_, err = h.WriteAt(b[:], at)
			}
			if err = errors.Join(err, h.Close()); err != nil {
				return err
			}
			break
		}
	}
	return nil
}
