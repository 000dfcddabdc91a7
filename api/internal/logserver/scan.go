package logserver

import (
	"context"
	"fmt"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/internal/logread"
	"rutter/log"
	logquery "rutter/log/query"
)

// Bounds of one step of reading the log.
const (
	// scanEntries is how many entries a filtered read matches before it checks whether
	// the client is still there, unless one change has more.
	scanEntries = 8192
	// mentionEntries is how many of the entries that the index names are read at once.
	mentionEntries = 256
	// clockEvery is after how many unselected entries the clock is read.
	clockEvery = 256
)

// found is the result of a step.
type found struct {
	items   []*logread.Decoded // those that the filter selects, in order
	upTo    log.Seq            // up to which every entry was matched
	chain   log.ChainPrefix
	looked  bool  // there were entries
	past    bool  // no entry after upTo can be selected
	entries int   // how many were looked at
	left    int64 // that the client's budget still allows

	begun time.Time
}

// scan matches some entries after a seq; the filter may select none of them. A follower
// close to the head shares the decoded entries with all others. Further back, reads run
// in turns (guard.Scan). If the index names the entries, only those are read; else
// entries are matched in stored form. Errors: as Store.Entries'.
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

// scanStep is scan during its turn.
func (s *Server) scanStep(q *query, after log.Seq) (found, error) {
	f := found{upTo: after, begun: time.Now()}
	if index, is := s.store.(mentions); is && q.uuids != nil {
		entries, to, chain, ok, err := index.Mentions(q.uuids, after, mentionEntries)
		if ok || err != nil {
			f.entries++ // the lookup in the index counts too
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

// lookAll matches items with the filter.
func (f *found) lookAll(q *query, items []*logread.Decoded, err error) error {
	for _, it := range items {
		if err = f.look(q, it.Entry, it); err != nil || f.past || f.over() {
			break
		}
	}
	return err
}

// lookMentioned matches the entries that an index named. All others up to upTo are not
// selected.
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

// over reports whether the step has used its time.
func (f *found) over() bool {
	return (f.entries%clockEvery == 0 || len(f.items) > 0) && time.Since(f.begun) > guard.ScanStep
}

// look is judge for the entry after upTo.
func (f *found) look(q *query, e log.Entry, it *logread.Decoded) error {
	if want := f.upTo + 1; e.Seq != want {
		return fmt.Errorf("entry %d where %d must be: %w", e.Seq, want, log.ErrCorrupt)
	}
	return f.judge(q, e, it)
}

// judge matches an entry, and keeps it with its line if it is selected. it is the
// entry's item, or nil if there is none yet.
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
		if shown := q.shown(event); shown != event {
			event, it = shown, nil // the item of all followers has the whole line
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

// scanAt is scan from a position, which it advances. What it returns without an error
// is of the position's log.
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
