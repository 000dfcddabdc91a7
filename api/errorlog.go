package api

import (
	"bytes"
	stdlog "log"
	"log/slog"
)

// panicked begins what net/http says of an endpoint that panicked, with its stack.
const panicked = "http: panic serving"

// errorLog writes the lines of an http.Server: of a panic, which is a fault of this
// program, as an error, and what clients cause at level debug.
type errorLog struct {
	logger *slog.Logger
}

// Write takes one line, or a panic with its stack.
func (l errorLog) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if bytes.HasPrefix(line, []byte(panicked)) {
		l.logger.Error("an endpoint panicked: its client got no answer; please report this", "panic", text)
	} else {
		l.logger.Debug(text)
	}
	return len(line), nil
}

// ErrorLog is the log of an http.Server in terms of logger.
func ErrorLog(logger *slog.Logger) *stdlog.Logger { return stdlog.New(errorLog{logger}, "", 0) }
