package api

import (
	"context"
	"log/slog"
	"strings"
)

// panicked begins what net/http says of an endpoint that panicked, with its stack.
const panicked = "http: panic serving"

// ServerLog is a handler for slog.NewLogLogger, which gives an http.Server its log: of a
// panic, which is a fault of this program, it makes an error; what clients cause keeps its
// level.
type ServerLog struct {
	slog.Handler
}

// Enabled says yes, because the message decides of the level.
func (ServerLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle writes a record if its level, once it is known, is one that is logged.
func (l ServerLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, panicked) {
		r.Level = slog.LevelError
	}
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}
