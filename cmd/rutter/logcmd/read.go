package logcmd

import (
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/logprint"
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
	return printed(c, from, r, line.Options{})
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
	return printed(c, from, r, line.Options{Values: c.NArg() == 1})
}

// printed prints the entries of a reading. What a server sent as JSON is not made again.
func printed(c *cli.Context, from reader, r *reading, o line.Options) error {
	if live, ok := from.(servers); ok && c.String("output") == string(line.NDJSON) {
		return logprint.PrintText(c, live.LogText(c.Context, live.query(r)), r.follow)
	}
	return logprint.Print(c, from.lines(c.Context, r), r.follow, o)
}

// shown parses the arguments of show: one seq, or a begin and a limit.
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
		seq, err := log.ParseSeq(strings.TrimPrefix(c.Args().First(), "#"))
		if err != nil || seq == 0 {
			return term.Usagef("%q: want the seq of an entry, from 1", c.Args().First())
		}
		r.after, r.limit, r.filter.UntilSeq = seq-1, 1, seq
		r.values.Set("until", seq.String())
		return nil
	case c.IsSet("after"):
		m, err := r.moment(c.String("after"))
		if err != nil {
			return term.Usagef("--after %w", err)
		}
		if !m.IsSeq {
			return r.since(m.String())
		}
		r.after = m.Seq
		return nil
	}
	return r.from(c.String("from"))
}
