package logcmd

import (
	"context"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/raftstore/history"
)

// At is the log that --data names, at the place that --at names.
type At struct {
	Seq log.Seq
	s   *pastLog
}

// OpenAt opens the log that the flags --data and --at name. The caller closes it.
func OpenAt(c *cli.Context) (*At, error) {
	path := c.String("data")
	if isURL(path) {
		return nil, term.Usagef("--data %s: name a server with --server", path)
	}
	s, err := openNamed(c, path)
	if err != nil {
		return nil, err
	}
	a := &At{s: s}
	if a.Seq, err = s.seqAt(c.Context, c.String("at")); err != nil {
		closeJoining(s, &err)
		return nil, err
	}
	return a, nil
}

// Close closes the files.
func (a *At) Close() error { return a.s.close() }

// Part returns a part of the state at the place.
func (a *At) Part(ctx context.Context, part history.Part) (*projections.State, error) {
	return a.s.folder.PartAt(ctx, part, a.Seq)
}

// Trace is State.Trace at the place.
func (a *At) Trace(ctx context.Context, from, to string) (desired.Trace, error) {
	t, err := desired.TraceOf(from, to, func(want desired.TraceWant) (*projections.State, error) {
		if want.Whole {
			return a.s.folder.StateAt(ctx, a.Seq)
		}
		part := history.Part{CNs: want.CNs, Mentions: want.Mentions}
		for _, mac := range want.NICs {
			part.Objects = append(part.Objects, history.Ref{Kind: log.KindNIC, ID: mac.String()})
		}
		return a.Part(ctx, part)
	})
	if err == nil {
		t.AsOf(a.Seq)
	}
	return t, err
}

// StateAt returns the whole state that the flags --server, --data and --at name, and the
// seq of its last entry.
func StateAt(c *cli.Context) (state *projections.State, seq log.Seq, err error) {
	s, err := openPast(c)
	if err != nil {
		return nil, 0, err
	}
	defer closeJoining(s, &err)
	if seq, err = s.seqAt(c.Context, c.String("at")); err != nil {
		return nil, 0, err
	}
	if err = s.checkNotBefore(c.Context, c.String("at"), seq); err != nil {
		return nil, 0, err
	}
	state, err = s.state(c.Context, seq, statePart{})
	return state, seq, err
}
