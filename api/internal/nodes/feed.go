package nodes

import (
	"bytes"
	"net/http"
	"strings"

	"rutter/api/auth/guard"
	"rutter/api/feedserver"
	"rutter/api/internal/rest"
)

// feed answers GET /feed: the connection becomes a stream of frames.
func (s *Routes) feed(w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), feedserver.Protocol) || !strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") {
		w.Header().Set("Upgrade", feedserver.Protocol)
		return rest.Fail(http.StatusUpgradeRequired, rest.CodeBadRequest, "send Connection: Upgrade and Upgrade: "+feedserver.Protocol+", or read GET /log", "the feed is a stream of frames, not an answer")
	}
	if err := s.store.Ready(); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotReady, "try another server", "this server cannot feed yet: %v", err)
	}
	done, err := s.cfg.Streams.Enter()
	if err != nil {
		return err
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		done()
		return rest.Fail(http.StatusInternalServerError, rest.CodeInternal, "connect without a proxy that speaks HTTP/2", "the connection cannot be upgraded: %v", err)
	}
	if seen, ok := w.(*rest.Recorder); ok {
		seen.Status = http.StatusSwitchingProtocols
	}
	// The request ends here, so that net/http frees what it keeps for it.
	early, _ := rw.Reader.Peek(rw.Reader.Buffered())
	s.cfg.Feed.Serve(conn, bytes.Clone(early), guard.GrantOf(r).Who, done)
	return nil
}
