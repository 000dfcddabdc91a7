package world

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
)

// waits makes the operations on a server's disk wait.
type waits struct {
	mu    sync.Mutex
	hangs map[chan struct{}]bool
	each  time.Duration // of each operation
}

// delay is raftstore.Config.DiskDelay.
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

func (s *server) slow(f history.Fault) error {
	if f.Kind == history.Hang {
		end := s.disk.hang()
		defer end()
		time.Sleep(f.For)
		return nil
	}
	set := func(d time.Duration) {
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		s.disk.each += d
	}
	set(time.Duration(f.N) * time.Millisecond)
	time.Sleep(f.For)
	set(-time.Duration(f.N) * time.Millisecond)
	return nil
}

// busy is whether a fault has stopped a machine.
type busy struct {
	mu sync.Mutex
	is bool
}

func (b *busy) claim() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.is
	b.is = true
	return !was
}

func (b *busy) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.is = false
}

// freeze runs fn at a moment in which no other goroutine of the bubble runs, so that no
// operation on disk is under way.
func (w *world) freeze(fn func() error) error {
	w.freezing <- struct{}{}
	defer func() { <-w.freezing }()
	synctest.Wait()
	return fn()
}

// aside takes the folder of a machine away from the process that has it open, which goes on
// in the old files, and leaves a copy in its place: what a process finds that starts after
// that one was killed now.
func (w *world) aside(dir string) error {
	w.mu.Lock()
	w.killed++
	old := fmt.Sprintf("%s.killed%d", dir, w.killed)
	w.mu.Unlock()
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(old))
}

// crash kills the server's process: it does nothing more that another machine notices.
func (s *server) crash() error {
	if s.folder != nil {
		s.host.Kill()
		return s.abandon(false, 0)
	}
	return s.w.freeze(func() error {
		if err := s.w.aside(s.dir); err != nil {
			return err
		}
		s.host.Kill()
		s.gone()
		return nil
	})
}

// gone: the server's process is no more. What still runs of it ends beside.
func (s *server) gone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return
	}
	s.cancel()
	ended := s.ended
	s.w.zombies.Go(func() { <-ended })
	s.run = nil
	s.w.seen.Add(s.name, seen.Process{State: "killed"})
}

// crash kills the agent's process.
func (n *node) crash() error {
	return n.w.freeze(func() error {
		if err := n.w.aside(n.folder); err != nil {
			return err
		}
		n.host.Kill()
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.agent == nil {
			return nil
		}
		n.cancel()
		ended := n.ended
		n.w.zombies.Go(func() { <-ended })
		n.agent = nil
		n.w.seen.Add(n.name, seen.Process{State: "killed"})
		return nil
	})
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

func (s *server) rot(seed uint64, bits int64) error {
	if s.folder != nil {
		return s.folder.Flip(seed, int(bits))
	}
	return rot(s.dir, seed, bits)
}

// empty gives the server's next process an empty folder.
func (s *server) empty() error {
	if s.folder != nil {
		s.folder = s.w.o.Disk.Folder(s.nextFolder()) // what still runs of the last process has the other
		s.dir = s.folder.Path()
		return nil
	}
	return os.RemoveAll(s.dir)
}

// abandon ends the process of a server whose folder is a disk that can fail, at this instant: it
// changes nothing more there. The next process gets a copy, and may start at once; if the power
// failed, some of what was not synced is not in it.
func (s *server) abandon(power bool, seed uint64) error {
	next, err := s.folder.Crash(s.nextFolder(), power, seed)
	if err != nil {
		return err
	}
	s.gone()
	s.folder, s.dir = next, next.Path()
	return nil
}

// nextFolder is the name of a folder that this history has not used.
func (s *server) nextFolder() string {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.killed++
	return fmt.Sprintf("%s.%d", s.name, s.w.killed)
}

// leaveFiles gives the server's next process a copy of the files: goroutines of the last one,
// which waited for the disk that hung, have them open, and no end of a process closes them here.
func (s *server) leaveFiles() error {
	if s.folder == nil {
		return s.w.freeze(func() error { return s.w.aside(s.dir) })
	}
	next := s.w.o.Disk.Folder(s.nextFolder())
	if err := os.CopyFS(next.Path(), os.DirFS(s.folder.Path())); err != nil {
		return err
	}
	s.folder, s.dir = next, next.Path()
	return nil
}

// power cuts the power of a server at the n-th operation on its disk from now, and takes back
// some of what was not synced.
func (s *server) power(f history.Fault) error {
	if s.folder == nil {
		return s.crash()
	}
	s.folder.FailAfter(int(f.N))
	for begun := time.Now(); s.folder.Ops() <= int(f.N) && time.Since(begun) < 5*time.Second; {
		time.Sleep(5 * time.Millisecond)
	}
	if s.folder.Unsynced() > 0 {
		s.w.count("restart_in_write", 1)
	}
	s.host.Down()
	return s.abandon(true, f.Seed)
}

// full leaves n bytes of room on a server's disk.
func (s *server) full(f history.Fault) error {
	s.folder.Room(f.N)
	time.Sleep(f.For)
	s.folder.Room(-1)
	return nil
}

func (n *node) rot(seed uint64, bits int64) error {
	return rot(n.folder, seed, bits)
}

// replace does what docs/deploy.md says of a lost server: it is removed from the cluster, and
// one of another name joins with an empty folder.
func (s *server) replace() error {
	if !s.removed {
		if err := s.w.remove(s.member(), 30*time.Second); err != nil {
			return fmt.Errorf("remove %s: %w", s.member(), err)
		}
	}
	s.rename(true)
	s.w.seen.Add(s.name, seen.Process{State: "replaced"})
	if err := s.empty(); err != nil {
		return err
	}
	return s.w.begin(s)
}

// replace: a node without a cache begins with an empty one.
func (n *node) replace() error {
	if err := os.RemoveAll(n.folder); err != nil {
		return err
	}
	return n.w.begin(n)
}

// old gives the node the cache that it had at the beginning.
func (n *node) old() error {
	if err := os.RemoveAll(n.folder); err != nil {
		return err
	}
	return os.CopyFS(n.folder, os.DirFS(n.folder+".old"))
}

// keepOld copies the caches of all nodes as they are now.
func (w *world) keepOld() error {
	return w.freeze(func() (err error) {
		for _, n := range w.nodes {
			err = errors.Join(err, os.CopyFS(n.folder+".old", os.DirFS(n.folder)))
		}
		return err
	})
}

// member is the name of the server in the cluster.
func (s *server) member() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// peers are the peer addresses of the other servers.
func (s *server) peers() (all []string) {
	for _, other := range s.w.servers {
		if other != s {
			all = append(all, net.JoinHostPort(other.host.Address(), strconv.Itoa(peerPort)))
		}
	}
	return all
}
