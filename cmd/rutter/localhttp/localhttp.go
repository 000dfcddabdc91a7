package localhttp

import (
	"context"
	"net"
	"net/http"
	"time"

	"rutter/api/auth/webcheck"
)

// Limit bounds a request, and the wait for open requests when the daemon stops.
const Limit = 5 * time.Second

// Serve serves handler at listener, by the listener's own names and not to pages of
// other sites (package webcheck), until ctx ends, then waits for the requests under
// way, Limit at most. Errors: the listener's.
func Serve(ctx context.Context, handler http.Handler, listener net.Listener) error {
	server := &http.Server{Handler: webcheck.Handler(handler, webcheck.NewHosts(listener.Addr(), webcheck.Names{})), ReadTimeout: Limit, WriteTimeout: Limit}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit)
	defer cancel()
	err := server.Shutdown(grace)
	<-served
	return err
}
