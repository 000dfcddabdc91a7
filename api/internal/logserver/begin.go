package logserver

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"rutter/api/internal/logread"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// maxBack bounds the entries that ?last looks through for those that match.
const maxBack = 1_000_000

// eventStream is the media type of server-sent events (WHATWG HTML §9.2).
const eventStream = "text/event-stream"

// wantsEvents reports whether the client asks for server-sent events.
func wantsEvents(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), eventStream)
}

// begin finds where to begin if the request does not give after or cursor: by the id of
// the last event that the client got, by time, or by a number of entries. ok is false
// if the request gives none of these.
func (s *Server) begin(r *http.Request, p rest.Parameters, q *query) (ok bool, err error) {
	given := 0
	for _, name := range []string{"after", "cursor", "since", "last"} {
		if p.Has(name) {
			given++
		}
	}
	if given > 1 {
		return false, rest.BadParameter("after", log.ElementInvalid, "send one of them", "where to begin is said %d times", given)
	}
	switch id := r.Header.Get("Last-Event-ID"); {
	case id != "":
		q.cursor, err = lastEvent(r, s.store, id)
		q.after = q.cursor.Seq
		return true, err
	case p.Has("since"):
		q.after, err = s.beforeTime(q.filter.Since)
		return true, err
	case p.Has("last"):
		n, err := p.Number("last", 0, 1, maxLines)
		if err != nil {
			return false, err
		}
		q.after, err = s.back(r.Context(), q, n)
		return true, err
	}
	return false, nil
}

// timeSet returns the entry by which the log's time was set last; 0: none.
func (s *Server) timeSet() (last log.Seq) {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if r, ok := state.Get(log.KindSetting, projections.SettingClusterTime); ok {
			last = r.Seq
		}
	})
	return last
}

// beforeTime returns the seq of the last entry before a time. Times decrease along the
// log only where they were set. Then it is that of the newest stretch between two such
// places that had begun by then, as for ?at.
func (s *Server) beforeTime(at log.Time) (log.Seq, error) {
	low, high := s.store.Floor(), s.store.Head().Seq // before ≤ low, after > high
	if set := s.timeSet(); set > low && s.cfg.Past != nil {
		seq, err := s.cfg.Past.SeqAt(at - 1)
		if errors.Is(err, log.ErrCompacted) {
			return low, nil
		}
		return seq, err
	}
	for low < high {
		middle := low + (high-low)/2 + 1
		entries, err := s.store.Entries(middle-1, 1)
		if err != nil {
			return 0, err
		}
		event, err := entries[0].Event()
		if err != nil {
			return 0, err
		}
		if event.Time < at {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, nil
}

// back returns the seq before the last n matching entries of the last maxBack entries,
// or of as many as the client's budget allows.
func (s *Server) back(ctx context.Context, q *query, n uint64) (log.Seq, error) {
	floor, end := s.store.Floor(), s.store.Head().Seq
	least := floor
	// The next window may read as much again as the last one.
	if most := log.Seq(max(1, min(maxBack, q.accounts.Look(0)/2))); end-floor > most {
		least = end - most
	}
	q.counting = true
	defer func() { q.counting = false }()
	for window := log.Seq(logread.ReadEntries); ; window *= 2 {
		from := least
		if end-least > window {
			from = end - window
		}
		var found []log.Seq
		for at := from; at < end; {
			f, err := s.scan(ctx, q, at)
			if err != nil {
				return 0, err
			}
			for _, it := range f.items {
				if it.Seq <= end {
					found = append(found, it.Seq)
				}
			}
			if at = f.upTo; f.past || !f.looked {
				break
			}
		}
		if uint64(len(found)) >= n {
			return found[uint64(len(found))-n] - 1, nil
		}
		if from == least {
			return from, nil
		}
	}
}
