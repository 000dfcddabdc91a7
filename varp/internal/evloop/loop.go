package evloop

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLoops bounds the loops of a Group, on machines with many cores.
	maxLoops = 8
	// eventsAtOnce is how many connections are handled between two looks at epoll.
	eventsAtOnce = 128
	// hotFor is how long after an event a loop waits in epoll itself, in whole
	// milliseconds as epoll counts. Meanwhile it holds one of the runtime's processors,
	// which the runtime takes back where another goroutine needs it. Then it waits in
	// the runtime, as any goroutine.
	hotFor = time.Millisecond
	// awakeFor is how long a loop asks epoll again and again before it sleeps, where
	// that pays: about the cost of sleeping and being woken on a virtual machine, which
	// is most of the cost of a batch of requests.
	awakeFor = 50 * time.Microsecond
	// What staying awake paid: maxCredit bounds what is remembered, and an unfruitful
	// wait costs lostCredit.
	maxCredit, lostCredit = 32, 8
)

// Group has the loops between which connections are divided. Its zero value is valid.
type Group struct {
	mu    sync.Mutex // protects what follows
	users int
	loops []*loop
	wg    sync.WaitGroup
}

// Start starts the loops, at the first of several calls: half as many as there are
// processors, because whoever asks and applies changes needs the others. With an error,
// Take takes nothing.
func (g *Group) Start() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.users++
	if g.users > 1 {
		return nil
	}
	for range min(max(runtime.GOMAXPROCS(0)/2, 1), maxLoops) {
		l, err := newLoop(runtime.GOMAXPROCS(0) > 1)
		if err != nil {
			return err
		}
		g.loops = append(g.loops, l)
		g.wg.Go(l.run)
	}
	return nil
}

// Stop ends the loops, at the last of as many calls as of Start. Every Conn must have
// been released.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users > 0 {
		return
	}
	for _, l := range g.loops {
		l.stop()
	}
	g.wg.Wait()
	g.loops = nil
}

// Take takes a TCP connection from the runtime: nc is closed, and the Conn continues it.
// nil: nc is of another sort, or there is no descriptor; nc stays as it was.
func (g *Group) Take(nc net.Conn) *Conn {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	g.mu.Lock()
	var least *loop
	for _, l := range g.loops {
		if least == nil || l.users.Load() < least.users.Load() {
			least = l
		}
	}
	if least != nil {
		least.users.Add(1)
	}
	g.mu.Unlock()
	if least == nil {
		return nil
	}
	fd, err := duplicate(tcp)
	if err != nil {
		least.users.Add(-1)
		return nil
	}
	c := &Conn{fd: fd, loop: least, local: nc.LocalAddr(), remote: nc.RemoteAddr(), woken: make(chan struct{}, 1)}
	_ = nc.Close() // the other descriptor keeps the connection open
	return c
}

func duplicate(tcp syscall.Conn) (fd int, err error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(of uintptr) { fd, failed = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, failed)
}

// loop waits for the connections in one epoll.
type loop struct {
	users atomic.Int64

	poll  int // epoll of the connections and of wake
	wake  int // eventfd that ends the loop
	ended atomic.Bool
	// outer is an epoll for which the runtime waits, and in which poll is while the loop
	// waits in the runtime.
	outer    *os.File
	outerFD  int
	outerRaw syscall.RawConn
	mayHeat  bool // the loop may wait in epoll itself

	mu    sync.Mutex // protects what follows
	conns map[int32]*Conn
}

func newLoop(mayHeat bool) (_ *loop, err error) {
	l := &loop{poll: -1, wake: -1, mayHeat: mayHeat, conns: make(map[int32]*Conn)}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if l.outerFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err = unix.SetNonblock(l.outerFD, true); err != nil { // or the runtime does not wait for it
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(l.outerFD))
	}
	l.outer = os.NewFile(uintptr(l.outerFD), "epoll")
	if l.outerRaw, err = l.outer.SyscallConn(); err != nil {
		return nil, err
	}
	if err = l.control(unix.EPOLL_CTL_ADD, l.wake, unix.EPOLLIN); err != nil {
		return nil, err
	}
	// That the runtime waits for an epoll is tried now: a loop that cannot wait must not
	// run.
	return l, l.outer.SetReadDeadline(time.Time{})
}

func (l *loop) close() {
	for _, fd := range []int{l.poll, l.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if l.outer != nil {
		_ = l.outer.Close()
	}
}

func (l *loop) control(op, fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.poll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// watch waits for events of c; false: the kernel refuses.
func (l *loop) watch(c *Conn, events uint32, h Handler) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.watched, c.handler = true, h
	l.conns[int32(c.fd)] = c
	if l.control(unix.EPOLL_CTL_ADD, c.fd, events) != nil {
		c.watched, c.handler = false, nil
		delete(l.conns, int32(c.fd))
		return false
	}
	return true
}

// forget ends watch; false: it has ended.
func (l *loop) forget(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.watched {
		return false
	}
	c.watched, c.handler = false, nil
	delete(l.conns, int32(c.fd))
	_ = l.control(unix.EPOLL_CTL_DEL, c.fd, 0)
	return true
}

func (l *loop) stop() {
	l.ended.Store(true)
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(l.wake, one[:])
}

func (l *loop) run() {
	defer l.close()
	w := &waiter{loop: l}
	w.look = func(uintptr) bool { // made once: otherwise allocated at each wait
		w.n = w.now(0)
		return w.n > 0
	}
	for {
		for _, e := range w.events[:w.next()] {
			if e.Fd == int32(l.wake) {
				return
			}
			if c, h := l.of(e.Fd); c != nil && h != nil && h.Readable() {
				w.read = append(w.read, served{c, h})
			} else if c != nil {
				l.hand(c)
			}
		}
		for _, s := range w.read {
			if !s.Flush() {
				l.hand(s.conn)
			}
		}
		clear(w.read)
		w.read = w.read[:0]
	}
}

// of returns the connection that is watched under a descriptor.
func (l *loop) of(fd int32) (*Conn, Handler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conns[fd]
	if c == nil {
		return nil, nil
	}
	return c, c.handler
}

// hand gives c back to its user, which waits.
func (l *loop) hand(c *Conn) {
	if l.forget(c) {
		c.woken <- struct{}{}
	}
}

// served is a connection whose answers wait to be written.
type served struct {
	conn *Conn
	Handler
}

// waiter is a loop's way to wait.
type waiter struct {
	*loop
	events [eventsAtOnce]unix.EpollEvent
	read   []served // since the last events
	n      int
	look   func(uintptr) bool
	hot    bool // an event came within the last hotFor
	credit int  // the loop stays awake while it is above 0
}

// now waits at most so many milliseconds in epoll.
func (w *waiter) now(ms int) int {
	n, err := unix.EpollWait(w.poll, w.events[:], ms)
	if err != nil { // EINTR
		return 0
	}
	return n
}

// next returns how many events there are, at least one.
func (w *waiter) next() int {
	if w.hot {
		began := time.Now()
		if w.credit > 0 {
			if n := w.awake(began); n > 0 {
				return n
			}
		}
		if n := w.now(int(hotFor / time.Millisecond)); n > 0 {
			if time.Since(began) < awakeFor {
				w.credit = min(w.credit+1, maxCredit)
			}
			return n
		}
		w.hot, w.credit = false, 0
	}
	// With poll in outer always, each event would wake a thread of the runtime too.
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(w.poll)}
	_ = unix.EpollCtl(w.outerFD, unix.EPOLL_CTL_ADD, w.poll, &e)
	for w.n = 0; w.n == 0; {
		if err := w.outerRaw.Read(w.look); err != nil {
			w.n = w.now(-1) // cannot be, and epoll itself always works
		}
	}
	_ = unix.EpollCtl(w.outerFD, unix.EPOLL_CTL_DEL, w.poll, nil)
	w.hot = w.mayHeat
	return w.n
}

// awake asks for events until awakeFor has passed. Other goroutines run in between.
func (w *waiter) awake(began time.Time) int {
	for time.Since(began) < awakeFor {
		if n := w.now(0); n > 0 {
			w.credit = min(w.credit+1, maxCredit)
			return n
		}
		runtime.Gosched()
	}
	w.credit -= lostCredit
	return 0
}
