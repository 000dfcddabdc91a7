package feedserver

import (
	"bufio"
	"context"
	"net"

	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// HelloOf is what a CN would say that is at a seq and holds its interest of now.
func (s *Server) HelloOf(cn log.UUID, after log.Seq) (*feed.Hello, error) {
	hello := &feed.Hello{Version: feed.Version, CN: cn}
	head := s.store.Head()
	hello.Cursor = log.Cursor{Cluster: head.Cluster, Seq: after, Chain: head.Chain}
	if after < head.Seq {
		// The chain at a seq is carried by the entry there.
		hello.Cursor.Chain = log.ChainPrefix{}
		if after > s.store.Floor() {
			entries, err := s.tail.After(after - 1)
			if err != nil {
				return nil, err
			}
			hello.Cursor.Chain = entries[0].Hash.Prefix()
		}
	}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for _, scope := range state.Interest(cn) {
			hello.Scopes = append(hello.Scopes, feed.HeldScope{Scope: scope, AsOf: after})
		}
	})
	return hello, nil
}

// Observe calls fn with each message that the CN of a hello would be sent, in order,
// until fn returns false, ctx ends, or the stream does. It makes no session. Messages of
// types that are not known are left out.
func (s *Server) Observe(ctx context.Context, hello *feed.Hello, fn func(feed.Message) bool) {
	near, far := net.Pipe()
	u := newSubscriber(&s.parts, far, matrix.Identity{Role: matrix.CN, UUID: hello.CN}, hello)
	u.join()
	defer func() {
		near.Close()
		u.task.wake(wakeEnd)
		<-u.over // its last frame says why
	}()
	stop := context.AfterFunc(ctx, func() { near.Close() })
	defer stop()
	reader := feed.NewReader(bufio.NewReader(near))
	for {
		f, err := reader.Next()
		if err != nil {
			return
		}
		m, err := feed.Decode(f)
		if err != nil {
			continue // of no use to an observer
		}
		if !fn(m) {
			return
		}
	}
}
