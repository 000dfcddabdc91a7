package nodes

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/auth/guard"
	"rutter/api/internal/rest"
	"rutter/api/support"
	"rutter/log"
	"rutter/log/feed"
)

// Bounds of the parts of support bundles that are asked of CNs, and why.
const (
	// maxSupportAsks bounds the parts that are fetched from CNs at once: each takes up to
	// support.MaxPacked and support.MaxPart of memory.
	maxSupportAsks = 4
	// supportTime bounds one part, of up to 64 pages; it is less than an answer may take.
	supportTime = 15 * time.Second
	// pageTime bounds one page. The first page takes support.PartTime at most.
	pageTime = support.PartTime + time.Second
)

// errSilent: a CN does not answer.
var errSilent = errors.New("it does not answer: no server has a session of it, or it is late")

// support answers GET /cns/ID/support/PART: what the agent of a CN says of itself, asked
// over its session. Nothing of its answers is trusted. Each answer is recorded in the audit
// log.
func (s *Routes) support(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	if s.cfg.VMMs == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server asks no compute nodes")
	}
	cn, err := s.pathCN(w, r)
	if err != nil {
		return err
	}
	part := r.PathValue("part")
	if len(part) > 32 {
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "ask for logs, settings, goroutines, heap, runtime, status or metrics", "an agent has no such part")
	}
	select {
	case s.supportAsks <- struct{}{}:
		defer func() { <-s.supportAsks }()
	default:
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "try again", "this server fetches %d parts of compute nodes, as many as it may at once", maxSupportAsks)
	}
	who := guard.GrantOf(r).Who
	s.cfg.Guard.Note(audit.Record{Event: audit.Inspected, Actor: who.Actor(), Serial: who.Serial, Remote: r.RemoteAddr, Asked: r.Method + " " + r.URL.Path})
	ctx, cancel := context.WithTimeout(r.Context(), supportTime)
	defer cancel()
	text, err := support.Fetch(ctx, part, func(ctx context.Context, path string) (int, []byte, error) {
		ctx, cancel := context.WithTimeout(ctx, pageTime)
		defer cancel()
		answer, err := s.cfg.VMMs.AskConnected(ctx, cn, &feed.Request{Method: http.MethodGet, Path: path})
		if err != nil {
			return 0, nil, errSilent
		}
		return int(answer.Status), answer.Body, nil
	})
	if err != nil && !errors.Is(err, errSilent) {
		return rest.Fail(http.StatusBadGateway, CodeUnreachable, "see the agent's log", "CN %s: %v", cn, err)
	}
	if err != nil {
		return rest.Fail(http.StatusGatewayTimeout, CodeUnreachable, "ask the agent on its own machine: rutter support bundle --local", "CN %s: %v", cn, err)
	}
	if part != support.Heap { // an agent removes secrets itself; one of another version may know fewer
		text, _ = support.Scrub(text)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the client is gone
	return nil
}
