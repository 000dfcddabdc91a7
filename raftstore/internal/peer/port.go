package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
)

// FirstByteWait bounds the wait for the first byte of an accepted connection.
const FirstByteWait = 5 * time.Second

// Port is the peer port: it accepts connections, and passes each to the handler of its
// purpose; and it dials other servers. It is the raft.StreamLayer of raft.
type Port struct {
	opts     PortOptions
	raft     chan net.Conn
	loggedAt atomic.Int64    // when a server of another cluster was last logged, in Unix ns
	ctx      context.Context // done when the run that the port serves ends
	done     chan struct{}
	once     sync.Once
}

// PortOptions are the options of a Port. All must be set.
type PortOptions struct {
	Listener net.Listener
	Dial     func(ctx context.Context, address string) (net.Conn, error)
	Address  string // what the others dial
	Tasks    *Tasks
	// Cluster returns the server's cluster id; zero as long as it has none.
	Cluster func() log.UUID
	// Note returns the note of the server's greeting, or nil. The first programs do not
	// understand a note.
	Note func() ([]byte, error)
	// Admit decides on a server of this cluster, or of none, that dials for raft. False
	// refuses it; an error means that its note cannot be read.
	Admit func(from net.Addr, cluster log.UUID, note []byte) (bool, error)
	// Requests and Image serve, and close, a connection for requests, or for one image.
	Requests, Image func(net.Conn)
	Logger          *slog.Logger
}

// NewPort returns a port that dials until ctx is done. The caller must call Run.
func NewPort(ctx context.Context, opts PortOptions) *Port {
	return &Port{opts: opts, raft: make(chan net.Conn), ctx: ctx, done: make(chan struct{})}
}

// addr is an address as peers dial it.
type addr string

// Network implements net.Addr.
func (addr) Network() string { return "tcp" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }

// Run accepts until the listener is closed.
func (p *Port) Run() error {
	for {
		conn, err := p.opts.Listener.Accept()
		if err != nil {
			select {
			case <-p.done:
				return nil
			default:
			}
			var temporary net.Error
			if errors.As(err, &temporary) && temporary.Timeout() {
				continue
			}
			return fmt.Errorf("peer port %s: accept: %w", p.opts.Address, err)
		}
		if !p.opts.Tasks.adopt(conn, p.opts.Logger) {
			continue
		}
		tracked := &trackedConn{Conn: conn, tasks: p.opts.Tasks}
		if !p.opts.Tasks.Start(func() { p.sort(tracked) }) {
			tracked.Close()
		}
	}
}

// sort reads the first byte of a connection and passes the connection to its handler.
func (p *Port) sort(conn net.Conn) {
	var first [1]byte
	_ = conn.SetReadDeadline(time.Now().Add(FirstByteWait))
	if _, err := conn.Read(first[:]); err != nil {
		conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	switch first[0] {
	case streamRaft, streamNote:
		if !p.sameCluster(conn, first[0]) {
			conn.Close()
			return
		}
		select {
		case p.raft <- conn:
		case <-p.done:
			conn.Close()
		}
	case streamPeer:
		p.opts.Requests(conn)
	case streamImage:
		p.opts.Image(conn)
	default:
		conn.Close()
	}
}

// strangerPause is the least time between two log messages about servers of another
// cluster, which connect again and again.
const strangerPause = 10 * time.Second

// sameCluster reads the dialler's greeting, and reports whether its cluster is this one,
// or one of the two servers has none yet. A server that a recovery left behind, or the
// old owner of an address, must not send raft requests to this server: raft itself does
// not know clusters, and would accept an old leader of a higher term.
func (p *Port) sameCluster(conn net.Conn, sort byte) bool {
	var theirs log.UUID
	_ = conn.SetReadDeadline(time.Now().Add(FirstByteWait))
	if _, err := io.ReadFull(conn, theirs[:]); err != nil {
		return false
	}
	_ = conn.SetReadDeadline(time.Time{})
	note, err := readNote(conn, sort)
	if err != nil {
		p.opts.Logger.Warn("refusing a server whose greeting cannot be read", "peer", conn.RemoteAddr(), "error", err)
		return false
	}
	ours := p.opts.Cluster()
	if ours.IsZero() || theirs.IsZero() || ours == theirs {
		ok, err := p.opts.Admit(conn.RemoteAddr(), theirs, note)
		if err != nil {
			p.opts.Logger.Warn("refusing a server whose greeting cannot be read", "peer", conn.RemoteAddr(), "error", err)
		}
		return ok && err == nil
	}
	now := time.Now().UnixNano()
	if last := p.loggedAt.Load(); now-last > int64(strangerPause) && p.loggedAt.CompareAndSwap(last, now) {
		p.opts.Logger.Warn("refusing a server of another cluster; stop it, or empty its data folder and let it join", "peer", conn.RemoteAddr(), "its_cluster", theirs, "our_cluster", ours)
	}
	return false
}

// dial opens a connection of a purpose to a peer.
func (p *Port) dial(ctx context.Context, address string, sort byte) (net.Conn, error) {
	conn, err := p.opts.Dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("peer %s: %w", address, err)
	}
	if !p.opts.Tasks.adopt(conn, p.opts.Logger) {
		return nil, ErrStopped
	}
	tracked := &trackedConn{Conn: conn, tasks: p.opts.Tasks}
	first := []byte{sort}
	if sort == streamRaft {
		note, err := p.opts.Note()
		if err != nil {
			tracked.Close()
			return nil, err
		}
		first = Greeting(p.opts.Cluster(), note)
	}
	if _, err := tracked.Write(first); err != nil {
		tracked.Close()
		return nil, fmt.Errorf("peer %s: %w", address, err)
	}
	return tracked, nil
}

// Dial implements raft.StreamLayer.
func (p *Port) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	return p.dial(ctx, string(address), streamRaft)
}

// Accept implements net.Listener for raft.
func (p *Port) Accept() (net.Conn, error) {
	select {
	case conn := <-p.raft:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Port) Close() error {
	var err error
	p.once.Do(func() {
		close(p.done)
		err = p.opts.Listener.Close()
	})
	return err
}

// Addr implements net.Listener. It returns the address that the others dial.
func (p *Port) Addr() net.Addr { return addr(p.opts.Address) }
