package api

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPanicsAreLogged: a panic of an endpoint is an error of the log at its usual level,
// with its stack; what clients cause is not.
func TestPanicsAreLogged(t *testing.T) {
	var said bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelInfo}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("of a test") }))
	server.Config.ErrorLog = slog.NewLogLogger(ServerLog{logger.Handler()}, slog.LevelDebug)
	server.Start()
	if response, err := server.Client().Get(server.URL); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		t.Error("it was answered")
	}
	server.Config.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	server.Close() // waits for the connection, so what it says is there
	if text := said.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "of a test") || !strings.Contains(text, "errorlog_test.go") || strings.Contains(text, "handshake") {
		t.Errorf("%q", text)
	}
}
