package window

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"rutter/log"
	"rutter/raftstore/internal/digest"
)

const (
	rigAge   = 10 * time.Minute
	rigCount = 24
	rigGood  = 0 // the author with a right clock, who stays within a share
	rigAsked = 4 // authors
)

// windowRig has one window that runs on, and one that is now and then read anew
// from its file; both are asked the same. The model is what was applied.
type windowRig struct {
	t    *rapid.T
	db   *bbolt.DB
	head Head

	running, reread *Window
	units           []*Batch // that the file was not told of
	rows            map[log.UUID][]byte
	now             log.Time
	oldest          log.Time // what was applied before it was forgotten, some time
	number          uint64   // of the newest result
	ids             uint64   // how many were made

	applied map[log.UUID]modelChange
	order   []log.UUID // of applied
	legacy  bool       // there was something before log.FeatureContained
	highest log.Time   // that the time ever was
}

type modelChange struct {
	change log.Change
	asker  log.Asker
	author int
	number uint64
	at     log.Time // when it was applied
	first  bool     // below log.FeatureContained
}

func newWindowRig(t *rapid.T, path string, contained bool) *windowRig {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &windowRig{t: t, db: db, now: log.Time(1_700_000_000 * int64(time.Second)), applied: make(map[log.UUID]modelChange), rows: make(map[log.UUID][]byte), legacy: !contained}
	if r.head.Feature = log.FeatureFirst; contained {
		r.head.Feature = log.FeatureContained
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(BucketChanges)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.running = New(rigAge, rigCount, log.UUID{})
	r.running.contained = contained
	r.running.Advance(r.now)
	r.reload()
	return r
}

// reload brings the file up to date, and reads the second window from it.
func (r *windowRig) reload() {
	r.head.Time, r.head.Trimmed = r.running.now, r.running.trimmed
	err := r.db.Update(func(tx *bbolt.Tx) error {
		defer func() { r.units = nil }()
		return Write(tx, r.units, new(log.Room), func() {})
	})
	if err != nil {
		r.t.Fatal(err)
	}
	err = r.db.View(func(tx *bbolt.Tx) (err error) {
		if r.head.Leaps, err = DecodeLeaps(EncodeLeaps(r.running.leaps)); err != nil {
			return err
		}
		r.reread, err = Load(tx, rigAge, rigCount, &r.head)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.compare()
}

// save notes what a step has changed.
func (r *windowRig) save(results []Result) {
	u := &Batch{Results: results, Changes: r.running.TakeChanges()}
	if !r.running.contained {
		u.Trimmed = r.running.trimmed
	}
	r.reread.TakeChanges()
	r.units = append(r.units, u)
	for _, row := range results {
		r.rows[row.ID] = row.Value
	}
	r.compare()
}

func (r *windowRig) compare() {
	a, b := r.running, r.reread
	if a.sum != b.sum || a.trimmed != b.trimmed || len(a.known) != len(b.known) || !slices.Equal(a.leaps, b.leaps) {
		r.t.Fatalf("a window that was read from its file is another one: %d ids, trimmed %s, leaps %v; want %d, %s, %v",
			len(b.known), b.trimmed, b.leaps, len(a.known), a.trimmed, a.leaps)
	}
	if len(a.known) > rigCount {
		r.t.Fatalf("%d ids are remembered, want %d at most", len(a.known), rigCount)
	}
}

// both does something to both windows.
func (r *windowRig) both(fn func(w *Window)) {
	fn(r.running)
	fn(r.reread)
}

// id makes an id of a time.
func (r *windowRig) id(at log.Time) log.UUID {
	r.ids++
	id := NewID(at.Std())
	id[6], id[7] = 0x70, 0
	binary.BigEndian.PutUint64(id[8:], r.ids)
	id[8] = 0x80 | byte(rapid.IntRange(0, 3).Draw(r.t, "random"))<<4
	return id
}

// send applies a change, as applyChange does it, and checks the answer.
func (r *windowRig) send(author int, c *log.Change) (refused *log.Refusal) {
	c.Actor = fmt.Sprintf("operator:%d", author)
	asker := c.Asker()
	was, done := r.applied[c.ID]
	r.oldest = max(r.oldest, r.now-log.Time(rigAge))
	var value []byte
	var outcome string
	for i, w := range []*Window{r.running, r.reread} {
		w.Advance(r.now)
		var answer string
		if at, known := w.known[c.ID]; known {
			answer = r.known(w, c, asker, &w.ids[at], was, done)
			if answer == log.CodeIDReused {
				refused = IDReused(c.ID)
			}
		} else if refused = w.Check(c.ID, asker, r.now); refused != nil {
			answer = refused.Error()
		} else {
			answer = "new"
			if done && (was.first || was.asker == asker) {
				r.t.Fatalf("%s would be applied twice: first at %s by author %d, now at %s by %d", c.ID, was.at, was.author, r.now, author)
			}
			if value == nil {
				r.number++
				row := Row{r.now, asker, c.Content, binary.BigEndian.AppendUint64([]byte{log.FormatVersion}, r.number)}
				if value = row.Result; w.contained {
					value = row.Encode()
				}
			}
			w.Add(c.ID, value, r.number)
		}
		if i > 0 && answer != outcome {
			r.t.Fatalf("%s: %q, and after a restart %q", c.ID, outcome, answer)
		}
		outcome = answer
	}
	var results []Result
	if value != nil {
		results = []Result{{c.ID, value}}
		r.applied[c.ID] = modelChange{*c, asker, author, r.number, r.now, !r.running.contained}
		r.order = append(r.order, c.ID)
	}
	r.save(results)
	return refused
}

// known is the answer to an id that a window knows.
func (r *windowRig) known(w *Window, c *log.Change, asker log.Asker, at *Known, was modelChange, done bool) string {
	if !done {
		r.t.Fatalf("%s is known, and was never applied", c.ID)
	}
	value, fresh := w.Result(at)
	if !fresh {
		value = r.rows[c.ID]
	}
	if digest.Of(c.ID[:], value) != at.hash {
		r.t.Fatalf("%s: a row of another hash than was remembered", c.ID)
	}
	row := OpenRow(c.ID, value)
	if !row.Is(c, asker) {
		return log.CodeIDReused
	}
	if !was.first && (was.asker != asker || was.change.Content != c.Content) {
		r.t.Fatalf("%s of author %d got the result of another change, of author %d", c.ID, asker, was.author)
	}
	if got := binary.BigEndian.Uint64(row.Result[1:]); got != was.number {
		r.t.Fatalf("%s got result %d, its own is %d", c.ID, got, was.number)
	}
	return "first result"
}

// goodShare is how many ids of the good author are remembered.
func (r *windowRig) goodShare() (n int) {
	r.oldest = max(r.oldest, r.now-log.Time(rigAge))
	for _, m := range r.applied {
		if m.author == rigGood && m.at >= r.oldest {
			n++
		}
	}
	return n
}

func (r *windowRig) duration(name string, of ...time.Duration) log.Time {
	return log.Time(rapid.SampledFrom(of).Draw(r.t, name))
}

// good: an author whose clock is right and who stays within a share is never refused,
// and a retry has its first result, whatever others do.
func (r *windowRig) good() {
	content := log.Content{1}
	// If time was set back by more than ids are taken for, what is forgotten is of a
	// time that has not come.
	judged := !r.legacy && r.highest-r.now < log.Time(rigAge-r.running.ahead)
	if r.goodShare() < rigCount/rigAsked {
		c := &log.Change{ID: r.id(r.now + r.duration("good clock", -5*time.Second, 0, 5*time.Second)), Content: content}
		if refused := r.send(rigGood, c); refused != nil && judged {
			r.t.Fatalf("the author with the right clock was refused: %v", refused)
		}
	}
	var own []modelChange
	for _, id := range r.order {
		if m := r.applied[id]; m.author == rigGood && m.at >= r.oldest {
			own = append(own, m)
		}
	}
	if len(own) > 0 {
		m := own[rapid.IntRange(0, len(own)-1).Draw(r.t, "retry")]
		if refused := r.send(rigGood, &log.Change{ID: m.change.ID, Content: content}); refused != nil && judged {
			r.t.Fatalf("a retry after %v was refused: %v", time.Duration(r.now-m.at), refused)
		}
	}
}

// others write with clocks that lie, in bursts, and send anew what they and others
// sent before, as it was or altered.
func (r *windowRig) others() {
	author := rapid.IntRange(1, rigAsked-1).Draw(r.t, "author")
	off := r.duration("clock", 0, -time.Minute, -rigAge, -3*rigAge, 30*time.Second, 59*time.Second, time.Minute, 2*time.Minute, rigAge)
	for range rapid.SampledFrom([]int{1, 2, rigCount + 3}).Draw(r.t, "burst") {
		at := r.now + off + r.duration("jitter", 0, time.Millisecond, time.Second, -time.Second)
		r.send(author, &log.Change{ID: r.id(at), Content: log.Content{2}})
	}
}

func (r *windowRig) again() {
	if len(r.order) == 0 {
		return
	}
	m := r.applied[r.order[rapid.IntRange(0, len(r.order)-1).Draw(r.t, "again")]]
	author := m.author
	if rapid.IntRange(0, 3).Draw(r.t, "by another") == 0 {
		author = rapid.IntRange(1, rigAsked-1).Draw(r.t, "author")
	}
	if author != m.author {
		if _, known := r.running.known[m.change.ID]; !known {
			return // an id that was forgotten is a new one of another author's
		}
	}
	content := m.change.Content
	if rapid.IntRange(0, 3).Draw(r.t, "altered") == 0 {
		content[15]++
	}
	r.send(author, &log.Change{ID: m.change.ID, Content: content})
}

// setBack takes the time back. What was applied in a time that is taken back by more
// than ids are remembered for is forgotten: its ids are refused as being ahead.
func (r *windowRig) setBack() {
	back := r.duration("back", time.Second, time.Minute, rigAge-rigAge/10, rigAge, 2*rigAge, 30*rigAge, 1000*rigAge)
	to := r.now - back
	r.both(func(w *Window) { w.TimeSetBack(to) })
	if back > log.Time(rigAge) {
		for id := range r.applied {
			if ms, _ := id.UnixMilli(); log.Time(ms*1e6) > to+log.Time(r.running.ahead) {
				if _, known := r.running.known[id]; !known {
					delete(r.applied, id)
				}
			}
		}
		r.order = slices.DeleteFunc(r.order, func(id log.UUID) bool { _, ok := r.applied[id]; return !ok })
	}
	r.highest, r.now = max(r.highest, r.now), to
	r.save(nil)
}

// TestWindowRemembers holds the promise of docs/safety.md, T2, with clients whose
// clocks lie, several authors, a time that jumps and is set back, and restarts: no
// change is applied twice or gets another one's result, and an author whose clock is
// right and who stays within a share is never refused because of others.
func TestWindowRemembers(t *testing.T) {
	t.Parallel()
	dir, number := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		number++
		r := newWindowRig(t, filepath.Join(dir, fmt.Sprint(number)), rapid.IntRange(0, 3).Draw(t, "begins contained") > 0)
		defer r.db.Close()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			case 0, 1, 2:
				r.good()
			case 3, 4, 5:
				r.others()
			case 6, 7:
				r.again()
			case 8, 9:
				r.now += r.duration("forward", time.Millisecond, time.Second, 30*time.Second, rigAge/2, rigAge+time.Second, 500*rigAge)
			case 10:
				r.reload()
			case 11:
				if !r.running.contained {
					r.both(func(w *Window) { w.BecomeContained(w.now) })
					r.head.Feature = log.FeatureContained
					r.save(nil)
				} else {
					r.setBack()
				}
			}
		}
	})
}

// A window is trimmed by time: what is older than an hour is gone, by the cluster's
// time at which it was applied and whatever the ids say, and so are lines.
func TestWindowIsTrimmedByTime(t *testing.T) {
	t.Parallel()
	for _, contained := range []bool{false, true} {
		w := New(time.Hour, 100, log.UUID{})
		w.contained = contained
		now := log.TimeOf(time.Now())
		add := func(off time.Duration, asker log.Asker) log.UUID {
			id := NewID((now + log.Time(off)).Std())
			row := Row{Applied: now, Asker: asker, Result: []byte{log.FormatVersion}}
			value := row.Result
			if contained {
				value = row.Encode()
			}
			w.Advance(now)
			w.Add(id, value, 1)
			return id
		}
		var low log.UUID
		for i := range 150 {
			id := add(time.Duration(i-75)*time.Second/2, log.Asker{1})
			if i == 49 {
				low = id
			}
		}
		if contained && w.lowMarkOf(log.Asker{1}) != low {
			t.Errorf("the line is %s, want %s", w.lowMarkOf(log.Asker{1}), low)
		}
		now += log.Time(30 * time.Minute)
		for i := range 10 {
			add(time.Duration(i)*time.Second, log.Asker{2})
		}
		now += log.Time(29 * time.Minute)
		w.Advance(now)
		if n := len(w.known); contained && n != 100 {
			t.Errorf("after 59 min %d ids, want all 100", n)
		}
		now += log.Time(2 * time.Minute)
		w.Advance(now)
		if n := len(w.known); n != 10 {
			t.Errorf("contained %t: after 61 min %d ids, want the 10 of 31 min ago", contained, n)
		}
		if contained && w.authors.lowMarks() != 0 {
			t.Errorf("after 61 min there are %d lines, want none", w.authors.lowMarks())
		}
		now += log.Time(time.Hour)
		w.Advance(now)
		if len(w.known) != 0 || len(w.authors.indexes) > 1 || contained && w.sum != leapsHash(w.leaps) {
			t.Errorf("contained %t: after two hours %d ids of %d authors are remembered, sum %v", contained, len(w.known), len(w.authors.indexes), w.sum)
		}
	}
}

// Lines are bounded: the lowest one goes, and from then on it concerns all authors.
func TestWindowLinesAreBounded(t *testing.T) {
	t.Parallel()
	w := New(time.Hour, 10, log.UUID{})
	w.contained = true
	now := log.TimeOf(time.Now())
	w.Advance(now)
	var first log.UUID
	for i := range maxLowMarks + 20 {
		var asker log.Asker
		binary.BigEndian.PutUint32(asker[:], uint32(i+1))
		for range 12 { // two more than there is room for: this author loses some
			row := Row{Applied: now, Asker: asker, Result: []byte{log.FormatVersion}}
			id := NewID((now + log.Time(i)*log.Time(time.Millisecond)).Std())
			w.Add(id, row.Encode(), 1)
			if i == 0 {
				first = id
			}
		}
	}
	if n := w.authors.lowMarks(); n != maxLowMarks {
		t.Errorf("%d lines, want %d", n, maxLowMarks)
	}
	if bytes.Compare(w.trimmed[:6], first[:6]) < 0 {
		t.Errorf("trimmed is %s, want the lines of the first authors, as %s", w.trimmed, first)
	}
}

// What changes.db is told of one entry stays as it is: the persister reads it while
// the next entry is applied.
func TestWindowChangesAreOfOneEntry(t *testing.T) {
	t.Parallel()
	w := New(time.Hour, 10, log.UUID{})
	w.contained = true
	of := w.TakeChanges() // an entry that draws no line
	w.setLowMark(log.Asker{1}, NewID(time.Now()))
	if len(of.lowMarks) != 0 {
		t.Errorf("the entry before is told of %d lines, want none", len(of.lowMarks))
	}
	if next := w.TakeChanges(); len(next.lowMarks) != 1 {
		t.Errorf("the entry that draws a line is told of %d, want it", len(next.lowMarks))
	}
}

// A refusal that says that a change may have been applied already has no advice to
// send it anew.
func TestRefusalsAdviseNothing(t *testing.T) {
	t.Parallel()
	w := New(time.Hour, 10, log.UUID{})
	w.contained = true
	now := log.TimeOf(time.Now())
	w.trimmed = NewID((now - log.Time(time.Minute)).Std())
	w.setLowMark(log.Asker{7}, NewID(now.Std()))
	for _, at := range []log.Time{now - log.Time(2*time.Hour), now - log.Time(2*time.Minute), now - log.Time(time.Second)} {
		refusal := w.Check(NewID(at.Std()), log.Asker{7}, now)
		if refusal == nil || refusal.Code != log.CodeTooOld {
			t.Fatalf("an id of %s: %v, want it refused as too old", at, refusal)
		}
		if text := refusal.Error(); !strings.Contains(text, "may have been applied already") || strings.Contains(text, "new id") || strings.Contains(text, "split") {
			t.Errorf("%q: want that it may have been applied, and no advice to send it anew", text)
		}
	}
	ahead := w.Check(NewID((now + log.Time(time.Hour)).Std()), log.Asker{7}, now)
	if ahead == nil || !strings.Contains(ahead.Error(), "the client's clock") || !strings.Contains(ahead.Error(), "the cluster's clock") {
		t.Errorf("an id from ahead: %v, want both clocks named", ahead)
	}
}
