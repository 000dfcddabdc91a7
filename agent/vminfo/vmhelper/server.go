package vmhelper

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"sync"
	"time"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
)

// Bounds of a Server.
const (
	// MaxConnections bounds the open connections: an agent has at most maxOfProcess, and
	// `rutter vms status` one. At MaxRequest each they are 190 MiB.
	MaxConnections = 128
	// maxOfProcess bounds those of one process, so that none keeps the agent out.
	maxOfProcess = 48
	// requestWithin is how long a request may take to come, and answerWithin an answer to go.
	requestWithin = 5 * time.Second
	answerWithin  = 5 * time.Second
	// workWithin bounds the work of one request: a machine may take 45 s to shut down, and
	// 10 s each to end by QMP, by SIGKILL, and to leave its cgroup.
	workWithin = 2 * time.Minute
	// DefaultDrain is how long requests under way may take when the helper is to end.
	DefaultDrain = 10 * time.Second
	// acceptAgain is the pause after an accept that failed, for want of descriptors for one.
	acceptAgain = 100 * time.Millisecond
)

// Reasons for which connections and requests are refused, in Report.Refused.
const (
	refusedPeer    = "peer"
	refusedBound   = "connections"
	refusedProcess = "connections_of_process"
	refusedRequest = "request"
)

// ServerConfig configures a Server. Runner must be given.
type ServerConfig struct {
	Runner  *vmrun.Runner
	Version string // of this program
	// Drain is how long requests under way may take when Run's context has ended. 0:
	// DefaultDrain.
	Drain  time.Duration
	Logger *slog.Logger // nil discards
}

// Server runs VMs as its clients ask.
type Server struct {
	cfg   ServerConfig
	began time.Time

	mu      sync.Mutex // protects what follows
	open    int
	of      map[int32]int // connections of a process
	working int
	done    uint64
	failed  uint64
	refused map[string]uint64
}

// NewServer returns a server that has started nothing.
func NewServer(cfg ServerConfig) *Server {
	cfg.Drain = cmp.Or(cfg.Drain, DefaultDrain)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, began: time.Now(), of: make(map[int32]int), refused: make(map[string]uint64)}
}

// Run serves a Unix socket until ctx ends, closes it, and returns when what was asked for is
// done, or ServerConfig.Drain later. Error: the listener's.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var all sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	err := s.accept(ctx, listener, func(conn net.Conn, pid int32) {
		all.Go(func() {
			defer s.leave(pid)
			defer conn.Close()
			s.serve(ctx, work, conn, pid)
		})
	})
	late := time.AfterFunc(s.cfg.Drain, cancel)
	defer late.Stop()
	all.Wait()
	return err
}

// accept gives each connection that may be served to serve, until ctx ends.
func (s *Server) accept(ctx context.Context, listener net.Listener, serve func(net.Conn, int32)) error {
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			s.cfg.Logger.Warn("a connection could not be accepted", "error", err)
			select {
			case <-time.After(acceptAgain):
			case <-ctx.Done():
			}
			continue
		}
		pid, err := peerOf(conn)
		if err == nil {
			err = s.enter(pid)
		} else {
			s.refuse(refusedPeer)
		}
		if err != nil {
			send(conn, answer{Protocol: protocol, Version: s.cfg.Version, Error: remoteOf(err)}, 0)
			_ = conn.Close()
			continue
		}
		serve(conn, pid)
	}
}

// enter counts a connection of a process, unless that would exceed a bound: ErrBusy.
func (s *Server) enter(pid int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open >= MaxConnections:
		s.refused[refusedBound]++
		return ErrBusy
	case s.of[pid] >= maxOfProcess:
		s.refused[refusedProcess]++
		return ErrBusy
	}
	s.open++
	s.of[pid]++
	return nil
}

func (s *Server) leave(pid int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.of[pid]--; s.of[pid] == 0 {
		delete(s.of, pid)
	}
}

func (s *Server) refuse(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[reason]++
}

// send writes an answer. A client that does not read it is not waited for: within 0 means
// what fits into the socket.
func send(conn net.Conn, a answer, within time.Duration) {
	text, err := encode(a)
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(max(within, time.Millisecond)))
	_, _ = conn.Write(text) // the client has gone
}

// serve answers the one request of a connection. What a client that goes away has asked for
// is ended. After ctx no new work begins, and what is cut short by the end of work has no
// answer: the client asks the next helper.
func (s *Server) serve(ctx, work context.Context, conn net.Conn, pid int32) {
	_ = conn.SetReadDeadline(time.Now().Add(requestWithin))
	text, err := readMessage(conn, MaxRequest)
	if errors.Is(err, io.EOF) {
		return // it asks nothing
	}
	var asked request
	if err == nil {
		asked, err = decodeRequest(text)
	}
	reply := answer{Protocol: protocol, Version: s.cfg.Version}
	if err != nil {
		s.refuse(refusedRequest)
		s.cfg.Logger.Warn("a request was refused", "process", pid, "error", err)
		reply.Error = remoteOf(err)
		send(conn, reply, answerWithin)
		return
	}
	if asked.Act == actStatus {
		reply.Done, reply.Status = true, s.Report()
		send(conn, reply, answerWithin)
		return
	}
	if ctx.Err() != nil || hasEnded(conn) {
		return // of a client that has gone while this process stood still, nothing is done
	}
	within, cancel := context.WithTimeout(work, workWithin)
	defer cancel()
	_ = conn.SetReadDeadline(time.Time{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1)) // a client sends no more: this is its end
		cancel()
	}()
	defer func() {
		_ = conn.Close()
		<-gone
	}()
	reply.Done, err = s.work(within, asked, pid)
	if work.Err() != nil && err != nil {
		return
	}
	reply.Error = remoteOf(err)
	send(conn, reply, answerWithin)
}

// work does what a request about a VM asks for.
func (s *Server) work(ctx context.Context, asked request, pid int32) (done bool, err error) {
	s.mu.Lock()
	s.working++
	s.mu.Unlock()
	began := time.Now()
	done, err = s.do(ctx, asked)
	s.mu.Lock()
	s.working--
	s.done++
	if err != nil {
		s.failed++
	}
	s.mu.Unlock()
	if expected := errors.Is(err, vmrun.ErrRunning) || errors.Is(err, vmrun.ErrNotRunning); err != nil && !expected {
		s.cfg.Logger.Warn("a request failed", "act", asked.Act, "vm", asked.VM, "process", pid, "after", time.Since(began), "error", err)
	} else {
		s.cfg.Logger.Info("a request was done", "act", asked.Act, "vm", asked.VM, "process", pid, "after", time.Since(began))
	}
	return done, err
}

func (s *Server) do(ctx context.Context, asked request) (done bool, err error) {
	if asked.Folders != nil {
		if err := asked.Folders.differ(FoldersOf(s.cfg.Runner)); err != nil {
			return false, err
		}
	}
	run := s.cfg.Runner
	switch asked.Act {
	case actPrepare:
		err = run.Prepare(ctx, asked.VM)
	case actStart:
		err = run.Start(ctx, asked.VM)
	case actStop:
		err = run.Stop(ctx, asked.VM, asked.Force)
	case actRemove:
		err = run.Remove(ctx, asked.VM)
	case actCreate, actExchange:
		v, err := vmdoc.ParseValue(asked.Manifest)
		if err != nil {
			return false, err
		}
		if asked.Act == actExchange {
			return run.Exchange(asked.VM, vmrun.Digest(asked.Before), v)
		}
		err = run.Create(v)
		return err == nil, err
	}
	return err == nil, err
}

// Report returns what the helper says of itself.
func (s *Server) Report() *Report {
	r := &Report{Version: s.cfg.Version, PID: os.Getpid(), Since: s.began, Folders: FoldersOf(s.cfg.Runner)}
	var err error
	if r.QEMU, err = system.QEMU(); err != nil {
		r.QEMU = "none (" + err.Error() + ")"
	}
	if err := s.cfg.Runner.CheckCgroup(); err != nil {
		r.Trouble = append(r.Trouble, "it can start no VM: "+err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Open, r.Working, r.Done, r.Failed, r.Refused = s.open, s.working, s.done, s.failed, maps.Clone(s.refused)
	return r
}
