package oracle

import (
	"cmp"
	"slices"
	"time"

	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/projections"
)

// past is what was seen, in order.
type past struct {
	records  []seen.Record
	logs     map[string]seen.Entries // of each server, at the end
	entries  []entry                 // the longest of them, which is the witness
	changes  map[log.UUID]*change
	restored []int // the places of the records of restores
}

// entry is one of the witness, decoded. The event is nil if it cannot be.
type entry struct {
	log.Entry
	event *log.Event
}

// change is what became of one change, whose client may have sent it several times.
type change struct {
	id       log.UUID
	ops      []log.Op
	who      string
	begun    int // the place of the first record about it
	from     time.Duration
	attempts []attempt // in order
}

type attempt struct {
	n int // its record
	seen.Write
}

// withoutLate marks what arrived of a stream after a restore and was sent before it: the
// packets of a connection that was cut off are delivered when the network heals, also if the
// server that sent them has ended. On the same connection nothing of the new log can come.
func withoutLate(records []seen.Record) []seen.Record {
	marked := slices.Clone(records)
	restored, begun := -1, make(map[string]int)
	for i, r := range records {
		var stream string
		switch e := r.Event.(type) {
		case seen.Restored:
			restored = i
		case seen.StreamBegun:
			begun[e.Stream] = i
		case seen.Item:
			stream = e.Stream
		case seen.Bookmark:
			stream = e.Stream
		case seen.Scope:
			stream = e.Stream
		}
		if from, ok := begun[stream]; ok && from < restored {
			marked[i].Event = seen.Late{Event: r.Event}
		}
	}
	return marked
}

func newPast(records []seen.Record) *past {
	records = withoutLate(records)
	p := &past{records: records, logs: make(map[string]seen.Entries), changes: make(map[log.UUID]*change)}
	for i, r := range records {
		switch e := r.Event.(type) {
		case seen.Entries:
			p.logs[r.Who] = e
		case seen.Restored:
			p.restored = append(p.restored, i)
		case seen.WriteBegun:
			if e.Surface == SurfaceReused {
				continue // see window
			}
			p.change(r, i, e.Change, r.At)
		case seen.Write:
			if e.Surface == SurfaceReused {
				continue
			}
			c := p.change(r, i, e.Change, e.From)
			c.from = min(c.from, e.From)
			c.attempts = append(c.attempts, attempt{i, e})
		}
	}
	var longest seen.Entries
	for _, name := range p.servers() {
		if l := p.logs[name]; len(l.Entries) > 0 && (len(longest.Entries) == 0 || last(l) > last(longest) || last(l) == last(longest) && len(l.Entries) > len(longest.Entries)) {
			longest = l
		}
	}
	for _, e := range longest.Entries {
		event, err := e.Event()
		if err != nil {
			event = nil
		}
		p.entries = append(p.entries, entry{e, event})
	}
	return p
}

func last(l seen.Entries) log.Seq { return l.Entries[len(l.Entries)-1].Seq }

// servers returns the names of those whose log is there.
func (p *past) servers() []string {
	names := make([]string, 0, len(p.logs))
	for name := range p.logs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (p *past) change(r seen.Record, i int, c log.Change, at time.Duration) *change {
	known := p.changes[c.ID]
	if known == nil {
		known = &change{id: c.ID, ops: c.Ops, who: r.Who, begun: i, from: at}
		p.changes[c.ID] = known
	}
	return known
}

// all returns the changes in the order in which they began.
func (p *past) all() []*change {
	list := make([]*change, 0, len(p.changes))
	for _, c := range p.changes {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *change) int { return cmp.Compare(a.begun, b.begun) })
	return list
}

// accepted returns the first acknowledgement of a change.
func (c *change) accepted() (seen.Write, bool) {
	for _, a := range c.attempts {
		if a.Outcome == seen.Accepted {
			return a.Write, true
		}
	}
	return seen.Write{}, false
}

// acknowledgement returns when it came, the earliest of several.
func (c *change) acknowledgement() (at time.Duration, ok bool) {
	for _, a := range c.attempts {
		if a.Outcome == seen.Accepted && (!ok || a.Until < at) {
			at, ok = a.Until, true
		}
	}
	return at, ok
}

// maybe reports whether the change may be in the log although no answer said so: an attempt
// has no outcome.
func (c *change) maybe() bool {
	open := len(c.attempts) == 0
	for _, a := range c.attempts {
		open = open || a.Outcome == seen.Unknown
	}
	return open
}

// floor and head are the ends of the witness.
func (p *past) floor() log.Seq {
	if len(p.entries) == 0 {
		return 0
	}
	return p.entries[0].Seq
}

func (p *past) head() log.Seq {
	if len(p.entries) == 0 {
		return 0
	}
	return p.entries[len(p.entries)-1].Seq
}

// at returns the entry of a seq.
func (p *past) at(seq log.Seq) (entry, bool) {
	i, found := slices.BinarySearchFunc(p.entries, seq, func(e entry, seq log.Seq) int { return cmp.Compare(e.Seq, seq) })
	if !found {
		return entry{}, false
	}
	return p.entries[i], true
}

// replaced reports whether a restore took away what stood at a seq when a record was made.
func (p *past) replaced(n int, seq log.Seq) bool {
	for _, i := range p.restored {
		if n < i && seq > p.records[i].Event.(seen.Restored).To.Seq {
			return true
		}
	}
	return false
}

// fold calls fn for each event of the witness with the state before its change and after it.
// It reports whether it could: the witness begins at the first entry, and can be read.
func (p *past) fold(fn func(e entry, before, after func(cn log.UUID, scopes []log.Scope) bool)) bool {
	if p.floor() != 1 || p.head() != log.Seq(len(p.entries)) {
		return false
	}
	old, state := projections.NewState(), projections.NewState()
	for from := 0; from < len(p.entries); {
		to := from
		for to < len(p.entries)-1 && p.entries[to].event != nil && p.entries[to].event.More > 0 {
			to++
		}
		for _, e := range p.entries[from : to+1] {
			if e.event == nil {
				return false
			}
			if _, err := state.Apply(e.Seq, e.event); err != nil {
				return false
			}
		}
		for _, e := range p.entries[from : to+1] {
			fn(e, old.Interested, state.Interested)
		}
		for _, e := range p.entries[from : to+1] {
			if _, err := old.Apply(e.Seq, e.event); err != nil {
				return false
			}
		}
		from = to + 1
	}
	return true
}

// states calls fn with the witness's state after each change, and the seq of its last entry, and
// before with an empty state at 0. It reports whether it could; see fold.
func (p *past) states(fn func(seq log.Seq, state *projections.State)) bool {
	if p.floor() != 1 || p.head() != log.Seq(len(p.entries)) {
		return false
	}
	state := projections.NewState()
	fn(0, state)
	for _, e := range p.entries {
		if e.event == nil {
			return false
		}
		if _, err := state.Apply(e.Seq, e.event); err != nil {
			return false
		}
		if e.event.More == 0 {
			fn(e.Seq, state)
		}
	}
	return true
}

// elsewhere reports whether a cluster is not the last one: its log was replaced by a restore.
func (p *past) elsewhere(cluster log.UUID) bool {
	if len(p.restored) == 0 || cluster.IsZero() {
		return false
	}
	return cluster != p.records[p.restored[len(p.restored)-1]].Event.(seen.Restored).To.Cluster
}
