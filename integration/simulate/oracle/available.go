package oracle

import (
	"strings"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
)

const (
	// Outage is how long no write may be accepted while a minority of the servers is in trouble:
	// a disk that hangs is noticed after some seconds, and a client waits 3 s for a server.
	Outage = 12 * time.Second
	// settling is how long a fault still counts after it is over.
	settling = 10 * time.Second
	// Replaced is within what time another server leads after a leader lost its power: the
	// heartbeat's timeout, and elections, some of which end without a leader (3.5 s were seen
	// once in some 300 histories).
	Replaced = 5 * time.Second
	// ReplacedAtOnce is it after the process of a leader ended: its connections end with it, and
	// its followers do not wait for the heartbeat's timeout.
	ReplacedAtOnce = 350 * time.Millisecond
)

// trouble is a fault of servers, with the time for which it counts.
type trouble struct {
	fault       history.Fault
	from, until time.Duration
	all         bool // it is no single server's
	voters      voters
}

// voters are the machines whose servers have a vote, or had one for a while.
type voters map[string]bool

// voters are those of what was seen: not replicas that were never promoted.
func (p *past) voters() voters {
	all := make(voters)
	for _, r := range p.records {
		if e, ok := r.Event.(seen.Fault); ok {
			for _, name := range []string{e.Fault.On, e.Fault.To} {
				all[name] = all[name] || strings.HasPrefix(name, "s") || name == e.Fault.On && e.Fault.Kind == history.Promote
			}
		}
	}
	return all
}

// troubles are those of a history, and the time at which they are over.
func (p *past) troubles() (all []trouble, over time.Duration) {
	open, voters := make(map[history.Fault]int), p.voters()
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Fault:
			if i, begun := open[e.Fault]; begun {
				all[i].until = r.At + settling
				continue
			}
			if t, counts := newTrouble(e.Fault, r.At, voters); counts {
				if e.Over {
					t.until = r.At + settling
				}
				open[e.Fault] = len(all)
				all = append(all, t)
			}
		case seen.Process:
			if r.Who == "world" {
				over = r.At
			}
		}
	}
	return all, over
}

// newTrouble is a fault that began; counts is false if servers with a vote do not notice it.
func newTrouble(f history.Fault, at time.Duration, of voters) (t trouble, counts bool) {
	t = trouble{fault: f, from: at, until: 1 << 62, voters: of}
	switch f.Kind {
	case history.Restore, history.Rotate:
		t.all = true
	case history.Revoke, history.Remove, history.Promote:
		t.all = !isReplica(f.On) || of[f.On]
	case history.Transfer, history.Retain, history.Snapshot:
		t.until = at + settling
		return t, false
	}
	for _, name := range []string{f.On, f.To} {
		if strings.HasPrefix(name, "c") && !strings.HasPrefix(name, "cn") {
			t.all = true
		}
	}
	if f.To != "" && (isReplica(f.On) && !of[f.On] || isReplica(f.To) && !of[f.To]) {
		return t, false // a way to a replica, on which no write depends
	}
	return t, t.all || of[f.On] || of[f.To]
}

func isReplica(name string) bool { return strings.HasPrefix(name, "n") }

// touches reports whether a trouble is that of a server.
func (t trouble) touches(name string) bool {
	return !t.all && (t.fault.On == name || t.fault.To == name)
}

// majority reports whether all troubles of a time are those of one server.
func majority(all []trouble, from, until time.Duration) bool {
	var now []trouble
	for _, t := range all {
		if t.from <= until && t.until >= from {
			now = append(now, t)
		}
	}
	if len(now) == 0 {
		return true
	}
	for _, name := range []string{now[0].fault.On, now[0].fault.To} {
		one := now[0].voters[name]
		for _, t := range now {
			one = one && t.touches(name)
		}
		if one {
			return true
		}
	}
	return false
}

// available looks for times without an accepted write in which only one server had a trouble.
func available(p *past, report report) {
	all, over := p.troubles()
	before := time.Duration(0)
	look := func(until time.Duration) {
		if until-before > Outage && majority(all, before, until) {
			report("no write was accepted from %v to %v, and two servers or more had no trouble", before, until)
		}
		before = max(before, until)
	}
	for _, r := range p.records {
		if e, ok := r.Event.(seen.Write); ok && e.Outcome == seen.Accepted && r.At >= 0 && r.At <= over && strings.HasPrefix(r.Who, "c") {
			look(r.At)
		}
	}
	if over > 0 {
		look(over)
	}
}

// election looks at how long it took to replace leaders that ended while nothing else went on.
func election(p *past, report report) {
	all, _ := p.troubles()
	for _, r := range p.records {
		e, ok := r.Event.(seen.Succession)
		within := Replaced
		if e.How == history.Kill || e.How == history.Stop {
			within = ReplacedAtOnce
		}
		if !ok || e.Took <= within {
			continue
		}
		alone := true
		for _, t := range all {
			ends := t.fault.On == r.Who && t.fault.Kind == e.How && t.from <= r.At-e.Took && t.until > r.At
			if t.from <= r.At && t.until >= r.At-e.Took && !ends {
				alone = false
			}
		}
		if alone {
			report("%s led and ended, and after %v %q led", r.Who, e.Took, e.By)
		}
	}
}
