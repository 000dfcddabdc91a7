// Package nodes has the HTTP routes about compute nodes (CNs): their feed, their
// sessions, what they hold back, what they would be sent, what they say of themselves, how
// far they are with the links of a vnet, and the wait until they have programmed a change.
//
// It owns the paths /feed, /cns, /vnets and /wait with their forms. The stream itself is left
// to package feedserver, sessions and their status to package liveness, requests to a
// CN to package vmm.
//
// New and NewBarrier start nothing. A connection of the feed outlives its request:
// feedserver.Server.Wait returns when all have ended.
package nodes

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"rutter/api/auth/guard"
	"rutter/api/feedserver"
	"rutter/api/internal/logread"
	"rutter/api/internal/logserver"
	"rutter/api/internal/rest"
	"rutter/api/liveness"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/naming"
)

// Store is the log and its state, as this package reads them.
type Store interface {
	logserver.Store
	// WaitSeq returns when this server has applied seq, or ctx ends.
	WaitSeq(ctx context.Context, seq log.Seq) error
	// Ready is nil when this server can serve: it has caught up with a leader.
	Ready() error
}

// Fabric knows the sessions of all servers; *liveness.Fabric implements it.
type Fabric interface {
	// Wait waits until each CN that is interested has programmed a seq.
	Wait(ctx context.Context, q liveness.Query) (liveness.Verdict, error)
	// List returns the newest session of each CN, wherever it is.
	List(ctx context.Context) ([]liveness.Known, error)
}

// Config configures Routes and a Barrier. All fields except VMMs and Fabric are
// required.
type Config struct {
	Store   Store
	Tail    *logread.Tail // of Store
	Feed    *feedserver.Server
	VMMs    *vmm.Service // nil: CNs are not asked
	Fabric  Fabric       // nil: only sessions with this server are known, and there are no barriers
	Logger  *slog.Logger
	Guard   *guard.Guard
	Streams *guard.Streams // of all kinds
	// ServerID returns the id of this server.
	ServerID func() string
	// Fresh waits as a query's consistent and min_seq ask.
	Fresh func(*http.Request, rest.Parameters) error
	// Named returns the one object of a kind that a text names; see backend.Reader.
	Named func(w http.ResponseWriter, r *http.Request, p rest.Parameters, kind log.Kind, text string) (naming.Match, error)
	// ViewAt calls fn with the state that a query's at asks for. The state has at least
	// the server object of one CN, or of all if cn is zero.
	ViewAt func(w http.ResponseWriter, r *http.Request, p rest.Parameters, cn log.UUID, fn func(*projections.State)) error
}

// Routes answers requests about CNs.
type Routes struct {
	cfg   Config
	store Store // of cfg
	// kernelAsks has a token for each request that asks CNs for their kernels.
	kernelAsks chan struct{}
}

// New returns Routes.
func New(cfg Config) *Routes {
	return &Routes{cfg: cfg, store: cfg.Store, kernelAsks: make(chan struct{}, maxKernelAsks)}
}

// Routes are the paths of CNs.
func (s *Routes) Routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/feed", Serve: s.feed},
		{Method: "GET", Pattern: "/cns", Serve: s.list},
		{Method: "GET", Pattern: "/cns/{id}", Serve: s.get},
		{Method: "POST", Pattern: "/cns/{id}/accept", Serve: s.accept},
		{Method: "GET", Pattern: "/cns/{id}/feed", Serve: s.observe},
		{Method: "GET", Pattern: "/cns/{id}/status", Serve: s.status},
		{Method: "GET", Pattern: "/vnets/{vnet}", Serve: s.vnet},
	}
}

// pathCN is the CN that a path names: by its UUID, or as people know its server object.
func (s *Routes) pathCN(w http.ResponseWriter, r *http.Request) (log.UUID, error) {
	m, err := s.cfg.Named(w, r, rest.Parameters{}, log.KindServer, r.PathValue("id"))
	if err != nil {
		return log.UUID{}, err
	}
	return log.ParseUUID(m.ID)
}

// CodeUnreachable is the answer when a CN cannot be asked.
const CodeUnreachable = "ComputeNodeUnreachable" // 504

// VMMError converts an error of package vmm into an answer. A CN's answer to a bad
// request is passed on unchanged.
func VMMError(err error) error {
	var answer *vmm.AnswerError
	switch {
	case errors.As(err, &answer) && answer.Status >= 400 && answer.Status < 500:
		return rest.Fail(answer.Status, answer.Code, "", "%s", answer.Message)
	case errors.As(err, &answer):
		return rest.Fail(http.StatusBadGateway, CodeUnreachable, "try again; see the agent's log", "%v", err)
	case errors.Is(err, vmm.ErrUnknown):
		return rest.NotFound("vmm")
	case errors.Is(err, vmm.ErrBusy):
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "ring again later", "%v", err)
	case errors.Is(err, vmm.ErrUnreachable):
		return rest.Fail(http.StatusGatewayTimeout, CodeUnreachable, "read the VMM before trying again: it may have been done", "%v", err)
	}
	return err
}
