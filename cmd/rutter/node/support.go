package node

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/api/support"
	"rutter/cmd/rutter/debugsocket"
	"rutter/log/feed"
)

// addParts adds what the status listener answers to the parts of this node.
func (n *Node) addParts(source *support.Source) {
	source.Add(support.Status, func(ctx context.Context, w io.Writer) error {
		return json.NewEncoder(w).Encode(n.status(ctx))
	})
	source.Add(support.Metrics, func(ctx context.Context, w io.Writer) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody)
		if err != nil {
			return err
		}
		n.metrics.ServeHTTP(&partWriter{make(http.Header), w}, r)
		return nil
	})
}

// partWriter is an http.ResponseWriter that passes an answer on.
type partWriter struct {
	header http.Header
	io.Writer
}

// Header implements http.ResponseWriter.
func (p *partWriter) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *partWriter) WriteHeader(int) {}

// serveDebug opens the debug socket, and serves it in g.
func (n *Node) serveDebug(ctx context.Context, g *errgroup.Group) error {
	debug, err := debugsocket.Open(ctx, n.opts.Debug, n.opts.Support, n.opts.Logger)
	if err != nil {
		return err
	}
	g.Go(func() error { return debug.Run(ctx) })
	return nil
}

// supportLocal is an agent's Local that answers servers' requests for parts of a support
// bundle, and passes everything else to next, which may be nil.
type supportLocal struct {
	agent.Local
	pager *support.Pager
}

// answerWithin bounds the answer to one request, and the wait for room to send it.
const answerWithin = support.PartTime + time.Second

// Connected implements agent.Local.
func (l supportLocal) Connected(ctx context.Context, conn *feed.Conn) {
	if l.Local != nil {
		l.Local.Connected(ctx, conn)
	}
}

// Advanced implements agent.Local.
func (l supportLocal) Advanced() {
	if l.Local != nil {
		l.Local.Advanced()
	}
}

// Request implements agent.Local. A part is collected beside the follower.
func (l supportLocal) Request(ctx context.Context, conn *feed.Conn, m *feed.Request) {
	if !support.IsPage(m.Method, m.Path) {
		if l.Local != nil {
			l.Local.Request(ctx, conn, m)
			return
		}
		go send(ctx, conn, &feed.Response{Number: m.Number, Status: http.StatusNotImplemented})
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		status, body := l.pager.Answer(ctx, m.Path)
		if len(body) > feed.MaxCall {
			status, body = http.StatusInsufficientStorage, nil
		}
		send(ctx, conn, &feed.Response{Number: m.Number, Status: uint16(status), Body: body})
	}()
}

// send sends an answer. A server without one asks again.
func send(ctx context.Context, conn *feed.Conn, answer *feed.Response) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_ = conn.Send(ctx, answer)
}
