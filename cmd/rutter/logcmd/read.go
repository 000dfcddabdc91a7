package logcmd

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/line"
)

func tail(c *cli.Context) (err error) {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	r, err := newReading(c)
	if err != nil {
		return err
	}
	r.follow = c.Bool("follow")
	if r.follow && c.String("data") != "" {
		return term.Usagef("--follow needs a server: nothing comes to a file")
	}
	from, err := openLog(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	n := c.Uint64("lines")
	if live, ok := from.(servers); ok && len(r.filter.CNs) == 1 && len(r.values) == 1 {
		return tailCN(c, live.Client, r.filter.CNs[0], n)
	}
	if n > 0 {
		err = r.back(n)
	} else if live, ok := from.(servers); ok {
		r.after, err = live.Head(c.Context)
	}
	if err != nil || n == 0 && !r.follow {
		return err
	}
	return printLines(c, from.lines(c.Context, r), r.follow, line.Options{})
}

func show(c *cli.Context) (err error) {
	r, err := newReading(c)
	if err != nil {
		return err
	}
	if err := r.shown(c); err != nil {
		return err
	}
	from, err := openLog(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	return printLines(c, from.lines(c.Context, r), false, line.Options{Values: c.NArg() == 1})
}

// shown reads the arguments of show: one seq, or where to begin and how many.
func (r *reading) shown(c *cli.Context) error {
	r.limit = c.Uint64("limit")
	if c.NArg() > 1 || c.NArg() == 1 && (c.IsSet("after") || c.IsSet("from") || c.IsSet("limit")) {
		return term.Usagef("want one SEQ, or --after and --limit")
	}
	if c.IsSet("after") && c.IsSet("from") {
		return term.Usagef("--after and --from exclude each other: both say where to begin")
	}
	switch {
	case c.NArg() == 1:
		seq, err := log.ParseSeq(c.Args().First())
		if err != nil || seq == 0 {
			return term.Usagef("%q: want the seq of an entry, from 1", c.Args().First())
		}
		r.after, r.limit, r.filter.UntilSeq = seq-1, 1, seq
		r.values.Set("until", seq.String())
		return nil
	case c.IsSet("after"):
		r.after = log.Seq(c.Uint64("after"))
		return nil
	}
	return r.from(c.String("from"))
}

// Print prints entries of servers as they come, in the format that -o names.
func Print(c *cli.Context, api *client.Client, q client.LogQuery) error {
	return printLines(c, api.Log(c.Context, q), q.Follow, line.Options{})
}

// printLines prints entries as they come, so that an interrupt leaves no half
// line: what is written at once always ends with one.
func printLines(c *cli.Context, lines iter.Seq2[log.Line, error], follow bool, o line.Options) error {
	out := c.App.Writer
	o.Colour = term.Coloured(out)
	if format := c.String("output"); format != "" {
		o.Format = line.Format(format)
	}
	w := &wholeLines{w: out, prompt: follow || term.Terminal(out)}
	p := line.NewPrinter(o)
	for l, err := range lines {
		if err == nil {
			w.buf, err = p.Append(w.buf, l)
		}
		if err == nil {
			err = w.written()
		}
		if err != nil {
			w.buf = p.End(w.buf)
			return errors.Join(ended(c.Context, err, follow), w.flush())
		}
	}
	w.buf = p.End(w.buf)
	return w.flush()
}

// ended is err, or nil if the reader of what is followed has seen enough.
func ended(ctx context.Context, err error, follow bool) error {
	switch {
	case ctx.Err() == nil:
		return err
	case follow:
		return nil
	}
	return ctx.Err()
}

// lineBuffer is how much is gathered before a write, where nobody waits for each line.
const lineBuffer = 32 << 10

// wholeLines writes whole lines: each at once, or many together.
type wholeLines struct {
	w      io.Writer
	prompt bool // somebody waits for each
	buf    []byte
}

// written is called when buf ends with a line.
func (w *wholeLines) written() error {
	if !w.prompt && len(w.buf) < lineBuffer {
		return nil
	}
	return w.flush()
}

func (w *wholeLines) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}
