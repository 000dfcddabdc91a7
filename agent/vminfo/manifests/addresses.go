package manifests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
	"rutter/log"
)

// The kernel numbers other namespaces relative to ours (nsid). So one socket can
// receive notifications from all of them (NETLINK_LISTEN_ALL_NSID) and dump any of them
// (IFA_TARGET_NETNSID) without entering a namespace.

// Attributes that package unix does not have.
const (
	netnsaNSID = 1 // linux/net_namespace.h NETNSA_NSID
	netnsaFD   = 3 // NETNSA_FD
)

var native = binary.NativeEndian

// addressSockets request addresses of other namespaces from the kernel.
type addressSockets struct {
	requests      int // requests and dumps
	notifications int // notifications; not blocking
	seq           uint32
	buf           []byte
}

// netlinkTimeout bounds the wait for one answer of the kernel, in seconds.
const netlinkTimeout = 5

// notificationBytes is the receive buffer for notifications. If it overflows, the
// kernel reports ENOBUFS, and every VM is inspected.
const notificationBytes = 4 << 20

func openAddressSockets() (*addressSockets, error) {
	s := &addressSockets{requests: -1, notifications: -1, buf: make([]byte, 64<<10)}
	if err := s.open(); err != nil {
		s.close()
		return nil, fmt.Errorf("vminfo: netlink: %w", err)
	}
	return s, nil
}

func (s *addressSockets) open() (err error) {
	if s.requests, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE); err != nil {
		return err
	}
	// Only strict dumps use the target namespace.
	if err := unix.SetsockoptInt(s.requests, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(s.requests, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: netlinkTimeout}); err != nil {
		return err
	}
	if s.notifications, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(s.notifications, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, notificationBytes) // a smaller buffer also works
	if err := unix.SetsockoptInt(s.notifications, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
		return err
	}
	if err := unix.Bind(s.notifications, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for _, group := range []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR} {
		if err := unix.SetsockoptInt(s.notifications, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			return err
		}
	}
	return nil
}

func (s *addressSockets) close() {
	for _, fd := range []int{s.requests, s.notifications} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// attribute is one netlink attribute with a number of 32 bits.
type attribute struct {
	typ   uint16
	value uint32
}

// request builds a message: header (linux/netlink.h nlmsghdr), a fixed part,
// attributes.
func (s *addressSockets) request(typ, flags uint16, fixed int, attributes ...attribute) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+fixed, unix.NLMSG_HDRLEN+fixed+8*len(attributes))
	for _, a := range attributes {
		b = native.AppendUint16(native.AppendUint16(b, 8), a.typ)
		b = native.AppendUint32(b, a.value)
	}
	s.seq++
	native.PutUint32(b[0:], uint32(len(b)))
	native.PutUint16(b[4:], typ)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	native.PutUint32(b[8:], s.seq)
	return b
}

// do sends a request and calls a function for each message of the answer, until it is
// complete.
func (s *addressSockets) do(request []byte, show func(typ uint16, body []byte)) error {
	if err := unix.Sendto(s.requests, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	dump := native.Uint16(request[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	for {
		n, _, err := unix.Recvfrom(s.requests, s.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		done, err := netlinkReply(s.buf[:n], s.seq, dump, show)
		if done || err != nil {
			return err
		}
	}
}

// netlinkReply reads the messages of one datagram. It is done at the end of a dump, at
// an acknowledgement, and after one message if no dump was requested.
func netlinkReply(b []byte, seq uint32, dump bool, show func(typ uint16, body []byte)) (done bool, err error) {
	for len(b) >= nlmsg.HeaderSize {
		h, body, rest, ok := nlmsg.Next(b)
		if !ok {
			return done, errShort
		}
		switch {
		case h.Seq != seq || done: // of an earlier request that timed out
		case h.Type == unix.NLMSG_DONE:
			done = true
		case h.Type == unix.NLMSG_ERROR:
			done = true
			if len(body) >= 4 {
				if code := int32(native.Uint32(body)); code < 0 {
					return done, unix.Errno(-code)
				}
			}
		default:
			show(h.Type, body)
			done = !dump
		}
		b = rest
	}
	return done, nil
}

var errShort = errors.New("vminfo: a netlink message is cut")

// nsid returns the number of the namespace of fd in ours, and assigns one if it has
// none.
func (s *addressSockets) nsid(fd int) (int32, error) {
	id, err := s.knownNSID(fd)
	if err != nil || id >= 0 {
		return id, err
	}
	// -1 lets the kernel choose.
	give := s.request(unix.RTM_NEWNSID, unix.NLM_F_ACK, 4, attribute{netnsaFD, uint32(fd)}, attribute{netnsaNSID, ^uint32(0)})
	if err := s.do(give, func(uint16, []byte) {}); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	if id, err = s.knownNSID(fd); err == nil && id < 0 {
		err = errors.New("vminfo: the kernel gave the namespace no number")
	}
	return id, err
}

// knownNSID returns the number of the namespace of fd, -1 if it has none.
func (s *addressSockets) knownNSID(fd int) (int32, error) {
	id := int32(-1)
	err := s.do(s.request(unix.RTM_GETNSID, 0, 4, attribute{netnsaFD, uint32(fd)}), func(_ uint16, body []byte) {
		nlmsg.Attrs(body[min(4, len(body)):], func(typ uint16, value []byte) {
			if typ == netnsaNSID && len(value) >= 4 {
				id = int32(native.Uint32(value))
			}
		})
	})
	return id, err
}

// addresses returns the addresses of the links in a namespace, by the MAC of the link.
// A link without addresses has an entry as well. Addresses of link scope (fe80::) are
// left out.
func (s *addressSockets) addresses(nsid int32) (map[log.MAC][]netip.Prefix, error) {
	macs := make(map[int32]log.MAC)
	found := make(map[log.MAC][]netip.Prefix)
	links := s.request(unix.RTM_GETLINK, unix.NLM_F_DUMP, unix.SizeofIfInfomsg, attribute{unix.IFLA_TARGET_NETNSID, uint32(nsid)})
	err := s.do(links, func(_ uint16, body []byte) {
		nlmsg.Attrs(body[min(unix.SizeofIfInfomsg, len(body)):], func(typ uint16, value []byte) {
			var mac log.MAC
			if typ == unix.IFLA_ADDRESS && len(value) == len(mac) {
				copy(mac[:], value)
				macs[int32(native.Uint32(body[4:]))] = mac
				found[mac] = nil
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("vminfo: links of namespace %d: %w", nsid, err)
	}
	dump := s.request(unix.RTM_GETADDR, unix.NLM_F_DUMP, unix.SizeofIfAddrmsg, attribute{unix.IFA_TARGET_NETNSID, uint32(nsid)})
	err = s.do(dump, func(_ uint16, body []byte) {
		index, prefix, ok := parseAddress(body)
		if mac, known := macs[index]; ok && known && !slices.Contains(found[mac], prefix) {
			found[mac] = append(found[mac], prefix)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("vminfo: addresses of namespace %d: %w", nsid, err)
	}
	return found, nil
}

// parseAddress reads RTM_NEWADDR (linux/if_addr.h ifaddrmsg: family, prefixlen,
// flags, scope, index). It is false for addresses of a link's own scope.
func parseAddress(body []byte) (index int32, prefix netip.Prefix, ok bool) {
	if len(body) < unix.SizeofIfAddrmsg || body[3] >= unix.RT_SCOPE_LINK {
		return 0, prefix, false
	}
	var local, address netip.Addr
	nlmsg.Attrs(body[unix.SizeofIfAddrmsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.IFA_LOCAL: // of a point-to-point link, IFA_ADDRESS is the other end
			local, _ = netip.AddrFromSlice(value)
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(value)
		}
	})
	if !local.IsValid() {
		local = address
	}
	prefix = netip.PrefixFrom(local, int(body[1]))
	return int32(native.Uint32(body[4:])), prefix, prefix.IsValid()
}

// changed reads the waiting notifications, and returns the namespaces that they are
// about. all is true if the kernel lost some.
func (s *addressSockets) changed() (nsids map[int32]int, all bool, err error) {
	nsids = make(map[int32]int)
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		_, noob, _, _, err := unix.Recvmsg(s.notifications, s.buf, oob, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return nsids, all, nil
		case errors.Is(err, unix.ENOBUFS):
			all = true
			continue
		case err != nil:
			return nsids, all, fmt.Errorf("vminfo: netlink: %w", err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:noob])
		if err != nil {
			continue
		}
		for _, m := range messages {
			if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
				nsids[int32(native.Uint32(m.Data))]++
			}
		}
	}
}
