package logcmd

import (
	"context"
	"fmt"
	"net"

	"rutter/cmd/rutter/output"
	"rutter/raftstore/history"

	"github.com/urfave/cli/v2"

	"rutter/api"
	"rutter/api/backend"
	"rutter/cmd/rutter/storeapi"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
)

// serve shows a log as it was at a seq: the API and the console, read-only, until
// the context ends.
func serve(c *cli.Context, f *history.Folder, seq log.Seq) error {
	address := c.String("serve")
	if host, _, err := net.SplitHostPort(address); err != nil || !loopback(host) {
		return term.Usagef("--serve %q: want HOST:PORT of this machine alone, as in 127.0.0.1:7430: there is no TLS on it", address)
	}
	state, err := f.StateAt(c.Context, seq)
	if err != nil {
		return err
	}
	hash, err := f.HashAt(seq)
	if err != nil {
		return err
	}
	s := &served{folder: f, state: state, head: log.Cursor{Cluster: f.Head().Cluster, Seq: seq, Chain: hash.Prefix()}, never: make(chan struct{})}
	logger, err := term.NewLogger(c.App.ErrWriter, "warn")
	if err != nil {
		return err
	}
	server, err := api.New(api.Config{Store: s, Past: s, ReadOnly: true, Version: c.App.Version, Logger: logger})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(c.Context, "tcp", address)
	if err != nil {
		return err
	}
	output.Printf(c.App.Writer, "the log up to #%d, at %s, read-only: http://%s/console/ until Ctrl-C\n", seq, state.Time(), listener.Addr())
	return server.Run(c.Context, listener)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// served adapts a read-only log to package api. It ends at head, also if the folder has
// later entries.
type served struct {
	folder *history.Folder
	state  *projections.State
	head   log.Cursor
	never  chan struct{}
}

// Propose implements backend.Store. Package api does not call it for a read-only log.
func (*served) Propose(context.Context, *log.Change) (log.Result, error) {
	return log.Result{}, fmt.Errorf("a log of the past: %w", backend.ErrNoLeader)
}

// View implements backend.Store.
func (s *served) View(fn func(*projections.State, log.Cursor)) { fn(s.state, s.head) }

// Head implements backend.Store.
func (s *served) Head() log.Cursor { return s.head }

// Floor implements backend.Store.
func (s *served) Floor() log.Seq { return s.folder.Floor() }

// Changed implements backend.Store. The channel never closes.
func (s *served) Changed() <-chan struct{} { return s.never }

// Entries implements backend.Store.
func (s *served) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	if after > s.head.Seq {
		return nil, fmt.Errorf("entries after %d, the head is %d: %w", after, s.head.Seq, log.ErrAhead)
	}
	entries, err := s.folder.Entries(after, limit)
	if n := s.head.Seq - after; log.Seq(len(entries)) > n {
		entries = entries[:n]
	}
	return entries, err
}

// CheckCursor implements backend.Store.
func (s *served) CheckCursor(c log.Cursor) error {
	switch {
	case c == log.Cursor{} && s.Floor() > 0, c.Seq < s.Floor():
		return fmt.Errorf("cursor %s: entries are kept after %d: %w", c, s.Floor(), log.ErrCompacted)
	case c == log.Cursor{}:
		return nil
	case c.Cluster != s.head.Cluster:
		return fmt.Errorf("cursor %s: this is cluster %s: %w", c, s.head.Cluster, log.ErrOtherLog)
	case c.Seq > s.head.Seq:
		return fmt.Errorf("cursor %s: the head is %d: %w", c, s.head.Seq, log.ErrAhead)
	}
	hash, err := s.folder.HashAt(c.Seq)
	if err == nil && c.Seq > 0 && hash.Prefix() != c.Chain {
		err = fmt.Errorf("cursor %s: the chain is another one: %w", c, log.ErrOtherLog)
	}
	return err
}

// WaitSeq implements backend.Store.
func (s *served) WaitSeq(ctx context.Context, seq log.Seq) error {
	if seq <= s.head.Seq {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// Consistent implements backend.Store.
func (s *served) Consistent(context.Context) (log.Seq, error) { return s.head.Seq, nil }

// Status implements backend.Store.
func (s *served) Status() backend.Status { return backend.Status{ID: "replay", State: "past"} }

// Ready implements backend.Store.
func (*served) Ready() error { return nil }

// Serving implements backend.Store.
func (*served) Serving() error { return nil }

// SeqAt implements backend.Past.
func (s *served) SeqAt(at log.Time) (log.Seq, error) {
	seq, err := s.folder.SeqAt(at)
	return min(seq, s.head.Seq), err
}

// checkSeq refuses a seq after the head.
func (s *served) checkSeq(seq log.Seq) error {
	if seq > s.head.Seq {
		return fmt.Errorf("the past at %d, the head is %d: %w", seq, s.head.Seq, log.ErrAhead)
	}
	return nil
}

// StateAt implements backend.Past.
func (s *served) StateAt(ctx context.Context, seq log.Seq) (*projections.State, error) {
	if err := s.checkSeq(seq); err != nil {
		return nil, err
	}
	return s.folder.StateAt(ctx, seq)
}

// PartAt implements backend.Past.
func (s *served) PartAt(ctx context.Context, part backend.PastPart, seq log.Seq) (*projections.State, error) {
	if err := s.checkSeq(seq); err != nil {
		return nil, err
	}
	return s.folder.PartAt(ctx, storeapi.PartOf(part), seq)
}

// HistoryOf implements backend.Past.
func (s *served) HistoryOf(ctx context.Context, object backend.PastObject, after log.Seq, limit int) ([]log.Seq, error) {
	seqs, err := s.folder.History(ctx, history.Ref(object), after, limit)
	for len(seqs) > 0 && seqs[len(seqs)-1] > s.head.Seq {
		seqs = seqs[:len(seqs)-1]
	}
	return seqs, err
}
