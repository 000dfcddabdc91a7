package logcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/archive"
	"rutter/log/query"
	"rutter/projections"
	"rutter/raftstore"
	"rutter/raftstore/history"
)

// reader is a log whose entries are read in order.
type reader interface {
	// begins returns the header of the entries after a seq (nil: of all that are kept),
	// and the head.
	begins(ctx context.Context, after *log.Seq) (archive.Header, log.Cursor, error)
	// entries yields the entries after a seq up to the head, as they are stored. Their
	// bytes are valid until the next one.
	entries(ctx context.Context, after log.Seq) iter.Seq2[log.Entry, error]
	// lines yields the entries of a reading.
	lines(ctx context.Context, r *reading) iter.Seq2[log.Line, error]
	io.Closer
}

// openLog returns the log that the flags name.
func openLog(c *cli.Context) (reader, error) {
	if path := c.String("data"); path != "" {
		return openPath(path)
	}
	api, err := term.NewClient(c)
	if err != nil {
		return nil, err
	}
	return servers{api}, nil
}

// servers is the log of a running cluster.
type servers struct{ *client.Client }

// Close implements io.Closer.
func (s servers) Close() error {
	s.Client.Close()
	return nil
}

func (s servers) begins(ctx context.Context, after *log.Seq) (h archive.Header, head log.Cursor, err error) {
	if after == nil {
		floor, err := s.floor(ctx)
		if err != nil {
			return h, head, err
		}
		after = &floor
	}
	head, first, err := s.Anchor(ctx, *after)
	if err != nil {
		return h, head, err
	}
	h = archive.Header{Cluster: head.Cluster, Floor: *after, Anchor: *after}
	if *after > 0 && first.Seq == *after+1 {
		h.Anchor, h.Chain = first.Seq, first.Hash
	} else if *after > 0 && head.Seq > *after {
		return h, head, errors.New("the server does not tell the chain's hash: upgrade it")
	}
	return h, head, nil
}

// floor is the seq before the first entry that is kept.
func (s servers) floor(ctx context.Context) (log.Seq, error) {
	query := map[string][]string{"since": {earliest}, "limit": {"1"}}
	for l, err := range s.Log(ctx, client.LogQuery{Query: query}) {
		return max(l.Seq, 1) - 1, err
	}
	return 0, nil
}

func (s servers) entries(ctx context.Context, after log.Seq) iter.Seq2[log.Entry, error] {
	return s.Entries(ctx, after)
}

func (s servers) lines(ctx context.Context, r *reading) iter.Seq2[log.Line, error] {
	return s.Log(ctx, s.query(r))
}

func (s servers) query(r *reading) client.LogQuery {
	if r.limit > 0 {
		r.values.Set("limit", fmt.Sprint(r.limit))
	}
	return client.LogQuery{After: r.after, Follow: r.follow, Query: r.values}
}

// stored is a log that is read without a server.
type stored struct {
	header archive.Header
	head   log.Cursor
	each   func(ctx context.Context, after log.Seq) iter.Seq2[log.Entry, error] // with whole hashes
	close  func() error
	folder *history.Folder // with an index; nil: an export
}

// Close implements io.Closer.
func (s *stored) Close() error { return s.close() }

func (s *stored) begins(ctx context.Context, after *log.Seq) (archive.Header, log.Cursor, error) {
	if after == nil || *after == s.header.Floor {
		return s.header, s.head, nil
	}
	h := archive.Header{Cluster: s.header.Cluster, Floor: *after, Anchor: *after + 1}
	if err := s.keeps(*after); err != nil {
		return h, s.head, err
	}
	for e, err := range s.each(ctx, *after) {
		h.Chain = e.Hash
		return h, s.head, err
	}
	return h, s.head, fmt.Errorf("after seq %d, and there is nothing behind it: %w", *after, log.ErrAhead)
}

// keeps fails if entries after a seq are no longer kept.
func (s *stored) keeps(after log.Seq) error {
	if floor := s.header.Floor; after < floor {
		return fmt.Errorf("after seq %d, and entries are kept after %d: %w", after, floor, log.ErrCompacted)
	}
	return nil
}

func (s *stored) entries(ctx context.Context, after log.Seq) iter.Seq2[log.Entry, error] {
	return func(yield func(log.Entry, error) bool) {
		for e, err := range s.each(ctx, after) {
			if err == nil {
				err = ctx.Err()
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// first returns the seq before the first entry to read.
func (s *stored) first(r *reading) (log.Seq, error) {
	switch {
	case r.begin == "cursor" && r.cursor.Cluster != s.header.Cluster:
		return 0, fmt.Errorf("cursor %s: this is cluster %s: %w", r.cursor, s.header.Cluster, log.ErrOtherLog)
	case r.begin == "cursor":
		return r.cursor.Seq, s.keeps(r.cursor.Seq)
	case r.begin == "":
		return r.after, s.keeps(r.after)
	}
	if r.begin == "since" && s.folder != nil && r.filter.TimeSet > 0 {
		seq, err := s.folder.SeqAt(r.filter.Since - 1)
		if errors.Is(err, log.ErrCompacted) {
			return s.header.Floor, nil
		}
		return seq, err
	}
	return s.header.Floor, nil
}

// timeSet returns the seq of the entry by which the log's time was set last, 0 if there
// is none. For an export it is unknown, and the result is the greatest seq.
func (s *stored) timeSet(ctx context.Context) (log.Seq, error) {
	if s.folder == nil {
		return 1<<64 - 1, nil
	}
	rec, ok, err := s.folder.ObjectAt(ctx, history.Ref{Kind: log.KindSetting, ID: projections.SettingClusterTime}, s.head.Seq)
	if err != nil || !ok {
		return 0, err
	}
	return rec.Seq, nil
}

// lines reads forwards. For the last N entries it keeps the newest N while it reads.
func (s *stored) lines(ctx context.Context, r *reading) iter.Seq2[log.Line, error] {
	return func(yield func(log.Line, error) bool) {
		set, err := s.timeSet(ctx)
		after := log.Seq(0)
		if r.filter.TimeSet = set; err == nil {
			after, err = s.first(r)
		}
		if err != nil {
			yield(log.Line{}, err)
			return
		}
		if r.begin == "last" {
			after = s.startOfLast(ctx, r, after)
		}
		var kept []log.Entry
		n := uint64(0)
		for e, err := range selected(s.entries(ctx, after), r.filter) {
			if err != nil {
				yield(log.Line{}, err)
				return
			}
			if r.begin == "last" {
				if kept = append(kept, e); uint64(len(kept)) >= 2*r.last {
					kept = slices.Clone(kept[uint64(len(kept))-r.last:])
				}
				continue
			}
			if n++; !yieldEntry(e, yield) || n == r.limit {
				return
			}
		}
		for _, e := range kept[max(uint64(len(kept)), r.last)-r.last:] {
			if !yieldEntry(e, yield) {
				return
			}
		}
	}
}

// backWindow is the number of entries, counted from the end, in which the last ones are
// searched first.
const backWindow = 4096

// startOfLast returns a seq after which the last entries of r are, or floor. The
// searched part, counted from the end, grows until it has enough.
func (s *stored) startOfLast(ctx context.Context, r *reading, floor log.Seq) log.Seq {
	end := s.head.Seq
	if end == 1<<64-1 {
		return floor // an export is read from its beginning in any case
	}
	for window := log.Seq(backWindow); end-floor > window; window *= 8 {
		found := uint64(0)
		for _, err := range selected(s.entries(ctx, end-window), r.filter) {
			if err != nil {
				return floor // reading from there returns the error again
			}
			found++
		}
		if found >= r.last {
			return end - window
		}
	}
	return floor
}

func yieldEntry(e log.Entry, yield func(log.Line, error) bool) bool {
	event, err := e.Event()
	return yield(log.Line{Seq: e.Seq, Chain: e.Hash.Prefix(), Event: event}, err) && err == nil
}

// selected yields the entries that the filter selects. The caller may keep their bytes.
func selected(entries iter.Seq2[log.Entry, error], f *query.Filter) iter.Seq2[log.Entry, error] {
	m := f.Matcher()
	return func(yield func(log.Entry, error) bool) {
		for e, err := range entries {
			verdict := query.Hit
			if err == nil {
				verdict, err = m.Match(e.Seq, e.Bytes)
			}
			switch {
			case err != nil:
				yield(e, err)
				return
			case verdict == query.Past:
				return
			case verdict == query.Hit:
				e.Bytes = bytes.Clone(e.Bytes)
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// openExport opens a file of `rutter log export`. Errors: log.ErrFormat if it is
// another file.
func openExport(path string) (*stored, error) {
	file, err := raftstore.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	r, err := archive.NewReader(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	s := &stored{header: r.Header(), close: file.Close}
	s.head = log.Cursor{Cluster: s.header.Cluster, Seq: 1<<64 - 1} // the head is unknown before the end
	s.each = func(_ context.Context, after log.Seq) iter.Seq2[log.Entry, error] { return eachOf(file, after) }
	return s, nil
}

// eachOf yields the entries of an export after a seq.
func eachOf(file *os.File, after log.Seq) iter.Seq2[log.Entry, error] {
	return func(yield func(log.Entry, error) bool) {
		var r *archive.Reader
		_, err := file.Seek(0, io.SeekStart)
		if err == nil {
			r, err = archive.NewReader(file)
		}
		for err == nil {
			var e log.Entry
			if e, err = r.Next(); err == nil && e.Seq > after && !yield(e, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(log.Entry{}, fmt.Errorf("%s: %w", file.Name(), err))
		}
	}
}
