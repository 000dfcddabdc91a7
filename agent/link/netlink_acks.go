package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// Flags and the attribute of an error message (linux/netlink.h).
const (
	flagCapped     = 0x100 // NLM_F_CAPPED: the request is not repeated in it
	flagAckTLVs    = 0x200 // NLM_F_ACK_TLVS: attributes follow
	attrAckMessage = 1     // NLMSGERR_ATTR_MSG: the kernel's text, with a zero byte
)

// receiveAcks reads until the last of the messages with these sequences is answered.
// Its error is the socket's; then the result of the batch is unknown.
//
// The kernel answers before send returns, so that one system call is enough, and no
// deadline. The library takes two calls, and allocates, for each datagram.
func (r *run) receiveAcks(first, last uint32) error {
	if r.h.acks == nil {
		r.h.acks = make([]byte, receiveBytes)
	}
	for {
		n, err := r.space.receive(r.h.acks)
		if err != nil {
			return err
		}
		for h, body, rest, ok := nlmsg.Next(r.h.acks[:n]); ok; h, body, rest, ok = nlmsg.Next(rest) {
			if h.Type != unix.NLMSG_ERROR || len(body) < 4 {
				continue
			}
			// Sequences are consecutive; an earlier one is a late answer to a batch
			// that timed out.
			if at, errno := h.Seq-first, -int32(binary.NativeEndian.Uint32(body)); errno != 0 && at < uint32(len(r.requests)) {
				r.acknowledge(r.requests[at], &netlink.OpError{Op: "receive", Err: syscall.Errno(errno), Message: ackMessage(h.Flags, body), Sequence: h.Seq})
			}
			if h.Seq == last {
				return nil
			}
		}
	}
}

// receive reads one datagram. Only if there is none it waits, at most for ackTimeout.
func (s *namespaceConn) receive(b []byte) (n int, err error) {
	var failed error
	read := func(fd uintptr) bool {
		for n, failed = unix.Read(int(fd), b); errors.Is(failed, unix.EINTR); { // it does not block
			n, failed = unix.Read(int(fd), b)
		}
		return !errors.Is(failed, unix.EAGAIN)
	}
	if err := s.raw.Control(func(fd uintptr) { _ = read(fd) }); err != nil {
		return 0, err
	}
	if errors.Is(failed, unix.EAGAIN) {
		if err := s.conn.SetReadDeadline(time.Now().Add(ackTimeout)); err != nil {
			return 0, err
		}
		if err := s.raw.Read(read); err != nil {
			return 0, err
		}
	}
	if failed != nil {
		return 0, fmt.Errorf("receive: %w", failed)
	}
	return n, nil
}

// ackMessage is the kernel's text in the body of an error message, if it has one.
func ackMessage(flags uint16, body []byte) string {
	if flags&flagAckTLVs == 0 || len(body) < 4+nlmsg.HeaderSize {
		return ""
	}
	skip := 4 + nlmsg.HeaderSize
	if flags&flagCapped == 0 {
		skip = 4 + int(binary.NativeEndian.Uint32(body[4:])+3)&^3 // the request's length
	}
	text := ""
	if skip <= len(body) {
		nlmsg.Attrs(body[skip:], func(typ uint16, value []byte) {
			if typ == attrAckMessage && len(value) > 1 {
				text = string(value[:len(value)-1])
			}
		})
	}
	return text
}

// awaited is what the kernel does from a work queue after it acknowledged a step on a link.
type awaited struct {
	at   plan.LinkKey
	done func() bool // also true if waiting would not help
}

// await waits until all is done, for localWait at most. Its timeout is not a failure. A
// guest can keep a link from what is awaited for as long as it likes, so a link for which a
// wait was in vain is not waited for again before it was found done: no VM makes batch
// after batch wait, with which those of other VMs would wait too.
func (r *run) await(ctx context.Context, list []awaited) {
	if len(list) == 0 {
		return
	}
	slow := r.h.slow
	done := func(a awaited) bool {
		if !a.done() {
			return false
		}
		delete(slow, a.at)
		return true
	}
	list = slices.DeleteFunc(list, func(a awaited) bool { return done(a) || slow[a.at] })
	for end := time.Now().Add(r.h.cfg.localWait); len(list) > 0 && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(localPoll)
		list = slices.DeleteFunc(list, done)
	}
	if len(list) == 0 || ctx.Err() != nil {
		return
	}
	maps.DeleteFunc(slow, func(at plan.LinkKey, _ bool) bool { _, is := r.h.index[at]; return !is })
	for _, a := range list {
		slow[a.at] = true
	}
}

// locals are the IPv6 addresses that were added. The kernel acknowledges an address at once,
// but adds its local route from a work queue (addrconf_dad_work, linux net/ipv6/addrconf.c),
// also without duplicate detection, and drops packets that arrive before that. A link that
// is down gets no such route.
func (r *run) locals() (list []awaited) {
	for _, i := range r.added {
		if s := &r.steps[i]; r.errs == nil || r.errs[i] == nil {
			list = append(list, awaited{plan.LinkKey{Namespace: s.Namespace, Name: s.Link}, func() bool { return r.isLocal(s) }})
		}
	}
	return list
}

// isLocal requests the route to an address (RTM_GETROUTE for one destination). If the
// request fails, it returns true, because waiting would not help.
func (r *run) isLocal(s *plan.Step) bool {
	sp, err := r.h.open(s.Namespace)
	if err != nil {
		return true
	}
	var e wire.Encoder
	e.B = append(e.B, unix.AF_INET6, 128, 0, 0, 0, 0, 0, 0, 0)
	e.U32(0)
	e.AttrAddr(unix.RTA_DST, s.Prefix.Addr())
	replies, err := sp.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request}, Data: e.B})
	for _, m := range replies {
		if len(m.Data) >= unix.SizeofRtMsg {
			return m.Data[7] == unix.RTN_LOCAL // rtm_type
		}
	}
	return err == nil
}

// pairs are those whose node's end was put up: both ends are to send. The kernel notes the
// carrier from a work queue (linux net/core/link_watch.c), and until then drops what is sent.
func (r *run) pairs() (list []awaited) {
	var fabrics map[string]plan.LinkKey
	for i := range r.steps {
		s := &r.steps[i]
		n, ok := plan.PortNumber(s.Link)
		if !ok || s.Op != plan.OpSetLink || s.Change&plan.ChangeUp == 0 || r.errs != nil && r.errs[i] != nil {
			continue
		}
		if fabrics == nil {
			fabrics = make(map[string]plan.LinkKey, len(r.h.index))
			for at := range r.h.index {
				fabrics[at.Name] = at
			}
		}
		at, host := fabrics[plan.FabricName(n)], plan.LinkKey{Namespace: "", Name: s.Link}
		list = append(list, awaited{host, func() bool {
			up, running := r.stateOf(at)
			if !up {
				return true // the guest put it down, and the other end has no carrier
			}
			hostUp, hostRunning := r.stateOf(host)
			return running && (hostRunning || !hostUp)
		}})
	}
	return list
}

// stateOf reports whether a link is up, and whether it sends. What cannot be read is down.
func (r *run) stateOf(at plan.LinkKey) (up, running bool) {
	index, ok := r.h.index[at]
	sp, err := r.h.open(at.Namespace)
	if !ok || err != nil {
		return false, false
	}
	var e wire.Encoder
	e.LinkHeader(index, 0, 0)
	e.Attr32(unix.IFLA_EXT_MASK, wire.ExtFilterSkipStats)
	replies, err := sp.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: e.B})
	for _, m := range replies {
		if l, ok := wire.ParseLink(m.Data); ok && err == nil {
			return l.Up, l.Running
		}
	}
	return false, false
}

func isDelete(op plan.Op) bool {
	switch op {
	case plan.OpDelLink, plan.OpDelAddress, plan.OpDelRoute, plan.OpDelFDB, plan.OpDelNeigh, plan.OpRemoveResolvers, plan.OpDelStatic, plan.OpDelFlood:
		return true
	}
	return false
}
