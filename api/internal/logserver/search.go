package logserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/backend"
	"rutter/api/internal/logread"
	"rutter/api/internal/rest"
	"rutter/log"
	logquery "rutter/log/query"
)

// Bounds of one answer of GET /log/search. A client continues with the answer's next.
const (
	// maxFound is how many entries it has at most: some screens of them.
	maxFound = 1000
	// maxSearched is how many entries it looks at: more would not be ready within
	// searchTime on a processor that others need, too.
	maxSearched = 100_000
	// searchTime is after how long it ends with what it has.
	searchTime = 2 * time.Second
	// searchWindow is how many entries are read at once, the newest last.
	searchWindow = 512
	// maxFoundBytes is after how many bytes of entries it ends with what it has: one entry
	// may have some MiB, and the answer is made in memory.
	maxFoundBytes = 4 << 20
	// maxSought bounds the bytes of text.
	maxSought = 256
)

// SearchNames are the parameters of GET /log/search.
var SearchNames = append(logquery.Names(), "text", "before", "limit", "count")

// SearchForm is the answer to GET /log/search.
type SearchForm struct {
	// Entries are the newest ones, the newest first; none with count.
	Entries []json.RawMessage `json:"entries"`
	// Looked is how many entries were matched, Found how many of them are selected.
	Looked int `json:"looked"`
	Found  int `json:"found"`
	// Oldest is the oldest entry that was matched; 0: none was.
	Oldest log.Seq `json:"oldest"`
	// Next is what to send as before to go on; without it nothing older is left.
	Next *log.Cursor `json:"next,omitempty"`
	// Head is that of this server when it began. A reader of GET /log that begins after it
	// misses nothing between the two.
	Head log.Cursor `json:"head"`
	// Floor is the last entry that is kept no more.
	Floor log.Seq `json:"floor"`
}

// search is a query of GET /log/search under way.
type search struct {
	*query
	text   []byte    // in lower case; nil: every text
	limit  int       // of entries
	bytes  int       // of the entries that were found
	below  log.Seq   // entries of this seq and after it have been matched, or are not asked for
	low    log.Seq   // entries up to this one are not asked for
	oldest log.Entry // the last one that was matched: that of seq below
	form   SearchForm
}

// Search answers GET /log/search: entries that a filter selects from the whole log, the
// newest first, in answers of bounded cost.
func (s *Server) Search(w http.ResponseWriter, r *http.Request) error {
	q, err := s.parseSearch(r)
	if err != nil {
		return err
	}
	begun := time.Now()
	for full := false; !full && q.below > q.low+1; {
		if q.form.Looked >= maxSearched || time.Since(begun) > searchTime {
			break
		}
		if full, err = s.searchOn(r.Context(), q); err != nil {
			return err
		}
		if left := q.accounts.Look(0); left <= 0 {
			break
		}
	}
	// The log may have been replaced meanwhile.
	if err := s.store.CheckCursor(q.form.Head); err != nil && !errors.Is(err, log.ErrCompacted) {
		return err
	}
	if q.below > q.low+1 {
		q.form.Next = &log.Cursor{Cluster: q.form.Head.Cluster, Seq: q.below, Chain: q.oldest.Hash.Prefix()}
	}
	rest.SetSeq(w, q.form.Head.Seq)
	rest.WriteJSON(w, r, http.StatusOK, q.form)
	return nil
}

// parseSearch reads the query of GET /log/search.
func (s *Server) parseSearch(r *http.Request) (*search, error) {
	p, err := rest.Query(r, SearchNames...)
	if err != nil {
		return nil, err
	}
	q := &search{query: new(query)}
	if q.filter, err = s.filterOf(r, p); err != nil {
		return nil, err
	}
	n, err := p.Number("limit", maxFound, 1, maxFound)
	if err != nil {
		return nil, err
	}
	q.limit = int(n)
	if q.counting, err = p.Flag("count"); err != nil {
		return nil, err
	}
	if text := p.Text("text"); len(text) > maxSought {
		return nil, rest.BadParameter("text", log.ElementInvalid, "send a shorter one", "a text has at most %d bytes, and this has %d", maxSought, len(text))
	} else if text != "" {
		q.text = bytes.ToLower([]byte(text))
	}
	q.bind(s.guard, guard.GrantOf(r))
	q.form = SearchForm{Entries: []json.RawMessage{}, Head: s.store.Head(), Floor: s.store.Floor()}
	return q, s.bounds(r, p, q)
}

// bounds sets between which seqs a search looks: before, until and since say so.
func (s *Server) bounds(r *http.Request, p rest.Parameters, q *search) error {
	q.low, q.below = q.form.Floor, q.form.Head.Seq+1
	if q.filter.Since > 0 {
		low, err := s.beforeTime(q.filter.Since)
		if err != nil {
			return err
		}
		q.low = max(q.low, low)
	}
	if until := q.filter.UntilSeq; until > 0 {
		q.below = min(q.below, until+1)
	}
	if q.filter.Until > 0 && q.filter.TimeSet == 0 {
		last, err := s.beforeTime(q.filter.Until + 1)
		if err != nil {
			return err
		}
		q.below = min(q.below, last+1)
	}
	if !p.Has("before") {
		return nil
	}
	var seq log.Seq
	if text := p.Text("before"); backend.IsCursor(text) {
		cursor, err := log.ParseCursor(text)
		if err != nil {
			return rest.BadParameter("before", log.ElementInvalid, "send the next of an answer as it was, or a seq", "%v", err)
		}
		if err := backend.CheckCursor(r.Context(), s.store, cursor); err != nil {
			return err
		}
		seq = cursor.Seq
	} else {
		n, err := p.Number("before", 0, 1, 1<<64-1)
		if err != nil {
			return err
		}
		seq = log.Seq(n)
	}
	q.below = min(q.below, seq)
	return nil
}

// searchOn matches the entries of one window below what was matched, in its turn. full
// means that the answer has as many entries as it may.
func (s *Server) searchOn(ctx context.Context, q *search) (full bool, err error) {
	looked := 0
	err = s.guard.Scan(ctx, func() error {
		begun := time.Now()
		from := q.low
		if q.below-1-from > searchWindow {
			from = q.below - 1 - searchWindow
		}
		entries, err := s.store.Entries(from, searchWindow)
		if floor := s.store.Floor(); errors.Is(err, log.ErrCompacted) && floor > from {
			q.low, q.form.Floor = floor, floor // what is older was deleted meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		for i := len(entries) - 1; i >= 0; i-- {
			e := entries[i]
			if e.Seq >= q.below {
				continue // a change is read whole
			}
			looked++
			if err := q.look(e); err != nil {
				return err
			}
			if full = !q.counting && (q.form.Found >= q.limit || q.bytes >= maxFoundBytes); full || looked%clockEvery == 0 && time.Since(begun) > guard.ScanStep {
				break
			}
		}
		return nil
	})
	q.form.Looked += looked
	q.accounts.Look(looked)
	return full, err
}

// look matches the entry below those that were matched.
func (q *search) look(e log.Entry) error {
	counting := q.counting
	defer func() { q.counting = counting }()
	q.counting = counting && q.text == nil // a text is sought in the line
	var f found
	if err := f.judge(q.query, e, nil); err != nil {
		return err
	}
	q.below, q.oldest, q.form.Oldest = e.Seq, e, e.Seq
	for _, it := range f.items {
		ok, err := q.has(it)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		q.form.Found++
		if !counting {
			line, err := it.Line()
			if err != nil {
				return err
			}
			q.form.Entries, q.bytes = append(q.form.Entries, bytes.TrimSpace(line)), q.bytes+len(line)
		}
	}
	return nil
}

// has reports whether the line of an entry, as the client may see it, has the text.
func (q *search) has(it *logread.Decoded) (bool, error) {
	if q.text == nil {
		return true, nil
	}
	line, err := it.Line()
	return bytes.Contains(bytes.ToLower(line), q.text), err
}
