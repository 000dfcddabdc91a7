package vmmove

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
)

// every is the time between two pings.
const every = time.Millisecond

// maxPings bounds the pings of one pinger: a minute's.
const maxPings = 60_000

// replyWithin is how long the last ping's reply is awaited.
const replyWithin = 500 * time.Millisecond

// pinger sends an echo request each millisecond.
type pinger struct {
	to      netip.Addr
	fd      int
	sent    []time.Time // by number; written by the sender
	came    []atomic.Bool
	stopped chan struct{}
	ended   sync.WaitGroup
	done    atomic.Bool
}

// ping starts a pinger of an IPv4 address in a namespace. The caller must call stop.
func ping(from netlab.Namespace, to netip.Addr) (*pinger, error) {
	p := &pinger{to: to, came: make([]atomic.Bool, maxPings), stopped: make(chan struct{})}
	err := from.Do(func() (err error) {
		p.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		return err
	})
	if err != nil {
		return nil, err
	}
	wait := unix.NsecToTimeval(int64(50 * time.Millisecond)) // so that receive sees that it is done
	if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		unix.Close(p.fd)
		return nil, err
	}
	p.ended.Go(p.send)
	p.ended.Go(p.receive)
	return p, nil
}

// echoOf is an ICMP echo request with a number.
func echoOf(number int) []byte {
	b := make([]byte, 8+56)
	b[0] = 8 // echo request, RFC 792
	binary.BigEndian.PutUint16(b[4:], 0x5275)
	binary.BigEndian.PutUint16(b[6:], uint16(number))
	binary.BigEndian.PutUint32(b[8:], uint32(number))
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	return b
}

func (p *pinger) send() {
	to := &unix.SockaddrInet4{Addr: p.to.As4()}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for len(p.sent) < maxPings {
		select {
		case <-p.stopped:
			return
		case <-tick.C:
		}
		b := echoOf(len(p.sent))
		p.sent = append(p.sent, time.Now())
		_ = unix.Sendto(p.fd, b, 0, to) // one that the kernel refuses is lost too
	}
}

func (p *pinger) receive() {
	b := make([]byte, 2048)
	for !p.done.Load() {
		n, _, err := unix.Recvfrom(p.fd, b, 0)
		if err != nil {
			if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				return
			}
			continue
		}
		if got := b[:n]; n >= 32 && got[20] == 0 && binary.BigEndian.Uint16(got[24:]) == 0x5275 { // behind the IPv4 header: an echo reply
			if number := binary.BigEndian.Uint32(got[28:]); number < maxPings {
				p.came[number].Store(true)
			}
		}
	}
}

// stop ends the pings of all, and waits for replies that are on their way.
func stop(pingers map[int]*pinger) {
	for _, p := range pingers {
		close(p.stopped)
	}
	time.Sleep(replyWithin)
	for _, p := range pingers {
		p.done.Store(true)
		p.ended.Wait()
		unix.Close(p.fd)
	}
}

// lost counts the pings that were sent at a time or later and had no reply. It is called
// after stop.
func (p *pinger) lost(since time.Time) (n int) {
	for i, at := range p.sent {
		if !at.Before(since) && !p.came[i].Load() {
			n++
		}
	}
	return n
}

// lostFor is the time from the first ping to the last one that was sent at a time or later and had no
// reply. It is called after stop.
func (p *pinger) lostFor(since time.Time) time.Duration {
	var first, last time.Time
	for i, at := range p.sent {
		if at.Before(since) || p.came[i].Load() {
			continue
		}
		if first.IsZero() {
			first = at
		}
		last = at
	}
	if first.IsZero() {
		return 0
	}
	return last.Sub(first) + every
}
