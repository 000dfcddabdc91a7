package logserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/internal/logread"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/feed"
)

// Bounds of the binary form of GET /log.
const (
	binaryItems  = 8192      // entries per read of the store, unless one change has more
	binaryBuffer = 256 << 10 // bytes gathered before a write
)

// wantsBinary reports whether a request asks for the binary form of the log.
func wantsBinary(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		if strings.Contains(accept, feed.LogMedia) {
			return true
		}
	}
	return false
}

// binaryLog answers GET /log with entries as they are stored: for copies, and for
// readers of the whole log. It decodes nothing, so it cannot filter.
func (s *Server) binaryLog(w http.ResponseWriter, r *http.Request, q *query) error {
	if !q.filter.IsAll() {
		return rest.BadParameter("Accept", log.ElementInvalid, "ask for application/x-ndjson, or leave the filters out", "the binary form of the log cannot be filtered")
	}
	at := q.position(s.store)
	entries, err := s.entriesAt(&at) // this error has its own form of answer
	if err != nil {
		return err
	}
	done, err := s.cfg.Streams.Enter()
	if err != nil {
		return err
	}
	defer done()
	head := s.store.Head()
	w.Header().Set("Content-Type", feed.LogMedia)
	if len(entries) > 0 {
		// The frames have only the hash's prefix; a reader that keeps the entries
		// verifies them.
		w.Header().Set(rest.HeaderChain, entries[0].Seq.String()+":"+entries[0].Hash.String())
	}
	w.Header().Set(rest.HeaderCursor, head.String())
	rest.SetSeq(w, head.Seq)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := &frames{out: rest.NewStream(w), limit: q.limit, at: at, accounts: q.accounts, left: 1}
	if err := s.writeFrames(r.Context(), out, entries, q); err != nil && !errors.Is(err, rest.ErrGone) {
		// Frames cannot carry an error. The reader finds no bookmark, asks again from
		// its position, and gets the error then.
		s.cfg.Logger.Warn("binary log broken off", "remote", r.RemoteAddr, "place", out.at.Seq, "error", err)
	}
	return nil
}

// writeFrames writes entries and the later ones, until the limit, the head (if the log
// is not followed), or the end of the client or the server.
func (s *Server) writeFrames(ctx context.Context, out *frames, entries []log.Entry, q *query) (err error) {
	quiet := time.NewTicker(lineQuiet)
	defer quiet.Stop()
	for {
		changed := s.store.Changed()
		for len(entries) > 0 {
			if full, err := out.add(entries); full || err != nil {
				return errors.Join(err, out.flush())
			}
			if ctx.Err() != nil {
				return rest.ErrGone
			}
			if out.left <= 0 {
				return out.accounts.Admit() // no bookmark: the reader asks again, and is told when to retry
			}
			if entries, err = s.entriesAt(&out.at); err != nil {
				return errors.Join(err, out.flush())
			}
		}
		if err := out.bookmark(); err != nil || !q.follow {
			return err
		}
		if why, err := s.await(ctx, q, changed, quiet.C); why == ended {
			return err
		}
		if entries, err = s.entriesAt(&out.at); err != nil {
			return err
		}
	}
}

// entriesAt reads entries after a position, from its log (see scanAt).
func (s *Server) entriesAt(at *logread.Position) ([]log.Entry, error) {
	entries, err := s.store.Entries(at.Seq, binaryItems)
	if other := at.Check(s.store); other != nil {
		return nil, other
	}
	return entries, err
}

// frames writes entries as frames of package log/feed.
type frames struct {
	out     *rest.Stream
	limit   uint64
	written uint64
	at      logread.Position // of the last entry written
	buf     []byte

	accounts guard.Accounts
	left     int64 // bytes that may still be sent, when the last were
}

// add writes entries; full means that the limit is reached.
func (f *frames) add(entries []log.Entry) (full bool, err error) {
	for _, e := range entries {
		if want := f.at.Seq + 1; e.Seq != want {
			return false, fmt.Errorf("entry %d where %d must be: %w", e.Seq, want, log.ErrCorrupt)
		}
		if f.buf, err = feed.AppendEntry(f.buf, e); err != nil {
			return false, err
		}
		f.at.Advance(e.Seq, e.Hash.Prefix())
		if f.written++; f.written >= f.limit {
			return true, nil
		}
		if len(f.buf) >= binaryBuffer {
			if err := f.flush(); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// bookmark writes that there are no more entries now.
func (f *frames) bookmark() (err error) {
	if f.buf, err = feed.Append(f.buf, &feed.Bookmark{Seq: f.at.Seq, Chain: f.at.Chain}); err != nil {
		return err
	}
	if err := f.flush(); err != nil {
		return err
	}
	return f.out.Flush()
}

func (f *frames) flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	err := f.out.Write(f.buf)
	f.left = f.accounts.Sent(len(f.buf))
	f.buf = f.buf[:0]
	return err
}
