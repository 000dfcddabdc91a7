package logserver

import (
	"context"
	"fmt"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/logread"
	"rutter/log"
	logquery "rutter/log/query"
)

// Bounds of one step of reading the log.
const (
	// scanEntries is how many entries a filtered reading looks at between two looks
	// at whether anybody still waits for it, unless one change has more.
	scanEntries = 8192
	// mentionEntries is how many of those that the index names are read at once.
	mentionEntries = 256
	// clockEvery is after how many entries that are not selected the time is looked at.
	clockEvery = 256
)

// found is what a look at the log gave.
type found struct {
	items   []*logread.Decoded // those that the filter selects, in order
	upTo    log.Seq            // up to which everything was looked at
	chain   log.ChainPrefix
	looked  bool  // there was any
	past    bool  // none behind upTo is selected, whatever comes
	entries int   // how many were looked at
	left    int64 // that may still be, by who asks

	begun time.Time
}

// scan looks at the entries that follow a seq: a few of them, of which the
// filter may select none. Who follows close to the head shares what is decoded
// with all others; behind it, reads run in turns (scans), what the index names is
// all that is looked at if that is known, and else entries are matched as they are
// stored. Errors: as Store.Entries'.
func (s *Server) scan(ctx context.Context, q *query, after log.Seq) (f found, err error) {
	if q.follow && s.store.Head().Seq < after+logread.KeptEntries {
		f = found{upTo: after, left: 1 << 62, begun: time.Now()}
		items, err := s.tail.After(after)
		return f, f.lookAll(q, items, err)
	}
	err = s.guard.Scan(ctx, func() (err error) {
		f, err = s.scanStep(q, after)
		return err
	})
	f.left = q.accounts.Look(f.entries)
	return f, err
}

// scanStep is scan for who has the turn.
func (s *Server) scanStep(q *query, after log.Seq) (found, error) {
	f := found{upTo: after, begun: time.Now()}
	if index, is := s.store.(mentions); is && q.uuids != nil {
		entries, to, chain, ok, err := index.Mentions(q.uuids, after, mentionEntries)
		if ok || err != nil {
			f.entries++ // the index is looked at too
			return f, f.lookMentioned(q, entries, to, chain, err)
		}
	}
	if q.sees == nil && q.filter.IsAll() {
		items, err := s.tail.After(after)
		return f, f.lookAll(q, items, err)
	}
	entries, err := s.store.Entries(after, scanEntries)
	for _, e := range entries {
		if err = f.look(q, e, nil); err != nil || f.past || f.over() {
			break
		}
	}
	return f, err
}

// lookAll holds items against the filter.
func (f *found) lookAll(q *query, items []*logread.Decoded, err error) error {
	for _, it := range items {
		if err = f.look(q, it.Entry, it); err != nil || f.past || f.over() {
			break
		}
	}
	return err
}

// lookMentioned holds the entries that an index named against the filter. All
// others up to upTo are not selected.
func (f *found) lookMentioned(q *query, entries []log.Entry, upTo log.Seq, chain log.ChainPrefix, err error) error {
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err = f.judge(q, e, nil); err != nil || f.past || f.over() {
			return err
		}
	}
	f.looked, f.upTo, f.chain = true, upTo, chain
	return nil
}

// over reports whether the step has taken its time.
func (f *found) over() bool {
	return (f.entries%clockEvery == 0 || len(f.items) > 0) && time.Since(f.begun) > guard.ScanStep
}

// look is judge for the entry that follows upTo.
func (f *found) look(q *query, e log.Entry, it *logread.Decoded) error {
	if want := f.upTo + 1; e.Seq != want {
		return fmt.Errorf("entry %d where %d must be: %w", e.Seq, want, log.ErrCorrupt)
	}
	return f.judge(q, e, it)
}

// judge holds an entry against the filter, and keeps it if it is selected, with its
// line made. it is the entry's item, or nil if there is none yet.
func (f *found) judge(q *query, e log.Entry, it *logread.Decoded) error {
	f.looked = true
	f.entries++
	verdict, err := q.matcher.Match(e.Seq, e.Bytes)
	if err != nil {
		return fmt.Errorf("seq %d: %w", e.Seq, err)
	}
	if f.past = verdict == logquery.Past; f.past {
		return nil
	}
	f.upTo, f.chain = e.Seq, e.Hash.Prefix()
	if verdict != logquery.Hit {
		return nil
	}
	var event *log.Event
	if q.sees != nil {
		if event, err = e.Event(); err != nil || !q.sees(event) {
			return err
		}
	}
	if q.counting {
		f.items = append(f.items, &logread.Decoded{Entry: e})
		return nil
	}
	if it == nil {
		if event != nil {
			it = logread.WithEvent(e, event)
		} else if it, err = logread.Decode(e); err != nil {
			return err
		}
	}
	if _, err := it.Line(); err != nil {
		return err
	}
	f.items = append(f.items, it)
	return nil
}

// scanAt is scan from a position, which it moves along. What was read is of the log
// that the position is of, or there is an error.
func (s *Server) scanAt(ctx context.Context, q *query, at *logread.Position) (found, error) {
	f, err := s.scan(ctx, q, at.Seq)
	if other := at.Check(s.store); other != nil {
		return found{upTo: at.Seq}, other
	}
	if f.upTo > at.Seq {
		at.Advance(f.upTo, f.chain)
	}
	return f, err
}

// mentions is a Store with an index of which entries have a UUID in a field,
// before or after them: see raftstore.Store.Mentions.
type mentions interface {
	Mentions(uuids []log.UUID, after log.Seq, limit int) (entries []log.Entry, upTo log.Seq, chain log.ChainPrefix, ok bool, err error)
}
