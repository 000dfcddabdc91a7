package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/filter"
	"rutter/agent/link/internal/tap"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// UseFilter makes a filter hold the rules of port security. It is called before the first
// Dump.
func (h *Netlink) UseFilter(table filter.Table) { h.cfg.Filter = table }

// groupTables is the group of notifications of nf_tables (NFNLGRP_NFTABLES,
// linux/netfilter/nfnetlink.h).
const groupTables = 7

// listenRules calls wake when nf_tables changes in our own namespace, by this program too,
// until ctx ends. Without a filter, or without nf_tables, it ends at once.
func (h *Netlink) listenRules(ctx context.Context, wake func()) error {
	if h.cfg.Filter == nil {
		return nil
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(h.own.file.Fd())})
	if err != nil {
		return nil // sweeps still read the rules
	}
	defer conn.Close()
	if conn.JoinGroup(groupTables) != nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		_, err := conn.Receive()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("link: watch of nf_tables: %w", err)
		}
		h.expected.stirRules()
		wake()
	}
}

func (t *expected) stirRules() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules = true
}

// RulesStirred implements rulesListener.
func (h *Netlink) RulesStirred() bool {
	h.expected.mu.Lock()
	defer h.expected.mu.Unlock()
	stirred := h.expected.rules
	h.expected.rules = false
	return stirred
}

// ReadRules implements rulesListener.
func (h *Netlink) ReadRules(ctx context.Context) (filter.State, error) {
	return h.cfg.Filter.Read(ctx)
}

// failLink records that a link could not be made, and its peer with it.
func (r *run) failLink(l *plan.Link) {
	for ; l != nil; l = l.Peer {
		r.failed[l.Key()] = true
		delete(r.h.index, l.Key())
	}
}

// addPair appends the messages that make a veth pair, whose node's end is a port of the
// bridge with ifindex master, and stays down.
func (r *run) addPair(i int, l *plan.Link, index, master int32, netns int) {
	h := r.h
	peer := h.nextIndex()
	h.index[l.Peer.Key()] = peer
	delete(r.failed, l.Peer.Key())
	start := len(r.enc.B)
	r.enc.Pair(l, index, peer, master, netns)
	q := r.message(i, unix.RTM_NEWLINK, flagsCreate, start)
	q.index, q.peer = index, peer
	r.encodeSet(i, l.Peer, peer, plan.ChangeQuietIPv6|plan.ChangeMark|plan.ChangeFlags)
}

// addTap makes a tap, which is a port of a bridge and stays down. It becomes persistent when
// it is complete, so that none is left without its mark, wherever this process ends.
func (r *run) addTap(i int, l *plan.Link, index int32) error {
	r.flush()
	made, err := tap.Make(int(r.h.own.file.Fd()), l.NameToBe(), index, l.User)
	if err != nil {
		r.failLink(l)
		if errors.Is(err, tap.ErrTaken) {
			err = fmt.Errorf("%w: %w", plan.ErrForeign, err)
		}
		return err
	}
	defer func() { _ = made.Close() }() // nothing is written
	first := len(r.requests)
	r.encodeSet(i, l, index, plan.ChangeQuietIPv6|plan.ChangeMark|plan.ChangeMTU|plan.ChangeMAC)
	r.encodeSet(i, l, index, plan.ChangeMaster|plan.ChangeFlags)
	r.requests[first].index = index
	if r.flush(); r.errs == nil || r.errs[i] == nil {
		err = made.Keep()
	}
	if err != nil || r.errs != nil && r.errs[i] != nil {
		r.failLink(l)
	}
	return err
}

// setUser sets who may open a tap, and then what else a step changes.
func (r *run) setUser(i int, index int32) error {
	r.flush()
	s := r.steps[i]
	name, ok := r.h.nameOf(index)
	if !ok {
		return fmt.Errorf("%w: %s", plan.ErrNotMade, s.Link)
	}
	err := tap.SetUser(int(r.h.own.file.Fd()), name, index, s.Spec.User)
	r.encodeSet(i, s.Spec, index, s.Change&^plan.ChangeUser)
	return err
}

// nameOf returns the name in the kernel of a link of our own namespace.
func (h *Netlink) nameOf(index int32) (string, bool) {
	l, err := h.readLinkAt(index)
	if err != nil || l == nil {
		return "", false
	}
	return l.Name, true
}

// rules executes the steps about rules that begin at step i, in one transaction, and
// returns how many these are. A link whose rules are refused is put down if the step says
// so, and is not put up.
func (r *run) rules(ctx context.Context, i int) int {
	n := 0
	for i+n < len(r.steps) && r.steps[i+n].Rule != nil {
		n++
	}
	if n == 0 {
		return 0
	}
	r.flush()
	steps := r.steps[i : i+n]
	index := func(name string) (int32, bool) {
		at := plan.LinkKey{Namespace: "", Name: name}
		index, ok := r.h.index[at]
		return index, ok && !r.failed[at]
	}
	for j, err := range plan.ApplyRules(ctx, r.h.cfg.Filter, steps, index) {
		if err == nil {
			continue
		}
		r.fail(i+j, err)
		s := &steps[j]
		if s.Link == "" || s.Op == plan.OpDelRules {
			continue
		}
		if at, ok := index(s.Link); ok && s.Change&plan.ChangeDown != 0 {
			r.use(r.h.own)
			start := len(r.enc.B)
			r.enc.Set(nil, at, plan.ChangeDown)
			r.message(i+j, unix.RTM_NEWLINK, 0, start)
			r.flush()
		}
		r.failed[plan.LinkKey{Namespace: "", Name: s.Link}] = true
	}
	return n
}

// readRules reads the filter, and the links that may carry the underlay.
func (h *Netlink) readRules(ctx context.Context, have *plan.Snapshot) {
	if h.cfg.Filter == nil {
		return
	}
	have.Rules, have.RulesErr = h.cfg.Filter.Read(ctx)
	have.Interfaces = h.interfaces
}

// readInterfaces reads the addresses of all links of our own namespace.
func (h *Netlink) readInterfaces(links []wire.RawLink) error {
	if h.cfg.Filter == nil {
		return nil
	}
	found := make([]plan.Interface, 0, len(links))
	at := make(map[int32]int, len(links))
	for i := range links {
		l := &links[i]
		at[l.Index] = len(found)
		found = append(found, plan.Interface{Name: l.Name, Index: l.Index, Virtual: l.Loopback || l.Kind == "dummy"})
	}
	var touched []int
	err := dump(h.own.conn, unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), func() {
		for _, i := range touched {
			found[i].Addresses = nil
		}
	}, func(body []byte) {
		index, prefix, _, ok := wire.ParseAddress(body)
		if i, is := at[index]; ok && is {
			found[i].Addresses = append(found[i].Addresses, prefix.Addr())
			touched = append(touched, i)
		}
	})
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	for i := range found {
		slices.SortFunc(found[i].Addresses, netip.Addr.Compare)
	}
	h.interfaces = found
	return nil
}

// isGone reports whether an error says that an object to be deleted does not exist.
func isGone(errno syscall.Errno) bool {
	switch errno {
	case unix.ENODEV, unix.ENOENT, unix.EADDRNOTAVAIL, unix.ESRCH:
		return true
	}
	return false
}
