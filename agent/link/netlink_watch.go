package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// watchQuiet is how long Watch waits after a first change for further ones, so that a
// burst causes one wake.
const watchQuiet = 20 * time.Millisecond

// watchGroups are the groups whose messages may show drift (linux/rtnetlink.h).
var watchGroups = []uint32{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NSID, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// Watch calls wake when something on our links differs from what was programmed, at
// most once per 20 ms. It also calls wake when the kernel lost notifications, and once
// at its begin, because earlier ones were not received. Observed returns the details.
// Watch receives notifications of our own namespace and of the VM namespaces that have
// a number in it. It calls reach when a link that is not ours gets a carrier or an
// address, so that servers may have become reachable. It ends with ctx, and returns its
// error. Neither function may block.
func (h *Netlink) Watch(ctx context.Context, wake, reach func()) error {
	namespaces, err := h.watchNamespaces()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return namespaces.run(ctx, wake) })
	g.Go(func() error { return h.listen(ctx, wake, reach) })
	g.Go(func() error { return h.listenRules(ctx, wake) })
	return g.Wait()
}

// listen receives the kernel's notifications.
func (h *Netlink) listen(ctx context.Context, wake, reach func()) error {
	conn, err := dial(int(h.own.file.Fd()), receiveBytes)
	if err != nil {
		return fmt.Errorf("link: watch: %w", err)
	}
	defer conn.Close()
	if err := h.prepareWatch(conn); err != nil {
		return fmt.Errorf("link: watch: %w", err)
	}
	defer h.expected.setListening(false)
	h.expected.doubtAll() // earlier changes are unknown
	wake()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	w := &watch{Netlink: h, conn: conn, reach: reach, carrier: map[int32]bool{}, buffer: make([]byte, observeBuffer)}
	if w.raw, err = conn.SyscallConn(); err != nil {
		return fmt.Errorf("link: watch: %w", err)
	}
	for {
		changed, err := w.nextChange()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("link: watch: %w", err)
		}
		if !changed {
			continue
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		if h.expected.settle() {
			wake()
		}
	}
}

const (
	// observeMany is how many datagrams are handled at once, under one lock.
	observeMany = 64
	// observeBytes holds any notification, except those of links with very many
	// attributes, which then count as lost. An entry has about 100 bytes.
	observeBytes = 16 << 10
	// observeBuffer holds observeMany entries, and a few other messages.
	observeBuffer = 128 << 10
)

// watch is one running Watch.
type watch struct {
	*Netlink
	conn    *netlink.Conn
	raw     syscall.RawConn // of conn
	reach   func()
	carrier map[int32]bool // of links that are not ours, as last reported

	buffer   []byte // of what was received
	observed int    // its length
	lost     bool   // and there was more
	err      error
}

// maxCarriers bounds the links whose carrier is remembered; for others each
// notification counts as a change.
const maxCarriers = 4096

func (h *Netlink) prepareWatch(conn *netlink.Conn) error {
	_ = conn.SetReadBuffer(socketBytes) // with a smaller one, ENOBUFS causes a wake
	// Receiving from the VMs' namespaces needs CAP_NET_BROADCAST and is only an
	// optimization: without it each pass reads all of them.
	all := conn.SetOption(netlink.ListenAllNSID, true) == nil
	if err := dropMisses(conn); err != nil {
		return err
	}
	for _, group := range watchGroups {
		if err := conn.JoinGroup(group); err != nil {
			return err
		}
	}
	h.expected.setListening(all)
	return nil
}

// nextChange waits for notifications, and reports whether one shows a difference.
func (w *watch) nextChange() (bool, error) {
	w.observed, w.lost, w.err = 0, false, nil
	if err := w.raw.Read(w.fill); err != nil {
		return false, err
	}
	return w.handle()
}

// handle judges what fill received.
func (w *watch) handle() (bool, error) {
	if w.err != nil {
		return false, w.err
	}
	changed, reached := w.judge(w.buffer[:w.observed])
	if reached {
		w.reach()
	}
	return changed, nil
}

// drainRounds bounds how much of what is queued is handled before links are judged by
// what was heard of them: each round has up to observeMany notifications.
const drainRounds = 64

// drain handles what is queued.
func (w *watch) drain() error {
	for range drainRounds {
		w.observed, w.lost, w.err = 0, false, nil
		some := false
		if err := w.raw.Control(func(fd uintptr) { some = w.fill(fd) }); err != nil || !some {
			return err
		}
		if _, err := w.handle(); err != nil {
			return err
		}
	}
	return nil
}

// fill receives up to observeMany notifications, and reports false if there are none
// yet.
func (w *watch) fill(fd uintptr) bool {
	for n := 0; n < observeMany && w.observed+observeBytes <= len(w.buffer); n++ {
		size, err := unix.Read(int(fd), w.buffer[w.observed:w.observed+observeBytes])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return n > 0
		case errors.Is(err, unix.ENOBUFS):
			w.lost = true
		case err != nil:
			w.err = err
			return true
		case size == observeBytes:
			w.lost = true // the rest was cut off
		default:
			w.observed += (size + 3) &^ 3
		}
	}
	return true
}

// judge handles notifications: changed means that something is not as it should be,
// reached that servers may have become reachable.
func (w *watch) judge(b []byte) (changed, reached bool) {
	t := w.expected
	t.mu.Lock()
	defer t.mu.Unlock()
	if changed = w.lost; changed {
		t.observeLoss()
	}
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			break
		}
		typ, body := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:size]
		reached = w.observeCarrier(typ, body) || reached
		changed = t.observe(typ, body) || changed
		b = b[min((size+3)&^3, len(b)):]
	}
	return changed, reached
}

// observe handles one notification.
func (t *expected) observe(typ uint16, body []byte) bool {
	switch typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return t.observeLink(body, typ == unix.RTM_DELLINK)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return t.observeEntry(body, typ == unix.RTM_DELNEIGH)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return t.observeAddress(body, typ == unix.RTM_DELADDR)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return t.observeRoute(body, typ == unix.RTM_DELROUTE)
	case unix.RTM_DELNSID:
		t.observeLoss() // a namespace was removed, perhaps one with our links
		return true
	}
	return false
}

// observeCarrier reports whether a notification says that a link which is not ours has
// a new carrier, or a new address.
func (w *watch) observeCarrier(typ uint16, body []byte) (reached bool) {
	if len(body) < unix.SizeofIfAddrmsg || typ == unix.RTM_NEWNEIGH || typ == unix.RTM_DELNEIGH {
		return false
	}
	index := int32(binary.NativeEndian.Uint32(body[4:])) // in struct ifinfomsg as in ifaddrmsg
	switch {
	case w.expected.links[index] != nil:
	case typ == unix.RTM_NEWADDR:
		return true
	case typ == unix.RTM_DELLINK:
		delete(w.carrier, index)
	case typ == unix.RTM_NEWLINK && len(body) >= unix.SizeofIfInfomsg:
		up := binary.NativeEndian.Uint32(body[8:])&unix.IFF_LOWER_UP != 0
		reached = up && !w.carrier[index]
		if len(w.carrier) < maxCarriers {
			w.carrier[index] = up
		}
	}
	return reached
}

// watchBusy bounds how long links are not judged because batches of ours are under way. Then
// one may be judged by a state on its way, which costs a pass; without a bound, batches that
// follow each other, or one that hangs, would hide what others do to our links.
const watchBusy = 2 * time.Second

// settle handles what follows within watchQuiet and while a batch of ours is under way, at
// most for watchBusy, and what is queued then: otherwise a link would be judged by one of the
// states on its way, when the kernel or this goroutine is slow.
func (w *watch) settle(ctx context.Context) error {
	conn, end := w.conn, time.Now().Add(watchBusy)
	if err := conn.SetReadDeadline(time.Now().Add(watchQuiet)); err != nil {
		return err
	}
	for {
		_, err := w.nextChange()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("link: watch: %w", err)
		}
		if w.expected.busy() && time.Now().Before(end) {
			if err := conn.SetReadDeadline(time.Now().Add(watchQuiet)); err != nil {
				return err
			}
			continue
		}
		if err := w.drain(); err != nil {
			return fmt.Errorf("link: watch: %w", err)
		}
		if err := conn.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		// The deadline for the cancellation may have been overwritten just now.
		return ctx.Err()
	}
}

// dropMisses makes the kernel filter RTM_GETNEIGH for this socket: a VXLAN device
// reports every packet to an unknown MAC, without limit (spec/kernel.md section 1, C).
func dropMisses(conn *netlink.Conn) error {
	// nlmsg_type is at offset 4, in the machine's order; BPF loads in the
	// network's (linux/filter.h).
	var typ [2]byte
	binary.NativeEndian.PutUint16(typ[:], unix.RTM_GETNEIGH)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: uint32(typ[0])<<8 | uint32(typ[1])},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(err, failed)
}
