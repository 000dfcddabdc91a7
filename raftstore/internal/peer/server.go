package peer

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
)

// maxRequests bounds the requests of all peers that are executed at once. Beyond it,
// connections are not read.
const maxRequests = 4096

// Server answers the requests of peers.
type Server struct {
	tasks  *Tasks
	answer func(ctx context.Context, f Frame) Frame
	logger *slog.Logger
	slots  chan struct{}
}

// NewServer returns a server. answer computes the answer of each request, in a goroutine
// of its own.
func NewServer(tasks *Tasks, logger *slog.Logger, answer func(ctx context.Context, f Frame) Frame) *Server {
	return &Server{tasks: tasks, answer: answer, logger: logger, slots: make(chan struct{}, maxRequests)}
}

// Serve answers the requests of one connection until it ends.
func (s *Server) Serve(ctx context.Context, conn net.Conn) {
	out := newSender(conn)
	defer out.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.tasks.Start(out.run) {
		return
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				s.logger.Debug("peer connection ended", "peer", conn.RemoteAddr(), "error", err)
			}
			return
		}
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		started := s.tasks.Start(func() {
			defer func() { <-s.slots }()
			out.send(ctx, s.answer(ctx, f))
		})
		if !started {
			return
		}
	}
}
