package cnapi

import (
	"context"
	"net/http"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// What is said of objects that the log does not have, in CNAPI's words.
const (
	noServer = "server not found"
	noTask   = "no such task found"
)

// server returns a server of the log, or nil; task and ticket likewise.
func (s *Service) server(id log.UUID) *log.Server { return object[*log.Server](s, log.KindServer, id) }

func (s *Service) task(id log.UUID) *log.Task { return object[*log.Task](s, log.KindTask, id) }

func (s *Service) ticket(id log.UUID) *log.Ticket { return object[*log.Ticket](s, log.KindTicket, id) }

// needServer returns the server that the path names, or the answer that there is
// none; needTask and needTicket likewise.
func (s *Service) needServer(r *http.Request) (*log.Server, error) {
	return need[*log.Server](s, r, log.KindServer, "server", noServer, nil)
}

func (s *Service) needTask(r *http.Request) (*log.Task, error) {
	return need[*log.Task](s, r, log.KindTask, "task", noTask, nil)
}

func (s *Service) needTicket(r *http.Request) (*log.Ticket, error) {
	return need[*log.Ticket](s, r, log.KindTicket, "ticket", "ticket "+strings.ToLower(r.PathValue("ticket"))+" not found", nil)
}

// object returns an object of the log; nil if it is not there.
func object[T log.Object](s *Service, kind log.Kind, id log.UUID) (o T) {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(kind, id.String()); ok {
			o = rec.Object.(T)
		}
	})
	return o
}

// need returns the object that a wildcard of the path names, if is, which may be nil,
// accepts it; else the error says that there is none. If it is missing, need looks
// again after this server has applied everything acknowledged elsewhere, because
// another server may just have made it.
func need[T interface {
	comparable
	log.Object
}](s *Service, r *http.Request, kind log.Kind, wildcard, none string, is func(T) bool,
) (o T, err error) {
	var nothing T
	id, err := pathID(r, wildcard)
	if err != nil {
		return nothing, err
	}
	found := func() bool {
		o = object[T](s, kind, id)
		return o != nothing && (is == nil || is(o))
	}
	if found() {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), proposeTime)
	defer cancel()
	if _, err := s.store.Consistent(ctx); err != nil {
		return nothing, failure(http.StatusServiceUnavailable, rest.CodeUnavailable, "whether it exists cannot be said now: %v", err)
	}
	if found() {
		return o, nil
	}
	return nothing, notFound("%s", none)
}
