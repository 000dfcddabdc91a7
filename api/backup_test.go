package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rutter/api/internal/rest"
	"rutter/log"
)

// backups hands out one text, or fails.
type backups struct {
	text string
	err  error
}

func (b backups) Backup(context.Context) (Backup, error) {
	if b.err != nil {
		return Backup{}, b.err
	}
	return Backup{ReadCloser: io.NopCloser(strings.NewReader(b.text)), Cluster: log.UUID{1}, Seq: 7, Size: int64(len(b.text))}, nil
}

func TestSnapshotRoute(t *testing.T) {
	text := strings.Repeat("image", 200_000)
	for _, test := range []struct {
		name   string
		give   Backups
		method string
		status int
		body   string
	}{
		{"none here", nil, http.MethodGet, http.StatusNotImplemented, "gives no snapshots"},
		{"not now", backups{err: errors.New("two are being sent")}, http.MethodGet, http.StatusServiceUnavailable, "two are being sent"},
		{"whole", backups{text: text}, http.MethodGet, http.StatusOK, text},
		{"head", backups{text: text}, http.MethodHead, http.StatusOK, ""},
		{"no such method", backups{text: text}, http.MethodPost, http.StatusMethodNotAllowed, "use one of"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := New(Config{Store: newMemory(), Backups: test.give})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(test.method, "/snapshot", nil))
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.body) || test.body == "" && w.Body.Len() > 0 {
				t.Errorf("got %d and %d bytes, want %d", w.Code, w.Body.Len(), test.status)
			}
			if w.Code == http.StatusOK && (w.Header().Get(rest.HeaderSeq) != "7" || w.Header().Get(headerCluster) != log.UUID.String(log.UUID{1})) {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
}
