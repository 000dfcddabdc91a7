package vmmove

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// Order is in which order the log has the changes that make a move.
type Order string

// The orders. With VMFirst the servers move the NIC in the VM's own change.
const (
	NICFirst Order = "NIC first"
	VMFirst  Order = "VM first"
)

// Loss is what one pinger lost.
type Loss struct {
	From    string        // the node of the VM that pings
	Sent    int           // all pings
	All     int           // all without a reply
	AfterUp int           // those of them that were sent after the link of the VM was up on the node that it moved to
	For     time.Duration // from the first to the last of AfterUp
}

// Moved is what a move did.
type Moved struct {
	Losses []Loss
	Up     time.Duration // from the request of the first change until the link was up
	Wait   time.Duration // from the request of the last change until its barrier was done
}

// settleTime is how long there are pings before and after a move.
const settleTime = 150 * time.Millisecond

// between is the time between the two changes of NICFirst.
const between = 30 * time.Millisecond

// Move moves the VM to the other node, while it is pinged, and checks the kernels when the
// barriers of the changes are done.
func (w *World) Move(ctx context.Context, f *Fabric, order Order) (moved Moved, err error) {
	to := 1 - f.at
	up, err := watchUp(f.homes[to])
	if err != nil {
		return moved, err
	}
	defer up.close()
	pingers := map[int]*pinger{}
	defer func() {
		stop(pingers)
		if err == nil {
			moved.Losses = f.losses(pingers, up.at())
		}
	}()
	for i, vm := range f.vms {
		p, err := ping(vm, f.ip)
		if err != nil {
			return moved, err
		}
		pingers[i] = p
	}
	if err := sleep(ctx, settleTime); err != nil {
		return moved, err
	}
	began := time.Now()
	nic := log.Op{Action: log.Update, Kind: log.KindNIC, ID: f.mac.String(), Set: []string{"cn_uuid"}, Object: &log.NIC{CNUUID: w.nodes[to].cn}}
	vm := log.Op{Action: log.Update, Kind: log.KindVM, ID: f.moving.String(), Set: []string{"server_uuid"}, Object: &log.VM{ServerUUID: w.nodes[to].cn}}
	if order == NICFirst {
		if err := w.submit(ctx, nic); err != nil {
			return moved, err
		}
		if err := errors.Join(w.checkFar(f, to), sleep(ctx, between)); err != nil {
			return moved, err
		}
	}
	last := time.Now()
	if err := w.submit(ctx, vm); err != nil {
		return moved, err
	}
	moved.Wait = time.Since(last)
	if err := w.check(f, to); err != nil {
		return moved, err
	}
	f.at = to
	if err := sleep(ctx, settleTime); err != nil {
		return moved, err
	}
	moved.Up = up.at().Sub(began)
	return moved, nil
}

// submit makes a change, and waits until the kernels have it.
func (w *World) submit(ctx context.Context, op log.Op) error {
	_, err := w.api.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}})
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// losses are what the pingers, by node, lost in a move that is done.
func (f *Fabric) losses(pingers map[int]*pinger, up time.Time) (list []Loss) {
	for _, i := range slices.Sorted(maps.Keys(pingers)) {
		p, from := pingers[i], "the third node"
		switch i {
		case f.at:
			from = "the new node"
		case 1 - f.at:
			from = "the old node"
		}
		list = append(list, Loss{From: from, Sent: len(p.sent), All: p.lost(time.Time{}), AfterUp: p.lost(up), For: p.lostFor(up)})
	}
	return list
}

// checkFar checks where the nodes with VMs of the fabric forward to, and that no node has
// the VM's address itself.
func (w *World) checkFar(f *Fabric, to int) error {
	var wrong error
	for i, n := range w.nodes {
		own, err := n.run("ip", "-o", "address", "show", "to", f.ip.String())
		if err == nil && own != "" {
			err = fmt.Errorf("%s itself has the VM's address: %q", n.ns.Name, own)
		}
		wrong = errors.Join(wrong, err)
		if _, is := f.vms[i]; !is {
			continue
		}
		out, err := n.run("bridge", "fdb", "show", "dev", f.device())
		if err != nil {
			return err
		}
		var dsts []string
		for line := range strings.Lines(out) {
			if _, dst, is := strings.Cut(line, " dst "); is && strings.HasPrefix(line, f.mac.String()+" ") {
				dsts = append(dsts, strings.Fields(dst)[0])
			}
		}
		want := []string{w.nodes[to].addr.String()}
		if i == to {
			want = nil
		}
		if !slices.Equal(dsts, want) {
			wrong = errors.Join(wrong, fmt.Errorf("%s, after the barrier: forwarding entries to %v, want to %v", n.ns.Name, dsts, want))
		}
	}
	return wrong
}

// check checks what the kernels have when the move's barrier is done: the new entries, and
// no old ones.
func (w *World) check(f *Fabric, to int) error {
	wrong := w.checkFar(f, to)
	look := func(ns netlab.Namespace, want string, args ...string) {
		out, err := within(ns, "ip", args...)
		if err == nil && (want == "" && out != "" && args[1] == "address" || !strings.Contains(out, want)) {
			err = fmt.Errorf("%s, after the barrier: ip %s prints %q, want %q in it", ns.Path(), strings.Join(args, " "), out, want)
		}
		wrong = errors.Join(wrong, err)
	}
	for _, vm := range f.vms {
		look(vm, f.mac.String()+" PERMANENT", "neigh", "show", f.ip.String())
	}
	for i := range w.nodes {
		want := ""
		if i == to {
			want = f.ip.String()
		}
		look(f.homes[i], want, "-o", "address", "show", "to", f.ip.String(), "up")
		if want = fmt.Sprintf("br%dv0:", f.vnet); w.o.Plain || i != to {
			want = ""
		}
		look(w.nodes[i].ns, want, "-o", "link", "show", "type", "bridge")
	}
	return wrong
}

// run runs a program in the node's namespace.
func (n *node) run(name string, args ...string) (string, error) { return within(n.ns, name, args...) }

func within(ns netlab.Namespace, name string, args ...string) (text string, err error) {
	err = ns.Do(func() error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s in %s: %w: %s", name, strings.Join(args, " "), ns.Name, err, out)
		}
		text = string(out)
		return nil
	})
	return text, err
}

// upWatch notes when a link of a VM is up in a namespace.
type upWatch struct {
	conn  *netlink.Conn
	first chan time.Time
	noted time.Time
}

// watchUp starts an upWatch. The caller must call close.
func watchUp(ns netlab.Namespace) (*upWatch, error) {
	u := &upWatch{first: make(chan time.Time, 1)}
	err := ns.Do(func() (err error) {
		u.conn, err = netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: unix.RTMGRP_LINK})
		return err
	})
	if err != nil {
		return nil, err
	}
	go u.watch()
	return u, nil
}

// watch ends when the first link with a carrier is up, or by close.
func (u *upWatch) watch() {
	for {
		messages, err := u.conn.Receive()
		now := time.Now()
		if err != nil {
			return
		}
		for _, m := range messages {
			if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg || !strings.Contains(string(m.Data), "fabric") {
				continue
			}
			const up = unix.IFF_UP | unix.IFF_LOWER_UP
			if flags := nativeEndian.Uint32(m.Data[8:]); flags&up == up {
				u.first <- now
				return
			}
		}
	}
}

// at is when the link was up; the zero time if it was not.
func (u *upWatch) at() time.Time {
	select {
	case u.noted = <-u.first:
	default:
	}
	return u.noted
}

func (u *upWatch) close() { _ = u.conn.Close() }

// nativeEndian is the byte order of netlink on this machine.
var nativeEndian = binary.NativeEndian
