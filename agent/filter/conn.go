package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
)

const (
	// maxTransaction is how many bytes of messages go into one transaction (the kernel
	// copies them into one buffer): some 2,000 ports. A table that is made again goes in
	// one transaction whatever its size is, up to sendBytes.
	maxTransaction = 1 << 20
	// sendBytes and receiveBytes are the requested socket buffers. Without the right to
	// exceed net.core.wmem_max and rmem_max the kernel grants those.
	sendBytes    = 256 << 20
	receiveBytes = 8 << 20
	// answerTime is how long an answer is waited for. The kernel answers while it takes the
	// message, so an answer that is not there then does not come.
	answerTime = 10 * time.Second
	// readBuffer is more than the kernel sends at once (32 KiB, linux/af_netlink.c).
	readBuffer = 64 << 10
)

// errInterrupted means that nf_tables changed during a dump.
var errInterrupted = errors.New("filter: nf_tables changed during a dump")

// conn is a netlink socket to nf_tables, in the network namespace of the thread that opened
// it. It is for one goroutine at a time.
type conn struct {
	fd     int
	limit  int // bytes that one send may have
	seq    uint32
	buffer []byte
	batch  []byte
}

func openConn() (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, fmt.Errorf("%w: it has no nfnetlink (%w); load nf_tables, or boot a kernel with CONFIG_NF_TABLES", ErrUnsupported, err)
	}
	if err != nil {
		return nil, os.NewSyscallError("socket of nfnetlink", err)
	}
	c := &conn{fd: fd, buffer: make([]byte, readBuffer)}
	if err := c.configure(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return c, nil
}

func (c *conn) configure() error {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBytes) != nil {
		_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBytes)
	}
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBytes) != nil {
		_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBytes)
	}
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	size, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return os.NewSyscallError("getsockopt of nfnetlink", err)
	}
	// The kernel refuses what is larger than the buffer less 32 bytes. It accounts for its own
	// structures too, so half of the size is sure.
	c.limit = size / 2
	timeout := unix.NsecToTimeval(int64(answerTime))
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return os.NewSyscallError("setsockopt of nfnetlink", err)
	}
	return os.NewSyscallError("bind of nfnetlink", unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

func (c *conn) close() error { return os.NewSyscallError("close of nfnetlink", unix.Close(c.fd)) }

func (c *conn) send(b []byte) error {
	for {
		err := unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("send to nf_tables", err)
		}
	}
}

// receive gives each message of the kernel's answers to show, until it returns false.
func (c *conn) receive(show func(h nlmsg.Header, body []byte) (more bool, err error)) error {
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("receive from nf_tables", err)
		}
		for rest := c.buffer[:n]; len(rest) > 0; {
			h, body, next, ok := nlmsg.Next(rest)
			if !ok {
				return errors.New("filter: a message of the kernel is cut")
			}
			if more, err := show(h, body); err != nil || !more {
				return err
			}
			rest = next
		}
	}
}

// kernelError is the error in a message of type NLMSG_ERROR, or nil if it confirms.
func kernelError(h nlmsg.Header, body []byte) error {
	if len(body) < 4 {
		return errors.New("filter: an error message of the kernel is cut")
	}
	code := int32(binary.NativeEndian.Uint32(body))
	if code == 0 {
		return nil
	}
	err := unix.Errno(-code)
	const message = 1 // NLMSGERR_ATTR_MSG
	var text string
	if h.Flags&unix.NLM_F_ACK_TLVS != 0 && h.Flags&unix.NLM_F_CAPPED != 0 && len(body) > 4+nlmsg.HeaderSize {
		nlmsg.Attrs(body[4+nlmsg.HeaderSize:], func(typ uint16, value []byte) {
			if typ == message && len(value) > 0 {
				text = string(value[:len(value)-1])
			}
		})
	}
	if text != "" {
		return fmt.Errorf("the kernel refuses it: %w (%s)", err, text)
	}
	return fmt.Errorf("the kernel refuses it: %w", err)
}

// transact sends messages as one transaction, if the generation of nf_tables is still gen.
// If the kernel refuses it, nothing of it is made: refused has the errors of single messages,
// if it names them, and err is not nil.
func (c *conn) transact(gen uint32, messages []message) (refused map[int]error, err error) {
	first := c.seq + 1
	begin := newMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES).
		number(unix.NFNL_BATCH_GENID, gen).end()
	end := newMessage(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES).end()
	size := len(begin) + len(end)
	for _, m := range messages {
		size += len(m)
	}
	b := slices.Grow(c.batch[:0], size)
	for i, m := range append(append([]message{begin}, messages...), end) {
		m.sequence(first + uint32(i))
		if i == len(messages) {
			binary.NativeEndian.PutUint16(m[6:], binary.NativeEndian.Uint16(m[6:])|unix.NLM_F_ACK)
		}
		b = append(b, m...)
	}
	if cap(b) <= maxTransaction*2 {
		c.batch = b
	}
	c.seq += uint32(len(messages)) + 2
	if len(b) > c.limit {
		return nil, fmt.Errorf("a transaction of %d bytes: %w; raise net.core.wmem_max", len(b), unix.EMSGSIZE)
	}
	if err := c.send(b); err != nil {
		return nil, err
	}
	refused = map[int]error{}
	receiveErr := c.receive(func(h nlmsg.Header, body []byte) (bool, error) {
		at := int32(h.Seq - first)
		if h.Type != unix.NLMSG_ERROR || at < 0 || int(at) > len(messages) {
			return true, nil
		}
		told := kernelError(h, body)
		if told == nil {
			return int(at) != len(messages), nil
		}
		err = told
		if at == 0 { // the transaction as a whole
			return false, nil
		}
		refused[int(at)-1] = told
		return int(at) != len(messages), nil
	})
	if receiveErr != nil {
		return nil, receiveErr
	}
	if err != nil {
		return refused, err
	}
	return nil, nil
}

// generation is the number of the last transaction of any program in this namespace.
func (c *conn) generation() (gen uint32, err error) {
	m := nftMessage(unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC).end()
	found := false
	err = c.ask(m, func(body []byte) {
		nlmsg.Attrs(body, func(typ uint16, value []byte) {
			if typ == unix.NFTA_GEN_ID && len(value) == 4 {
				gen, found = binary.BigEndian.Uint32(value), true
			}
		})
	})
	if err == nil && !found {
		err = errors.New("filter: nf_tables does not say its generation")
	}
	return gen, err
}

// ask sends one message and gives what is answered to show, without struct nfgenmsg. A
// dump's parts are each shown; errInterrupted says that they do not fit together.
func (c *conn) ask(m message, show func(body []byte)) error {
	c.seq++
	m.sequence(c.seq)
	dump := binary.NativeEndian.Uint16(m[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	if !dump {
		binary.NativeEndian.PutUint16(m[6:], binary.NativeEndian.Uint16(m[6:])|unix.NLM_F_ACK)
	}
	if err := c.send(m); err != nil {
		return err
	}
	interrupted := false
	err := c.receive(func(h nlmsg.Header, body []byte) (bool, error) {
		if h.Seq != c.seq {
			return true, nil
		}
		interrupted = interrupted || h.Flags&unix.NLM_F_DUMP_INTR != 0
		switch h.Type {
		case unix.NLMSG_DONE:
			if len(body) >= 4 && binary.NativeEndian.Uint32(body) != 0 {
				return false, kernelError(h, body)
			}
			return false, nil
		case unix.NLMSG_ERROR:
			return false, kernelError(h, body)
		}
		if len(body) >= nfgenSize {
			show(body[nfgenSize:])
		}
		return true, nil
	})
	if interrupted || errors.Is(err, unix.EINTR) {
		return errInterrupted
	}
	return err
}

// nfgenSize is the size of struct nfgenmsg in bytes (linux/netfilter/nfnetlink.h).
const nfgenSize = 4
