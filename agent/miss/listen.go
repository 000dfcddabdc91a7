package miss

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// MaxBatch is how many misses a Resolver gets at once, at most: enough for one
	// sendmsg that answers all, and few enough that the first waits for less than 1 ms.
	MaxBatch = 64
	// bufferBytes is the receive buffer for neighbours in bytes; the default holds 257
	// messages (spec/kernel.md section 4). Without CAP_NET_ADMIN in the first user
	// namespace the kernel grants at most net.core.rmem_max.
	bufferBytes = 8 << 20
	// forwardBytes is the same for MACs. It is small, because each packet makes a
	// message, so a message without room is not really lost.
	forwardBytes = 256 << 10
	// forwardPause is the pause after a full batch of MACs. It limits the rate to
	// MaxBatch per forwardPause, because a flood to an unused MAC makes 280,000
	// messages a second.
	forwardPause = 2 * time.Millisecond
	// datagramBytes holds any of the messages; they have about 100 bytes.
	datagramBytes = 4 << 10
)

// Resolver answers misses. Its methods are called by one goroutine at a time. They may
// pass a question on and return. The kernel repeats an unanswered neighbour once a
// second while packets to it are sent.
type Resolver interface {
	// Resolve answers some misses, at most MaxBatch. The slice is reused.
	Resolve(ctx context.Context, misses []Miss)
	// Lost reports that misses were lost because there were too many at once. Pending
	// reads them, in each namespace.
	Lost(ctx context.Context)
}

// Config configures a Listener.
type Config struct {
	// Namespace is the file of the network namespace to listen in. Default: that of the
	// calling thread.
	Namespace string
	// Proxy also requests misses of that kind, which only untagged stacks have, and
	// which come beside those of kind Neighbour.
	Proxy bool
	// Buffer is the receive buffer for neighbours, in bytes; misses without room are
	// lost, and read by Pending. Default 8 MiB.
	Buffer int
}

// Listener receives misses. It must be closed.
type Listener struct {
	neighbours, forwards *os.File
	all                  bool
}

// Listen begins to receive: misses from now on wait for Run. It needs no privilege in
// the namespace's own user namespace, except CAP_NET_BROADCAST to receive from other
// namespaces (see All).
func Listen(cfg Config) (*Listener, error) {
	l := &Listener{}
	var err error
	if l.neighbours, err = socket(cfg.Namespace, cmp.Or(cfg.Buffer, bufferBytes), neighbourFilter(cfg.Proxy)); err != nil {
		return nil, fmt.Errorf("miss: listen for neighbours: %w", err)
	}
	raw, err := l.neighbours.SyscallConn()
	if err == nil {
		// The kernel walks the numbers of all namespaces for each notification of each such
		// socket, before its filter. VXLAN devices are in this namespace, so that the
		// other socket needs none of them.
		err = raw.Control(func(fd uintptr) {
			l.all = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1) == nil
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("miss: listen for neighbours: %w", err), l.neighbours.Close())
	}
	if l.forwards, err = socket(cfg.Namespace, forwardBytes, forwardFilter()); err != nil {
		return nil, errors.Join(fmt.Errorf("miss: listen for MACs: %w", err), l.neighbours.Close())
	}
	return l, nil
}

// All reports whether misses of neighbours are received from all namespaces that this
// one has a number for (NETLINK_LISTEN_ALL_NSID). If not, each needs a Listener. MACs are
// received from this namespace only: it has the VXLAN devices.
func (l *Listener) All() bool { return l.all }

// Close frees the sockets. Run must have returned.
func (l *Listener) Close() error { return errors.Join(l.neighbours.Close(), l.forwards.Close()) }

// Run passes the misses to r, until ctx ends, and then returns ctx's error.
func (l *Listener) Run(ctx context.Context, r Resolver) error {
	var one sync.Mutex // r is called by one at a time
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return (&reader{socket: l.neighbours, one: &one}).run(ctx, r) })
	g.Go(func() error {
		return (&reader{socket: l.forwards, one: &one, pause: forwardPause, lossless: true}).run(ctx, r)
	})
	return g.Wait()
}

// reader reads one socket.
type reader struct {
	socket   *os.File
	one      *sync.Mutex
	pause    time.Duration // after a full batch
	lossless bool          // a miss without room will come again
}

func (r *reader) run(ctx context.Context, to Resolver) error {
	if err := r.socket.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("miss: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = r.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := r.socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("miss: %w", err)
	}
	b := batch{datagram: make([]byte, datagramBytes), control: make([]byte, unix.CmsgSpace(4)), misses: make([]Miss, 0, MaxBatch)}
	for {
		err := raw.Read(b.fill)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err = errors.Join(err, b.err); err != nil {
			return fmt.Errorf("miss: receive: %w", err)
		}
		r.one.Lock()
		if b.lost && !r.lossless {
			to.Lost(ctx)
		}
		if len(b.misses) > 0 {
			to.Resolve(ctx, b.misses)
		}
		r.one.Unlock()
		if r.pause > 0 && len(b.misses) == MaxBatch {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(r.pause):
			}
		}
	}
}

// batch has the misses of one read.
type batch struct {
	datagram, control []byte
	misses            []Miss
	lost              bool
	err               error
}

// fill reads up to MaxBatch misses, and reports false if there are none yet.
func (b *batch) fill(fd uintptr) bool {
	b.misses, b.lost, b.err = b.misses[:0], false, nil
	for len(b.misses) < MaxBatch {
		n, cn, _, _, err := unix.Recvmsg(int(fd), b.datagram, b.control, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return b.lost || len(b.misses) > 0
		case errors.Is(err, unix.ENOBUFS):
			b.lost = true
			continue
		case err != nil:
			b.err = err
			return true
		}
		b.misses = parse(b.misses, b.datagram[:n], namespaceOf(b.control[:cn]))
	}
	return true
}

// namespaceOf reads the number of the namespace that a message came from
// (control message NETLINK_LISTEN_ALL_NSID of SOL_NETLINK, linux/af_netlink.c).
func namespaceOf(control []byte) int32 {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return OwnNamespace
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
			return int32(native.Uint32(m.Data))
		}
	}
	return OwnNamespace
}
