package api

import (
	"fmt"

	"rutter/log"
	logquery "rutter/log/query"
)

// scanEntries is how many entries a filtered reading looks at between two looks
// at whether anybody still waits for it, unless one change has more.
const scanEntries = 8192

// found is what a look at the log gave.
type found struct {
	items  []*item         // those that the filter selects, in order
	place  log.Seq         // of the last entry that was looked at
	chain  log.ChainPrefix // there
	looked bool            // there was any
	past   bool            // none behind place is selected, whatever comes
}

// scan looks at the entries that follow a place: a few of them, of which the
// filter may select none. Whoever is close to the head shares what is decoded
// with all others; behind it, entries are matched as they are stored, and those
// that are not selected cost nothing else. Errors: as Store.Entries'.
func (s *Server) scan(q *logQuery, place log.Seq) (found, error) {
	f := found{place: place}
	if q.filter.IsAll() || q.follow && s.store.Head().Seq < place+tailItems {
		items, err := s.tail.after(place)
		for _, it := range items {
			if err = f.look(q, it.entry, it); err != nil || f.past {
				break
			}
		}
		return f, err
	}
	entries, err := s.store.Entries(place, scanEntries)
	for _, e := range entries {
		if err = f.look(q, e, nil); err != nil || f.past {
			break
		}
	}
	return f, err
}

// look holds an entry against the filter, and keeps it if it is selected. it is
// the entry's item, or nil if there is none yet.
func (f *found) look(q *logQuery, e log.Entry, it *item) error {
	if want := f.place + 1; e.Seq != want {
		return fmt.Errorf("entry %d where %d must be: %w", e.Seq, want, log.ErrCorrupt)
	}
	f.looked = true
	verdict, err := q.matcher.Match(e.Seq, e.Bytes)
	if err != nil {
		return fmt.Errorf("seq %d: %w", e.Seq, err)
	}
	if f.past = verdict == logquery.Past; f.past {
		return nil
	}
	f.place, f.chain = e.Seq, e.Hash.Prefix()
	if verdict != logquery.Hit {
		return nil
	}
	if it == nil {
		if it, err = newItem(e); err != nil {
			return err
		}
	}
	f.items = append(f.items, it)
	return nil
}
