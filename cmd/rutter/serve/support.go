package serve

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/support"
	"rutter/cmd/rutter/debugsocket"
)

// supportOf is the source of a server: that of the options, or one without log lines and
// settings.
func supportOf(cfg *Options) *support.Source {
	if cfg.Support != nil {
		return cfg.Support
	}
	return support.New(support.Config{Version: cfg.Version, Folder: cfg.Store.Dir})
}

// openDebug completes the parts of this server, and opens its debug socket.
func (s *Server) openDebug(cfg *Options, logger *slog.Logger) (err error) {
	s.addParts(cfg.Support)
	s.debug, err = debugsocket.Open(context.Background(), cfg.Debug, cfg.Support, logger)
	return err
}

// addParts adds what the API answers to the parts of this server, so that they are at the
// debug socket too when no client reaches the API.
func (s *Server) addParts(source *support.Source) {
	for part, path := range map[string]string{support.Status: "/status", support.Ready: "/readyz?verbose", support.Metrics: "/metrics"} {
		source.Add(part, func(ctx context.Context, w io.Writer) error {
			ctx = matrix.With(ctx, matrix.Identity{Role: matrix.Local, Name: "debug-socket"})
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
			if err != nil {
				return err
			}
			r.RemoteAddr = "127.0.0.1:0"
			answer := &answerTo{header: make(http.Header), status: http.StatusOK, next: w}
			s.api.Handler().ServeHTTP(answer, r)
			if answer.status != http.StatusOK && part != support.Ready {
				return fmt.Errorf("status %d: %s", answer.status, support.Printable(answer.said.String()))
			}
			return nil
		})
	}
}

// answerTo is an http.ResponseWriter that passes an answer of success on.
type answerTo struct {
	header http.Header
	status int
	said   bytes.Buffer // of another answer
	next   io.Writer
}

// Header implements http.ResponseWriter.
func (a *answerTo) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answerTo) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answerTo) Write(b []byte) (int, error) {
	if a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
		return a.said.Write(b)
	}
	return a.next.Write(b)
}

// certificateEnd is when the first of the server's certificates ends; t may be nil.
func (t *serverTLS) certificateEnd() (end time.Time) {
	if t == nil {
		return end
	}
	for _, one := range t.identities() {
		if leaf := one.keeper.Leaf(); leaf != nil && (end.IsZero() || leaf.NotAfter.Before(end)) {
			end = leaf.NotAfter
		}
	}
	return end.UTC()
}
