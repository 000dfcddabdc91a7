package liveness

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// Memory is how long an ended session is remembered, so that an older session of the
// same CN is recognised as older. After that time no late message is in transit.
const Memory = 10 * time.Minute

// maxGone bounds the sessions that are remembered after their end.
const maxGone = 1 << 16

// Table holds the newest session of each CN with this server.
type Table struct {
	run uint64
	now func() time.Time

	mu      sync.Mutex // protects what follows
	version uint64     // of the last change
	rows    map[log.UUID]*list.Element
	order   *list.List // of *row, by version
	gone    int
	changed chan struct{} // closed at the next change; nil if none waits for it
	wanted  func(seq log.Seq, cns []log.UUID)
}

type row struct {
	session  Session
	lastSign time.Time
	version  uint64
	listed   uint64 // the version with which its list became what it is
}

// NewTable returns an empty table. run names this process: one that was started
// later must have another. now tells the time; only differences are used.
func NewTable(run uint64, now func() time.Time) *Table {
	return &Table{run: run, now: now, rows: make(map[log.UUID]*list.Element), order: list.New()}
}

// OnWanted sets fn to be called when a barrier waits until some CNs have programmed
// seq: the server must then ask their sessions for their progress. No cns means all. fn
// must not block, and may be called from any goroutine.
func (t *Table) OnWanted(fn func(seq log.Seq, cns []log.UUID)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = fn
}

// want reports that a barrier waits.
func (t *Table) want(p poll) {
	t.mu.Lock()
	fn := t.wanted
	t.mu.Unlock()
	if fn != nil && p.wanted > 0 {
		fn(p.wanted, p.cns)
	}
}

// Put stores the present state of a session. It returns false and changes nothing if a
// newer session of the CN is known, or if this one has already ended.
func (t *Table) Put(s Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.rows[s.CN]
	if e == nil {
		e = t.order.PushBack(new(row))
		t.rows[s.CN] = e
	} else if old := &e.Value.(*row).session; old.Compare(&s) > 0 || old.Compare(&s) == 0 && old.Gone {
		return false
	} else if old.Gone {
		t.gone--
	}
	r := e.Value.(*row)
	t.version++
	if s.List != r.session.List || r.session.Compare(&s) != 0 || r.listed == 0 {
		r.listed = t.version
	}
	if !s.Gone { // its end is not a sign of life
		r.lastSign = t.now()
	}
	r.session, r.version = s, t.version
	t.order.MoveToBack(e)
	if s.Gone {
		t.gone++
		t.forget()
	}
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	return true
}

// Touch records a sign of the CN on that session. It does not count as a change.
func (t *Table) Touch(cn log.UUID, incarnation, number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.rows[cn]; e != nil {
		r := e.Value.(*row)
		if s := &r.session; s.Incarnation == incarnation && s.Number == number && !s.Gone {
			r.lastSign = t.now()
		}
	}
}

// Live returns the CNs that have a session with this server, sorted.
func (t *Table) Live() []log.UUID {
	t.mu.Lock()
	defer t.mu.Unlock()
	var cns []log.UUID
	for cn, e := range t.rows {
		if !e.Value.(*row).session.Gone {
			cns = append(cns, cn)
		}
	}
	slices.SortFunc(cns, log.UUID.Compare)
	return cns
}

// forget drops the oldest ended sessions that are over Memory or maxGone.
func (t *Table) forget() {
	now := t.now()
	for e := t.order.Front(); e != nil && t.gone > 0; {
		r, next := e.Value.(*row), e.Next()
		if r.session.Gone {
			if now.Sub(r.lastSign) < Memory && t.gone <= maxGone {
				return
			}
			t.order.Remove(e)
			delete(t.rows, r.session.CN)
			t.gone--
		}
		e = next
	}
}

// poll answers a poll: at once if many sessions changed, else after the time in the
// poll, with what has changed until then.
func (t *Table) poll(ctx context.Context, p poll) *pollAnswer {
	began := time.Now()
	t.want(p)
	if pause(ctx, p.atLeast) {
		for {
			t.mu.Lock()
			if t.changed == nil {
				t.changed = make(chan struct{})
			}
			fresh, changed := p.run == t.run && p.since >= t.version, t.changed
			t.mu.Unlock()
			left := p.atMost - time.Since(began)
			if !fresh || left <= 0 {
				break
			}
			timer := time.NewTimer(left)
			select {
			case <-changed:
				timer.Stop()
				continue
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
			break
		}
	}
	return t.since(p)
}

// pause waits, and reports whether ctx is still valid.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// since returns what changed after the asker's version, oldest first.
func (t *Table) since(p poll) *pollAnswer {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &pollAnswer{run: t.run, version: t.version}
	if p.run != t.run {
		a.full, p.since = true, 0
	}
	e := t.order.Back()
	if e == nil || e.Value.(*row).version <= p.since {
		return a
	}
	for before := e.Prev(); before != nil && before.Value.(*row).version > p.since; before = e.Prev() {
		e = before
	}
	now, lists := t.now(), 0
	for ; e != nil; e = e.Next() {
		r := e.Value.(*row)
		if n := len(a.rows); n == MaxRows || lists > maxLists {
			a.version, a.more = a.rows[n-1].version(t), true
			return a
		}
		said := Reported{Session: r.session, Silent: now.Sub(r.lastSign).Truncate(time.Millisecond)}
		if said.listed = said.List != 0 && r.listed > p.since; !said.listed {
			said.Waits = nil
		}
		lists += feed.WaitsBytes(said.Waits)
		a.rows = append(a.rows, said)
	}
	return a
}

func (r *Reported) version(t *Table) uint64 { return t.rows[r.CN].Value.(*row).version }
