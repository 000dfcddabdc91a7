package writestream

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"rutter/api/auth/audit"
	"rutter/api/auth/guard"
	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/intake"
)

// Streams are the write streams of a server.
type Streams struct {
	store        backend.Store
	guard        *guard.Guard
	logger       *slog.Logger
	acknowledged *rest.Acknowledged
	draining     <-chan struct{}
	enter        func() (done func(), err error) // counts a stream
}

// New returns the routes of write streams. enter takes a slot for a stream, or returns
// the answer if there is none; done gives it back. When draining is closed, the streams
// end in order. Written changes are recorded in acknowledged.
func New(store backend.Store, g *guard.Guard, logger *slog.Logger, acknowledged *rest.Acknowledged, draining <-chan struct{}, enter func() (done func(), err error)) *Streams {
	return &Streams{store: store, guard: g, logger: logger, acknowledged: acknowledged, draining: draining, enter: enter}
}

// Routes are those of /write.
func (s *Streams) Routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: intake.Path, Serve: s.serve},
		{Method: "POST", Pattern: intake.Path, Serve: s.serve},
	}
}

// serve answers GET and POST /write: the connection becomes a write stream
// (package log/intake).
func (s *Streams) serve(w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), intake.Protocol) || !strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") {
		w.Header().Set("Upgrade", intake.Protocol)
		return rest.Fail(http.StatusUpgradeRequired, rest.CodeBadRequest, "send Connection: Upgrade and Upgrade: "+intake.Protocol+", or use POST /changes", "writing here is a stream of frames")
	}
	if err := s.store.Ready(); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotReady, "try another server", "this server takes no changes yet: %v", err)
	}
	done, err := s.enter()
	if err != nil {
		return err
	}
	defer done()
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return rest.Fail(http.StatusInternalServerError, rest.CodeInternal, "connect without a proxy that speaks HTTP/2", "the connection cannot be upgraded: %v", err)
	}
	defer conn.Close()
	if seen, ok := w.(*rest.Recorder); ok {
		seen.Status = http.StatusSwitchingProtocols
	}
	u := newWriteStream(s, conn, s.guard.Actor(r), guard.GrantOf(r).Who)
	if err := u.serve(r.Context(), rw.Reader); err != nil {
		s.logger.Info("write stream ended", "remote", conn.RemoteAddr().String(), "error", err)
	}
	return nil
}

// noteBudget records that a budget refused a change, if err says so, and makes the
// stream's reader rest. Meanwhile the client's data stays in its socket.
func (u *writeStream) noteBudget(err error) {
	exceeded := rest.ExceededOf(err)
	if exceeded == nil || u.over.Swap(true) {
		return
	}
	u.s.guard.CountLimit(guard.LimitBudget)
	u.s.guard.Note(audit.Record{Event: audit.Limited, Actor: u.actor, Serial: u.who.Serial, Remote: u.conn.RemoteAddr().String(), Asked: string(exceeded.Name)})
}

// restOver rests if a budget was used up by earlier changes.
func (u *writeStream) restOver(ctx context.Context) error {
	if !u.over.Swap(false) {
		return nil
	}
	return u.rest(ctx, guard.LimitedPause)
}

// failedOf returns the frame for a change that was not decided.
func failedOf(id log.UUID, err error) intake.Failed {
	f := intake.Failed{ChangeID: id, Code: codeOf(err), Text: err.Error()}
	if exceeded := rest.ExceededOf(err); exceeded != nil {
		f.After, f.Text = exceeded.Wait, exceeded.Error()
	}
	return f
}

// codeOf returns the code on the wire for a change that was not decided.
func codeOf(err error) intake.Code {
	var answer *rest.Error
	switch {
	case errors.Is(err, backend.ErrUnknown):
		return intake.CodeUnknown
	case rest.ExceededOf(err) != nil:
		return intake.CodeBudget
	case errors.Is(err, backend.ErrOverloaded), errors.Is(err, backend.ErrClock):
		return intake.CodeOverloaded
	case errors.Is(err, backend.ErrNoLeader):
		return intake.CodeNoLeader
	case errors.Is(err, log.ErrNoRoom):
		return intake.CodeNoRoom
	case errors.Is(err, log.ErrTooLarge), errors.As(err, &answer):
		return intake.CodeBad
	}
	return intake.CodeUnknown
}
