package manifests

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// poller waits for all events of a Folder with one epoll descriptor, so that 10,000
// processes need no goroutine each.
type poller struct {
	epoll, notify, mounts int
	events                []unix.EpollEvent
	buf                   []byte

	mu    sync.Mutex // protects alarm against being closed during wake
	alarm int
}

// pollEvents is how many descriptors are taken from epoll at once.
const pollEvents = 256

func openPoller() (*poller, error) {
	p := &poller{epoll: -1, notify: -1, alarm: -1, mounts: -1, events: make([]unix.EpollEvent, pollEvents), buf: make([]byte, 64<<10)}
	if err := p.open(); err != nil {
		p.close()
		return nil, fmt.Errorf("vminfo: %w", err)
	}
	return p, nil
}

func (p *poller) open() (err error) {
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if p.notify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return fmt.Errorf("inotify (fs.inotify.max_user_instances bounds it): %w", err)
	}
	if p.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	// POLLPRI reports a change of the mounts (proc(5), mountinfo). Only this shows that
	// ip-netns(8) mounted a namespace on its file.
	if p.mounts, err = unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("mountinfo: %w", err)
	}
	if err := p.add(p.notify, unix.EPOLLIN); err != nil {
		return err
	}
	if err := p.add(p.alarm, unix.EPOLLIN); err != nil {
		return err
	}
	return p.add(p.mounts, unix.EPOLLPRI|unix.EPOLLET)
}

func (p *poller) add(fd int, events uint32) error {
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// hangup watches a descriptor for its hangup only.
func (p *poller) hangup(fd int) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Fd: int32(fd)})
}

func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fd := range []*int{&p.epoll, &p.notify, &p.alarm, &p.mounts} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
		}
		*fd = -1
	}
}

// wake wakes wait, from any goroutine; after close it does nothing.
func (p *poller) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alarm < 0 {
		return
	}
	one := [8]byte{}
	native.PutUint64(one[:], 1)
	_, _ = unix.Write(p.alarm, one[:]) // a full counter means that it is set already
}

// wait returns the descriptors with events, after at most timeout; a negative timeout
// is no limit.
func (p *poller) wait(timeout time.Duration) ([]unix.EpollEvent, error) {
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := unix.EpollWait(p.epoll, p.events, ms)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("vminfo: epoll: %w", os.NewSyscallError("epoll_wait", err))
	}
	return p.events[:n], nil
}

// silence resets the alarm that wake set.
func (p *poller) silence() {
	var b [8]byte
	_, _ = unix.Read(p.alarm, b[:])
}

// fileEvent is one event of inotify(7).
type fileEvent struct {
	wd   int32
	mask uint32
	name string
}

// fileEvents reads what inotify has.
func (p *poller) fileEvents() ([]fileEvent, error) {
	var events []fileEvent
	for {
		n, err := unix.Read(p.notify, p.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return events, nil
		case err != nil:
			return events, fmt.Errorf("vminfo: inotify: %w", err)
		}
		events = parseFileEvents(events, p.buf[:n])
		if len(events) >= maxFileEvents {
			return events, nil // epoll reports the rest again
		}
	}
}

// maxFileEvents bounds how much is taken from inotify at once.
const maxFileEvents = 4096

// parseFileEvents reads struct inotify_event: wd, mask, cookie, len, name
// (linux/inotify.h).
func parseFileEvents(events []fileEvent, b []byte) []fileEvent {
	for len(b) >= unix.SizeofInotifyEvent {
		size := int(native.Uint32(b[12:]))
		if size > len(b)-unix.SizeofInotifyEvent {
			break
		}
		name := b[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+size]
		for len(name) > 0 && name[len(name)-1] == 0 {
			name = name[:len(name)-1]
		}
		events = append(events, fileEvent{wd: int32(native.Uint32(b)), mask: native.Uint32(b[4:]), name: string(name)})
		b = b[unix.SizeofInotifyEvent+size:]
	}
	return events
}
