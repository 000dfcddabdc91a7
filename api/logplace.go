package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"rutter/log"
)

// maxBack bounds the entries that ?last looks through for those that match.
const maxBack = 1_000_000

// eventStream is the media type of server-sent events (WHATWG HTML §9.2).
const eventStream = "text/event-stream"

// wantsEvents reports whether the client asks for server-sent events.
func wantsEvents(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), eventStream)
}

// begin finds where to begin, if the request says so in another way than by
// after or cursor: by the id of the last event that the client saw, by time, or
// by how many entries it wants. ok is false if it does not.
func (s *Server) begin(r *http.Request, p parameters, q *logQuery) (ok bool, err error) {
	ways := 0
	for _, name := range []string{"after", "cursor", "since", "last"} {
		if p.has(name) {
			ways++
		}
	}
	if ways > 1 {
		return false, badParameter("after", log.ElementInvalid, "send one of them", "where to begin is said %d times", ways)
	}
	switch id := r.Header.Get("Last-Event-ID"); {
	case id != "": // a client that comes back repeats its query as well
		seq, err := log.ParseSeq(id)
		if err != nil {
			return false, fail(http.StatusBadRequest, codeBadRequest, "send the id of an event that a server sent", "header Last-Event-ID: %v", err)
		}
		q.after = seq
		return true, s.servable(seq)
	case p.has("since"):
		at, err := log.ParseTime(p.text("since"))
		if err != nil {
			return false, badParameter("since", log.ElementInvalid, "send RFC 3339, as in 2026-11-21T09:00:00Z", "%v", err)
		}
		q.after, err = s.beforeTime(at)
		return true, err
	case p.has("last"):
		n, err := p.number("last", 0, 1, maxLines)
		if err != nil {
			return false, err
		}
		q.after, err = s.back(q, n)
		return true, err
	}
	return false, nil
}

// servable says whether entries after seq can be had.
func (s *Server) servable(seq log.Seq) error {
	if head := s.store.Head().Seq; seq > head {
		return fmt.Errorf("after seq %d, and the head is %d: %w", seq, head, log.ErrAhead)
	}
	if floor := s.store.Floor(); seq < floor {
		return fmt.Errorf("after seq %d, and the floor is %d: %w", seq, floor, log.ErrCompacted)
	}
	return nil
}

// beforeTime returns the seq of the last entry before a time: times never go
// back along the log.
func (s *Server) beforeTime(at log.Time) (log.Seq, error) {
	low, high := s.store.Floor(), s.store.Head().Seq // before ≤ low, after > high
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

// back returns the seq before the last n entries that match, of the last maxBack.
func (s *Server) back(q *logQuery, n uint64) (log.Seq, error) {
	floor, end := s.store.Floor(), s.store.Head().Seq
	least := floor
	if end-floor > maxBack {
		least = end - maxBack
	}
	for window := log.Seq(readItems); ; window *= 2 {
		from := least
		if end-least > window {
			from = end - window
		}
		var found []log.Seq
		for place := from; place < end; {
			items, err := s.tail.after(place)
			if err != nil {
				return 0, err
			}
			if len(items) == 0 {
				break
			}
			for _, it := range items {
				if place = it.entry.Seq; place <= end && q.matches(it.event) {
					found = append(found, place)
				}
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

// end reads until where to go: a seq or a time, both inclusive.
func (q *logQuery) end(p parameters) error {
	if !p.has("until") {
		return nil
	}
	text := p.text("until")
	if seq, err := log.ParseSeq(text); err == nil {
		q.untilSeq = seq
		return nil
	}
	at, err := log.ParseTime(text)
	if err != nil || at == 0 {
		return badParameter("until", log.ElementInvalid, "send a seq, or a time as in 2026-11-21T09:00:00Z", "got %q", text)
	}
	q.untilTime = at
	return nil
}

// isPast reports whether the entry is beyond the end that was asked for.
func (q *logQuery) isPast(it *item) bool {
	return q.untilSeq > 0 && it.entry.Seq > q.untilSeq || q.untilTime > 0 && it.event.Time > q.untilTime
}

// appendEvent appends an entry as a server-sent event, whose id is its seq.
func appendEvent(b []byte, it *item, line []byte) []byte {
	b = append(b, "id: "...)
	b = strconv.AppendUint(b, uint64(it.entry.Seq), 10)
	b = append(b, "\nevent: "...)
	b = append(b, it.event.Kind.String()...)
	b = append(b, '.')
	b = append(b, it.event.Action.String()...)
	b = append(b, "\ndata: "...)
	b = append(b, line...) // one line, which ends with a newline
	return append(b, '\n')
}
