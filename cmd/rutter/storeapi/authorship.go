package storeapi

import (
	"context"
	"fmt"
	"net/http"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// SurfaceStore is the store as the surfaces of old programs, and what takes
// reports, have it: a change that they make for somebody has that one's author,
// whatever they say, and is decided as such in the log's order. What they do by
// themselves is no operator's.
type SurfaceStore struct{ Store }

// Propose implements the surfaces' Store.
func (s SurfaceStore) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	c.By = log.Author{Role: log.RoleForeign}
	if who, ok := matrix.From(ctx); ok {
		c.By = who.Author()
	}
	return s.Store.Propose(ctx, c)
}

// ActorOf names who asks a surface.
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
