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

// HelloOf returns the hello of a CN that is at a seq and holds its present interest.
func (s *Server) HelloOf(cn log.UUID, after log.Seq) (*feed.Hello, error) {
	hello := &feed.Hello{Version: feed.Version, CN: cn}
	head := s.store.Head()
	hello.Cursor = log.Cursor{Cluster: head.Cluster, Seq: after, Chain: head.Chain}
	if after < head.Seq {
		// The entry at that seq carries its chain hash.
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
// until fn returns false, ctx ends, or the stream does. It makes no session. It leaves
// out messages of unknown types.
func (s *Server) Observe(ctx context.Context, hello *feed.Hello, fn func(feed.Message) bool) {
	near, far := net.Pipe()
	u := newSubscriber(&s.parts, far, matrix.Identity{Role: matrix.CN, UUID: hello.CN}, hello)
	u.join()
	defer func() {
		near.Close()
		u.task.wake(wakeEnd)
		<-u.over // its last frame has the reason
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
			continue // an observer does not need it
		}
		if !fn(m) {
			return
		}
	}
}
