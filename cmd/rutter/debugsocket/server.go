package debugsocket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"time"

	"rutter/api/support"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/output"
)

// Bounds of what is asked at the socket, and why.
const (
	// MaxSeconds is the longest profile of the processor, and defaultSeconds is the length
	// of one that names none.
	MaxSeconds     = 60
	defaultSeconds = 10
	// maxTraceSeconds is the longest execution trace: it has some 10 MB in each second of
	// a busy server.
	maxTraceSeconds = 10
	// answerTime bounds an answer: the longest profile, and the time to write it.
	answerTime = (MaxSeconds + 15) * time.Second
	// stopTime is how long the daemon's end waits for answers under way.
	stopTime = time.Second
)

// Server serves the socket of one daemon.
type Server struct {
	listener net.Listener
	source   *support.Source
	// profile has a token while a profile or a trace is taken: they slow the daemon.
	profile chan struct{}
	logger  *slog.Logger
}

// Open opens the socket; nil, if the options have none, or if it cannot be opened and the
// operator did not ask for it. Errors: those of localhttp.Socket.Listen.
func Open(ctx context.Context, o Options, source *support.Source, logger *slog.Logger) (*Server, error) {
	if o.Socket.Path == "" {
		return nil, nil
	}
	listener, err := o.Socket.Listen(ctx)
	if err != nil && o.Asked {
		return nil, fmt.Errorf("--debug-socket: %w", err)
	}
	if err != nil {
		logger.Warn("there is no debug socket (--debug-socket names another path, or off)", "path", o.Socket.Path, "error", err)
		return nil, nil
	}
	return &Server{listener: listener, source: source, profile: make(chan struct{}, 1), logger: logger}, nil
}

// Run serves until ctx ends, and removes the socket. s may be nil: then it waits for ctx
// only.
func (s *Server) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	server := &http.Server{Handler: s.guarded(s.handler()), ReadTimeout: localhttp.Limit, WriteTimeout: answerTime, MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return ctx }}
	localhttp.Protect(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("debug socket: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close() // what is still under way is cut off
	}
	<-served
	return nil
}

// Close closes a server that will not run. s may be nil.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	return s.listener.Close()
}

// guarded refuses all but root and the daemon's own user, as the kernel knows them. The
// mode of the file keeps others away already; this holds also if the mode is changed.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := localhttp.PeerOf(r)
		if err != nil || !peer.Privileged() {
			localhttp.Refuse(w, http.StatusForbidden, "only root and the user of this daemon may ask this")
			return
		}
		s.logger.Info("asked at the debug socket", "path", r.URL.Path, "uid", peer.UID)
		next.ServeHTTP(w, r)
	})
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.index)
	mux.HandleFunc("GET /support/{part}", s.part)
	mux.HandleFunc("GET /debug/pprof/{name}", s.pprof)
	return mux
}

// index lists what there is.
func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	for _, name := range s.source.Parts() {
		output.Printf(w, "/support/%s\n", name)
	}
	for _, p := range pprof.Profiles() {
		output.Printf(w, "/debug/pprof/%s\n", p.Name())
	}
	output.Printf(w, "/debug/pprof/profile?seconds=%d\n/debug/pprof/trace?seconds=1\n", defaultSeconds)
}

func (s *Server) part(w http.ResponseWriter, r *http.Request) {
	text, err := s.source.Collect(r.Context(), r.PathValue("part"))
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, support.ErrNoPart) {
			status = http.StatusNotFound
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the client is gone
}

// pprof answers with a profile, as go tool pprof reads it.
func (s *Server) pprof(w http.ResponseWriter, r *http.Request) {
	select {
	case s.profile <- struct{}{}:
		defer func() { <-s.profile }()
	default:
		http.Error(w, "another profile is being taken: try again when it is there", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	switch name := r.PathValue("name"); name {
	case "profile":
		s.during(w, r, MaxSeconds, func() error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
	case "trace":
		s.during(w, r, maxTraceSeconds, func() error { return trace.Start(w) }, trace.Stop)
	default:
		p := pprof.Lookup(name)
		if p == nil {
			http.Error(w, "there is no such profile: GET / lists them", http.StatusNotFound)
			return
		}
		form, err := numberOf(r, "debug", 0, 2)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = p.WriteTo(w, form) // the client is gone
	}
}

// during takes what lasts for the request's seconds. A client that goes ends it.
func (s *Server) during(w http.ResponseWriter, r *http.Request, most int, start func() error, stop func()) {
	seconds, err := numberOf(r, "seconds", min(defaultSeconds, most), most)
	if err != nil || seconds == 0 {
		http.Error(w, fmt.Sprintf("seconds: want 1 to %d", most), http.StatusBadRequest)
		return
	}
	if err := start(); err != nil {
		http.Error(w, "a profile of the whole run is being taken: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer stop()
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-r.Context().Done():
	}
}

// numberOf is a parameter of the query, from 0 to most.
func numberOf(r *http.Request, name string, otherwise, most int) (int, error) {
	text := strings.TrimSpace(r.URL.Query().Get(name))
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%s: want a number up to %d", name, most)
	}
	return n, nil
}
