package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"rutter/agent/sysinfo"
)

// Times of the watch.
const (
	quiet      = 200 * time.Millisecond // wait after a message, so that a burst causes one action
	checkEvery = time.Minute            // a check without any message
	againMin   = 500 * time.Millisecond // pause before a failed send is repeated; doubles
	againMax   = time.Minute
	bootJitter = 5               // seconds: the kernel counts back from a clock that is being set (proc(5), btime)
	fileEvery  = 2 * time.Second // between two checks of the time of the file of tags
)

// Watcher sends a node's sysinfo when it has changed.
type Watcher struct {
	Source Source
	// Send sends the JSON form to the servers. It is called again after an error.
	Send func(ctx context.Context, text []byte) error
	// Changed is called with each Info that differs from the one before; nil: no call.
	Changed func(*sysinfo.Info)
	Logger  *slog.Logger

	woken chan chan error // holds the caller that waits for a refresh; nil: none waits
	last  atomic.Pointer[sysinfo.Info]
}

// NewWatcher returns a watcher that has started nothing.
func NewWatcher(source Source, send func(context.Context, []byte) error, logger *slog.Logger) *Watcher {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Watcher{Source: source, Send: send, Logger: logger, woken: make(chan chan error, 1)}
}

// Info returns the last Info; nil before the first one.
func (w *Watcher) Info() *sysinfo.Info { return w.last.Load() }

// Refresh gathers and sends, whether anything changed or not; it returns when the
// servers have it.
func (w *Watcher) Refresh(ctx context.Context) (*sysinfo.Info, error) {
	done := make(chan error, 1)
	select {
	case w.woken <- done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case err := <-done:
		return w.Info(), err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run watches and sends until ctx ends; then it returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	news := make(chan struct{}, 1)
	g.Go(func() error { return w.listen(ctx, news) })
	g.Go(func() error { return w.watchFile(ctx, news) })
	g.Go(func() error { return w.keep(ctx, news) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func notify(news chan struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

// keep gathers and sends.
func (w *Watcher) keep(ctx context.Context, news chan struct{}) error {
	var sent []byte
	pause, due := againMin, time.Duration(0)
	for {
		var asked chan error
		timer := time.NewTimer(due)
		select {
		case <-timer.C:
		case <-news:
			sleep(ctx, quiet)
		case asked = <-w.woken:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
		text, err := w.gather()
		if err == nil && (asked != nil || !bytes.Equal(text, sent)) {
			if err = w.Send(ctx, text); err == nil {
				sent = text
			}
		}
		if asked != nil {
			asked <- err
		}
		due = checkEvery
		if err != nil {
			w.Logger.Warn("sysinfo has not reached the servers yet", "error", err, "again_in", pause)
			due, pause = pause, min(2*pause, againMax)
		} else {
			pause = againMin
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (w *Watcher) gather() ([]byte, error) {
	info, err := w.Source.Gather()
	if err != nil {
		return nil, err
	}
	if before := w.last.Load(); before != nil && max(info.BootTime-before.BootTime, before.BootTime-info.BootTime) <= bootJitter {
		info.BootTime = before.BootTime
	}
	text := info.JSON()
	if before := w.last.Swap(info); w.Changed != nil && (before == nil || !bytes.Equal(before.JSON(), text)) {
		w.Changed(info)
	}
	return text, nil
}

// watchFile checks the time of the file of tags.
func (w *Watcher) watchFile(ctx context.Context, news chan struct{}) error {
	if w.Source.Tags == "" {
		return nil
	}
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	var was time.Time
	for {
		var now time.Time
		if stat, err := os.Stat(w.Source.Tags); err == nil {
			now = stat.ModTime()
		}
		if !now.Equal(was) {
			notify(news)
		}
		was = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listen receives notifications of links and addresses (linux/rtnetlink.h). A lost one
// does no harm: each only requests a complete check.
func (w *Watcher) listen(ctx context.Context, news chan struct{}) error {
	if w.Source.Links != nil {
		return nil // the links are not from the kernel
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("probe: netlink: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "netlink")
	defer socket.Close()
	groups := uint32(1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1))
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return fmt.Errorf("probe: netlink: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })()
	buffer := make([]byte, 64<<10)
	for {
		_, err := socket.Read(buffer)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("probe: netlink: %w", err)
		}
		notify(news)
	}
}
