package vmlink

import (
	"bytes"
	"context"
	"net/http"

	"rutter/log/feed"
)

// answerAll answers servers' requests, until ctx ends.
func (l *Link) answerAll(ctx context.Context) {
	for {
		select {
		case a := <-l.requests:
			response := serve(a.ctx, l.handler, a.m)
			l.update(func(s *Status) { s.Answered++ })
			_ = a.conn.Send(a.ctx, response) // the connection is gone, and its client too
		case <-ctx.Done():
			return
		}
	}
}

// serve passes a request of the connection to an HTTP handler.
func serve(ctx context.Context, handler http.Handler, m *feed.Request) *feed.Response {
	answer := &feed.Response{Number: m.Number, Status: http.StatusBadRequest}
	request, err := http.NewRequestWithContext(ctx, m.Method, m.Path, bytes.NewReader(m.Body))
	if err != nil {
		answer.Body = []byte(err.Error())
		return answer
	}
	if m.Version != "" {
		request.Header.Set("api-version", m.Version)
	}
	w := &recorder{header: make(http.Header), status: http.StatusOK}
	handler.ServeHTTP(w, request)
	answer.Status, answer.Body = uint16(w.status), w.body.Bytes()
	if len(answer.Body) > feed.MaxCall {
		answer.Status, answer.Body = http.StatusInsufficientStorage, nil
	}
	return answer
}

// recorder is an http.ResponseWriter that keeps the answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
