package logprint

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/line"
)

// Print prints entries as they come, in the format that -o names. An interrupt
// leaves no half line, because each write ends with a whole line. With follow, the
// end of the command's context is no error.
func Print(c *cli.Context, lines iter.Seq2[log.Line, error], follow bool, o line.Options) error {
	out := c.App.Writer
	o.Colour = term.Coloured(out)
	if format := c.String("output"); format != "" {
		o.Format = line.Format(format)
	}
	w := NewWriter(out, follow || term.Terminal(out))
	p := line.NewPrinter(o)
	for l, err := range lines {
		if err == nil {
			err = w.Append(func(b []byte) ([]byte, error) { return p.Append(b, l) })
		}
		if err != nil {
			w.buf = p.End(w.buf)
			return errors.Join(Ended(c.Context, err, follow), w.Flush())
		}
	}
	w.buf = p.End(w.buf)
	return w.Flush()
}

// PrintText prints entries that are lines of JSON already, as Print does as ndjson.
func PrintText(c *cli.Context, texts iter.Seq2[[]byte, error], follow bool) error {
	w := NewWriter(c.App.Writer, follow || term.Terminal(c.App.Writer))
	for text, err := range texts {
		if err == nil {
			err = w.Append(func(b []byte) ([]byte, error) { return append(append(b, text...), '\n'), nil })
		}
		if err != nil {
			return errors.Join(Ended(c.Context, err, follow), w.Flush())
		}
	}
	return w.Flush()
}

// Ended returns the error of a reading that ended with err: nil if ctx has ended
// and the reading followed the log, because its user has then seen enough.
func Ended(ctx context.Context, err error, follow bool) error {
	switch {
	case ctx.Err() == nil:
		return err
	case follow:
		return nil
	}
	return ctx.Err()
}

// bufferSize is how many bytes are collected before a write, if lines need not be
// seen at once.
const bufferSize = 32 << 10

// Writer writes whole lines: each at once, or many together. It belongs to one
// goroutine.
type Writer struct {
	w      io.Writer
	prompt bool // each line is written at once
	buf    []byte
}

// NewWriter returns a writer of lines to w. With prompt it writes each line at
// once, for a terminal or a program that follows.
func NewWriter(w io.Writer, prompt bool) *Writer { return &Writer{w: w, prompt: prompt} }

// Append adds what add appends to the bytes that wait. They must end with a line.
func (w *Writer) Append(add func([]byte) ([]byte, error)) (err error) {
	if w.buf, err = add(w.buf); err != nil {
		return err
	}
	if !w.prompt && len(w.buf) < bufferSize {
		return nil
	}
	return w.Flush()
}

// Flush writes what waits.
func (w *Writer) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := output.Escaped(w.w, w.buf)
	w.buf = w.buf[:0]
	return err
}
