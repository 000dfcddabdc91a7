// Package hashilog passes the log messages of hashicorp's libraries (raft, raft-wal),
// which use hclog, to slog.
package hashilog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// adapter passes messages to slog. All methods that it does not override are those of
// hclog's null logger.
type adapter struct {
	hclog.Logger
	logger *slog.Logger
}

// New returns a logger for raft and its stores.
func New(logger *slog.Logger) hclog.Logger {
	return adapter{hclog.NewNullLogger(), logger.With("part", "raft")}
}

// Raft logs each snapshot and trim. Ours are markers, set every few seconds, and not
// worth a message. So raft's Info becomes Debug.

func (l adapter) Trace(string, ...any)           {}
func (l adapter) Debug(msg string, args ...any)  { l.logger.Debug(msg, plain(args)...) }
func (l adapter) Info(msg string, args ...any)   { l.logger.Debug(msg, plain(args)...) }
func (l adapter) Warn(msg string, args ...any)   { l.report(msg, args) }
func (l adapter) Error(msg string, args ...any)  { l.report(msg, args) }
func (l adapter) Named(string) hclog.Logger      { return l }
func (l adapter) ResetNamed(string) hclog.Logger { return l }

func (l adapter) With(args ...any) hclog.Logger {
	return adapter{l.Logger, l.logger.With(plain(args)...)}
}

// Log implements hclog.Logger.
func (l adapter) Log(level hclog.Level, msg string, args ...any) {
	switch level {
	case hclog.Info, hclog.Debug:
		l.Debug(msg, args...)
	case hclog.Warn, hclog.Error:
		l.Warn(msg, args...)
	}
}

// report logs raft's warnings and errors, except that a connection ended, which is normal
// when a server stops.
func (l adapter) report(msg string, args []any) {
	level := slog.LevelWarn
	for _, arg := range args {
		if err, ok := arg.(error); ok && (errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, raft.ErrTransportShutdown)) {
			level = slog.LevelDebug
		}
	}
	l.logger.Log(context.Background(), level, msg, plain(args)...)
}

// plain turns hclog's lazy formats into text.
func plain(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = arg
		if format, ok := arg.(hclog.Format); ok && len(format) > 0 {
			if text, ok := format[0].(string); ok {
				out[i] = fmt.Sprintf(text, format[1:]...)
			}
		}
	}
	return out
}
