package oracle

import (
	"slices"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

const (
	// Lagging is within what time a replica that is behind is not ready: its bound of 3 s (package
	// world), the time that a question to a leader may take that does not answer, and the time between
	// two looks.
	Lagging = 8 * time.Second
	// Left is how much later it feeds no compute node any more.
	Left = 5 * time.Second
	// late is for how long after a fault of the way between them what a replica sent before may come.
	late = 20 * time.Second
)

// behind is how far a replica is behind the servers with a vote, as looks at all show it.
type behind struct {
	began   time.Duration // of its process, or when it became a replica
	head    log.Seq
	lagging time.Duration // since when it has been behind for Lagging; 0: it has not
}

// reached is the newest entry that a server with a vote was seen to have, at a time.
type reached struct {
	at  time.Duration
	seq log.Seq
}

// replicas looks for replicas that are behind and say that they are ready, or feed a compute node.
func replicas(p *past, report report) {
	var voters []reached // seq rises
	all, feeds := make(map[string]*behind), make(map[string]seen.StreamBegun)
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Restored:
			voters = nil
			clear(all)
		case seen.Process:
			delete(all, r.Who)
		case seen.Server:
			if !e.Replica {
				delete(all, r.Who)
				if !isReplica(r.Who) && (len(voters) == 0 || e.Head.Seq > voters[len(voters)-1].seq) {
					voters = append(voters, reached{r.At, e.Head.Seq})
				}
				continue
			}
			if all[r.Who] == nil {
				all[r.Who] = &behind{began: r.At}
			}
			b := all[r.Who]
			b.look(r.At, e.Head.Seq, voters)
			if b.lagging > 0 && e.Ready == "" {
				report("%s stood at %d at %v and said that it is ready, and has been behind for more than %v", r.Who, e.Head.Seq, r.At, Lagging)
			}
		case seen.StreamBegun:
			feeds[e.Stream] = e
		case seen.Item:
			p.fedLate(r, feeds[e.Stream], all, report)
		case seen.Bookmark:
			p.fedLate(r, feeds[e.Stream], all, report)
		}
	}
}

// look takes what a look at a replica shows.
func (b *behind) look(at time.Duration, head log.Seq, voters []reached) {
	b.head = head
	i := slices.IndexFunc(voters, func(v reached) bool { return v.seq > head })
	if i < 0 || at-max(voters[i].at, b.began) <= Lagging {
		b.lagging = 0
		return
	}
	if b.lagging == 0 {
		b.lagging = at
	}
}

// fedLate looks at what a compute node got from a replica that is behind.
func (p *past) fedLate(r seen.Record, feed seen.StreamBegun, all map[string]*behind, report report) {
	b := all[feed.Server]
	if b == nil || b.lagging == 0 || r.At <= b.lagging+Left || p.disturbed(feed.Server, r.Who, r.At) {
		return
	}
	report("%s was fed by %s at %v, which stood at %d, and had been behind for more than %v since %v", r.Who, feed.Server, r.At, b.head, Lagging, b.lagging)
}

// disturbed reports whether a fault of the way between two machines, or a pause of one, was under way
// not long before a time: what was sent before it may come after it.
func (p *past) disturbed(one, other string, at time.Duration) bool {
	for _, r := range p.records {
		e, ok := r.Event.(seen.Fault)
		if !ok || r.At > at {
			continue
		}
		f := e.Fault
		switch f.Kind {
		case history.Cut, history.OneWay, history.Slow, history.Lossy, history.HalfOpen, history.Pause:
		default:
			continue
		}
		on := f.On == one && (f.To == "" || f.To == other) || f.On == other && (f.To == "" || f.To == one)
		if on && r.At+f.For+late > at {
			return true
		}
	}
	return false
}
