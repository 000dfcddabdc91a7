package view

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

const (
	kindVeth = "veth"
	// readTime bounds the wait for one answer of the kernel, unless ctx ends before.
	readTime = 2 * time.Second
)

// dial opens a socket in a namespace; its reads end with ctx's deadline.
func dial(ctx context.Context, namespace *os.File) (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: int(namespace.Fd()), Strict: true})
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(readTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	if err := conn.SetDeadline(end); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// rawLink is a link with its counters.
type rawLink struct {
	index, peer, master int32 // peer: IFLA_LINK
	name, kind          string
	mac                 log.MAC
	mtu                 uint32
	up, running         bool
	outside             bool // its other end, or the link below it, is in another namespace
	stats               []byte
}

// as is the link in the form for traces.
func (l *rawLink) as(role string) desired.KernelLink {
	return desired.KernelLink{
		Role: role, Name: l.name, Kind: l.kind, MAC: l.mac, MTU: l.mtu, Up: l.up,
		RxPackets: l.stat(0), TxPackets: l.stat(1), RxErrors: l.stat(4), TxErrors: l.stat(5), RxDropped: l.stat(6), TxDropped: l.stat(7),
	}
}

// stat is one number of struct rtnl_link_stats64 (linux/if_link.h).
func (l *rawLink) stat(n int) uint64 {
	if len(l.stats) < 8*(n+1) {
		return 0
	}
	return binary.NativeEndian.Uint64(l.stats[8*n:])
}

func parseLink(body []byte) (*rawLink, bool) {
	parsed, ok := wire.ParseLink(body)
	if !ok {
		return nil, false
	}
	l := &rawLink{index: parsed.Index, peer: parsed.ParentIndex, name: parsed.Name, kind: parsed.Kind, mac: parsed.MAC, mtu: parsed.MTU, up: parsed.Up, running: parsed.Running, outside: parsed.ParentNS >= 0}
	nlmsg.Attrs(body[unix.SizeofIfInfomsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.IFLA_MASTER:
			l.master = int32(wire.AsU32(value))
		case unix.IFLA_STATS64:
			l.stats = append([]byte(nil), value...)
		}
	})
	return l, true
}

// isAbsent reports whether an error says that what was asked for does not exist.
func isAbsent(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) }

// linkAt and linkNamed return a link by its ifindex or name, nil if there is none.
func linkAt(conn *netlink.Conn, index int32) (*rawLink, error) {
	var e wire.Encoder
	e.LinkHeader(index, 0, 0)
	return oneLink(conn, e.B)
}

func linkNamed(conn *netlink.Conn, name string) (*rawLink, error) {
	var e wire.Encoder
	e.LinkHeader(0, 0, 0)
	e.AttrText(unix.IFLA_IFNAME, name)
	return oneLink(conn, e.B)
}

func oneLink(conn *netlink.Conn, body []byte) (*rawLink, error) {
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: body})
	if isAbsent(err) {
		return nil, nil
	}
	for _, m := range replies {
		if l, ok := parseLink(m.Data); ok && err == nil {
			return l, nil
		}
	}
	return nil, err
}

var errManyLinks = errors.New("it has more than " + strconv.Itoa(maxLinks) + " links, and none of the first is it")

// fabricLink returns the link of a NIC in a VM's namespace, nil if there is none: the other
// end of host, if that is not nil; else one with the MAC that leads out of the namespace,
// before others that a guest may have made.
func fabricLink(conn *netlink.Conn, mac log.MAC, host *rawLink) (found *rawLink, err error) {
	var e wire.Encoder
	e.LinkHeader(0, 0, 0)
	seen := 0
	err = dump(conn, unix.RTM_GETLINK, e.B, func(body []byte) {
		seen++
		l, ok := parseLink(body)
		switch {
		case !ok || seen > maxLinks:
		case host != nil:
			if l.kind == kindVeth && l.index == host.peer && l.peer == host.index {
				found = l
			}
		case l.mac == mac && (l.kind == plan.KindMacvlan || l.kind == kindVeth) && (found == nil || l.outside && !found.outside):
			found = l
		}
	})
	if err == nil && found == nil && seen > maxLinks {
		err = errManyLinks
	}
	return found, err
}

// dump requests a list, and calls each with each message's body.
func dump(conn *netlink.Conn, typ netlink.HeaderType, body []byte, each func(body []byte)) error {
	if _, err := conn.Send(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump}, Data: body}); err != nil {
		return err
	}
	for m, err := range conn.ReceiveIter() {
		if err != nil {
			return err
		}
		each(m.Data)
	}
	return nil
}

// addresses returns the addresses of a link, IPv6 link-local ones left out.
func addresses(conn *netlink.Conn, index int32) (list []netip.Prefix, err error) {
	list = []netip.Prefix{}
	body := make([]byte, unix.SizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(index)) // ifa_index: of this link only
	err = dump(conn, unix.RTM_GETADDR, body, func(body []byte) {
		at, prefix, _, ok := wire.ParseAddress(body)
		if ok && at == index && !plan.IsLinkLocal(prefix.Addr()) && len(list) < desired.MaxKernelAddresses {
			list = append(list, prefix)
		}
	})
	return list, err
}

// entry returns a neighbour or a forwarding entry of a link, nil if there is none.
func entry(conn *netlink.Conn, index int32, e plan.Entry) (*wire.RawNeigh, error) {
	var enc wire.Encoder
	enc.ReadEntry(e, index)
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETNEIGH, Flags: netlink.Request}, Data: enc.B})
	if isAbsent(err) {
		return nil, nil
	}
	for _, m := range replies {
		if n, ok := wire.ParseNeigh(m.Data); ok && err == nil {
			return &n, nil
		}
	}
	return nil, err
}

// stateName names the state of a neighbour as ip-neighbour(8) does.
func stateName(state uint16) string {
	for _, s := range []struct {
		bit  uint16
		name string
	}{
		{unix.NUD_PERMANENT, "permanent"},
		{unix.NUD_NOARP, "noarp"},
		{unix.NUD_REACHABLE, "reachable"},
		{unix.NUD_STALE, "stale"},
		{unix.NUD_DELAY, "delay"},
		{unix.NUD_PROBE, "probe"},
		{unix.NUD_FAILED, "failed"},
		{unix.NUD_INCOMPLETE, "incomplete"},
	} {
		if state&s.bit != 0 {
			return s.name
		}
	}
	return "none"
}
