package localhttp

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Limit bounds a request, and the wait for open requests when the daemon stops.
const Limit = 5 * time.Second

// Serve serves handler at listener, with Protect, until ctx ends. Then it waits for the
// requests under way, Limit at most. Errors: the listener's.
func Serve(ctx context.Context, handler http.Handler, listener net.Listener) error {
	server := &http.Server{Handler: handler, ReadTimeout: Limit, WriteTimeout: Limit}
	Protect(server)
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
