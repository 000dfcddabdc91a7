package verdicts

import (
	"iter"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// Class is the part of a trace in which a change counts, such as its verdict.
type Class func(*desired.Trace) string

// The classes of Reach.
const (
	Reaches = "reaches"
	Cut     = "does not reach"
	Absent  = "is not there" // one of the two is not in the log
)

// Reach is the class of whether packets arrive: Cut if there is a cause, Reaches if
// there is none, with doubts or without.
func Reach(t *desired.Trace) string {
	for _, f := range t.Findings {
		if f.Code == "from-unknown" || f.Code == "to-unknown" {
			return Absent
		}
	}
	if t.Verdict == desired.Unreachable {
		return Cut
	}
	return Reaches
}

// Verdict is the class of the whole verdict, doubts too.
func Verdict(t *desired.Trace) string {
	if Reach(t) == Absent {
		return Absent
	}
	return t.Verdict
}

// Turn is an entry after which the class is another one.
type Turn struct {
	Seq           log.Seq
	Before, After desired.Trace
}

// Answer is what was found in a range of a log.
type Answer struct {
	First, Last desired.Trace // after the first and the last seq of the range
	Turns       []Turn        // in the order of the log
	// Whole: each change in the range was looked at, so Turns are all that there are.
	// Else there may be more between two probes.
	Whole bool
	Looks int // traces that were made
}

// Scan applies entries to the state after low, and makes a trace after each change, up
// to the seq high. A change of several entries is one: its turn is the first of its
// entries after which the class is what it is after the whole change. It changes state.
func Scan(state *projections.State, low, high log.Seq, entries iter.Seq2[log.Entry, error], trace func(*projections.State) desired.Trace, class Class) (Answer, error) {
	first := trace(state)
	a := Answer{First: first, Last: first, Whole: true, Looks: 1}
	var within []Turn // those of the change that is read, with the class after each entry
	seq := low
	for e, err := range entries {
		if err == nil && e.Seq > high {
			break
		}
		var event *log.Event
		if err == nil {
			event, err = e.Event()
		}
		if err == nil {
			_, err = state.Apply(e.Seq, event)
		}
		if err != nil {
			return Answer{}, err
		}
		t := trace(state)
		a.Looks++
		seq = e.Seq
		if within = append(within, Turn{Seq: e.Seq, Before: a.Last, After: t}); event.More > 0 && seq < high {
			continue
		}
		if now := class(&t); now != class(&a.Last) {
			at := len(within) - 1
			for at > 0 && class(&within[at-1].After) == now {
				at--
			}
			a.Turns = append(a.Turns, Turn{Seq: within[at].Seq, Before: a.Last, After: t})
		}
		a.Last, within = t, within[:0]
	}
	if seq < high {
		return Answer{}, log.ErrAhead
	}
	return a, nil
}

// samples is the number of places of a range at which Search looks first. So it finds
// most turns that lie apart, and needs few traces.
const samples = 64

// Search makes traces at few places of a range, and finds the turn between each two
// neighbouring places whose classes differ. With low == high there is no turn.
func Search(low, high log.Seq, trace func(log.Seq) (desired.Trace, error), class Class) (a Answer, err error) {
	at := func(seq log.Seq) desired.Trace {
		if err != nil {
			return desired.Trace{}
		}
		var t desired.Trace
		t, err = trace(seq)
		a.Looks++
		return t
	}
	a.First = at(low)
	last, lastSeq := a.First, low
	for i := range log.Seq(samples) {
		seq := low + (high-low)/samples*(i+1) + (high-low)%samples*(i+1)/samples
		if seq == lastSeq {
			continue
		}
		t := at(seq)
		if err != nil {
			return Answer{}, err
		}
		if class(&t) != class(&last) {
			before, after, from, to := last, t, lastSeq, seq
			for to-from > 1 {
				middle := from + (to-from)/2
				switch m := at(middle); {
				case err != nil:
					return Answer{}, err
				case class(&m) == class(&last):
					before, from = m, middle
				default:
					after, to = m, middle
				}
			}
			a.Turns = append(a.Turns, Turn{Seq: to, Before: before, After: after})
		}
		last, lastSeq = t, seq
	}
	a.Last, a.Whole = last, high-low <= samples
	return a, err
}

// Newest returns the newest turn that counts, nil if there is none.
func (a *Answer) Newest(counts func(*Turn) bool) *Turn {
	for i := len(a.Turns) - 1; i >= 0; i-- {
		if counts(&a.Turns[i]) {
			return &a.Turns[i]
		}
	}
	return nil
}
