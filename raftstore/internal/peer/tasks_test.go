package peer

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// TestConnectionsAreBounded: connections beyond the limit are closed and counted, and the
// log has one line of an address in a minute.
func TestConnectionsAreBounded(t *testing.T) {
	var lines bytes.Buffer
	logger, tasks := slog.New(slog.NewTextHandler(&lines, nil)), new(Tasks)
	t.Cleanup(tasks.Stop)
	own := func() net.Conn {
		c, other := net.Pipe()
		t.Cleanup(func() { _ = other.Close() })
		return c
	}
	first := own()
	if !tasks.adopt(first, logger) {
		t.Fatal("the first connection is refused")
	}
	for range maxConns - 1 {
		tasks.adopt(own(), logger)
	}
	for range 3 {
		over := own()
		if tasks.adopt(over, logger) {
			t.Fatal("a connection beyond the limit is taken")
		}
		if _, err := over.Write([]byte{1}); err == nil {
			t.Error("a connection beyond the limit is open")
		}
	}
	if text := lines.String(); tasks.Refused() != 3 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "limit=256") || !strings.Contains(text, " do=") {
		t.Errorf("%d counted, want 3; the log has %q, want one line", tasks.Refused(), text)
	}
	tasks.forget(first)
	if !tasks.adopt(own(), logger) {
		t.Error("no connection takes the place of one that ended")
	}
}
