package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// watchQuiet is how long after a first change further ones are gathered, so that
// a burst wakes once.
const watchQuiet = 20 * time.Millisecond

// watchGroups are those whose messages may tell of drift (linux/rtnetlink.h).
var watchGroups = []uint32{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NSID, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// Watch calls wake when something on our links is not as the kernel was told,
// at most once per 20 ms; also when so much happened that the kernel could not
// tell all of it, and once at its begin, before which nothing was heard. What it was, Heard tells. It hears our own namespace, and the
// VM namespaces that the kernel relates to it. It calls reach when a link that
// is not ours gets a carrier or an address, so that others may be in reach now.
// It ends with ctx, and returns its error. Neither function may block.
func (h *Netlink) Watch(ctx context.Context, wake, reach func()) error {
	namespaces, err := h.watchNamespaces()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return namespaces.run(ctx, wake) })
	g.Go(func() error { return h.listen(ctx, wake, reach) })
	return g.Wait()
}

// listen takes the notifications of the kernel.
func (h *Netlink) listen(ctx context.Context, wake, reach func()) error {
	conn, err := dial(int(h.own.file.Fd()), receiveBytes)
	if err != nil {
		return fmt.Errorf("link: watch: %w", err)
	}
	defer conn.Close()
	if err := h.prepareWatch(conn); err != nil {
		return fmt.Errorf("link: watch: %w", err)
	}
	defer h.told.setHearing(false)
	h.told.hearLoss() // nobody knows what happened before
	wake()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	w := &watch{Netlink: h, conn: conn, reach: reach, carrier: map[int32]bool{}}
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
		if h.told.settle() {
			wake()
		}
	}
}

// watch is one Watch under way.
type watch struct {
	*Netlink
	conn    *netlink.Conn
	reach   func()
	carrier map[int32]bool // of links that are not ours, as last heard
}

// maxCarriers bounds the links whose carrier is remembered; of others each
// notification counts as news.
const maxCarriers = 4096

func (h *Netlink) prepareWatch(conn *netlink.Conn) error {
	_ = conn.SetReadBuffer(socketBytes) // less is answered by ENOBUFS, and that by waking
	// Hearing the VMs' namespaces needs CAP_NET_BROADCAST and is a help only:
	// without it each pass looks into all of them.
	all := conn.SetOption(netlink.ListenAllNSID, true) == nil
	if err := dropMisses(conn); err != nil {
		return err
	}
	for _, group := range watchGroups {
		if err := conn.JoinGroup(group); err != nil {
			return err
		}
	}
	h.told.setHearing(all)
	return nil
}

// nextChange waits for the next datagram, and reports whether it is of something
// that is not as it should be.
func (w *watch) nextChange() (bool, error) {
	messages, err := w.conn.Receive()
	if errors.Is(err, unix.ENOBUFS) {
		w.told.hearLoss()
		return true, nil
	}
	if err != nil {
		return false, err
	}
	changed := false
	for _, m := range messages {
		changed = w.hear(m) || changed
	}
	return changed, nil
}

// hear judges one notification.
func (w *watch) hear(m netlink.Message) bool {
	w.hearCarrier(m)
	h := w.Netlink
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return h.told.hearLink(m.Data, m.Header.Type == unix.RTM_DELLINK)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return h.told.hearEntry(m.Data, m.Header.Type == unix.RTM_DELNEIGH)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return h.told.hearAddress(m.Data, m.Header.Type == unix.RTM_DELADDR)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return h.told.hearRoute(m.Data, m.Header.Type == unix.RTM_DELROUTE)
	case unix.RTM_DELNSID:
		h.told.hearLoss() // a namespace is gone, perhaps one with our links
		return true
	}
	return false
}

// hearCarrier calls reach if a notification says that a link which is not ours
// has a carrier that it had not, or an address.
func (w *watch) hearCarrier(m netlink.Message) {
	if len(m.Data) < unix.SizeofIfAddrmsg {
		return
	}
	index := int32(native.Uint32(m.Data[4:])) // in struct ifinfomsg as in ifaddrmsg
	switch {
	case w.told.has(index):
	case m.Header.Type == unix.RTM_NEWADDR:
		w.reach()
	case m.Header.Type == unix.RTM_DELLINK:
		delete(w.carrier, index)
	case m.Header.Type == unix.RTM_NEWLINK && len(m.Data) >= unix.SizeofIfInfomsg:
		up := native.Uint32(m.Data[8:])&unix.IFF_LOWER_UP != 0
		if up && !w.carrier[index] {
			w.reach()
		}
		if len(w.carrier) < maxCarriers {
			w.carrier[index] = up
		}
	}
}

// settle takes what follows within watchQuiet.
func (w *watch) settle(ctx context.Context) error {
	conn := w.conn
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
		if op, ok := errors.AsType[*netlink.OpError](err); !ok || !op.Timeout() {
			return fmt.Errorf("link: watch: %w", err)
		}
		if err := conn.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		// The cancellation's own deadline may have been overwritten just now.
		return ctx.Err()
	}
}

// dropMisses makes the kernel keep RTM_GETNEIGH from this socket: a VXLAN device
// tells of every packet to an unknown MAC, with no limit (spec/kernel.md section 1, C).
func dropMisses(conn *netlink.Conn) error {
	// nlmsg_type is at offset 4, in the machine's order; BPF loads in the
	// network's (linux/filter.h).
	var typ [2]byte
	native.PutUint16(typ[:], unix.RTM_GETNEIGH)
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
