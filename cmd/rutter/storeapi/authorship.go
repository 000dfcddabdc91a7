package storeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/raftstore"
)

// SurfaceStore is the store for Triton's surfaces and for reports. A change that they
// make for a client gets that client as its author, and the rights of that author are
// decided in the log's order. A change that they make on their own is not an
// operator's.
type SurfaceStore struct{ Store }

// Propose implements the surfaces' Store.
func (s SurfaceStore) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	c.By = log.Author{Role: log.RoleForeign}
	if who, ok := matrix.From(ctx); ok {
		c.By = who.Author()
	}
	return s.Store.Propose(ctx, c)
}

// leaderWithin is how long AwaitReady waits for a leader. After the end of the leader's
// process there is another within milliseconds, after a partition within a second or two.
const leaderWithin = 3 * time.Second

// AwaitReady returns what Ready does, except that it waits leaderWithin for a leader, or
// until ctx ends. Triton's programs do not ask again: a job of theirs fails by one 503 that
// it gets between two leaders. Probes use Ready, which answers at once.
func (s SurfaceStore) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaderWithin)
	defer cancel()
	return awaitLeader(ctx, s.Store.Ready)
}

// awaitLeader returns what ready does, but raftstore.ErrNoLeader only when ctx has ended.
func awaitLeader(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if !errors.Is(err, raftstore.ErrNoLeader) {
			return err
		}
		select {
		case <-time.After(leaderPause):
		case <-ctx.Done():
			return err
		}
	}
}

// leaderPause is how often it is looked whether there is a leader.
const leaderPause = 5 * time.Millisecond

// ActorOf returns the actor of a request to a surface.
func ActorOf(r *http.Request) string {
	who, ok := matrix.From(r.Context())
	if !ok {
		return "anonymous@" + r.RemoteAddr
	}
	return who.Actor()
}

// SpeaksFor reports why the sender of a request may not speak for a compute node,
// or nil.
func SpeaksFor(r *http.Request, cn log.UUID) error {
	who, ok := matrix.From(r.Context())
	if ok && (who.Role == matrix.Local || who.Role == matrix.CN && who.UUID == cn) {
		return nil
	}
	return fmt.Errorf("%s may not speak for compute node %s: it takes the certificate of that node", who.Actor(), cn)
}

// IsCN reports whether the sender of a request is a compute node by its certificate.
func IsCN(r *http.Request) bool {
	who, ok := matrix.From(r.Context())
	return ok && who.Role == matrix.CN
}
