package desired

import (
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// TraceWant is what a trace must see of a state that is not in memory as a whole.
type TraceWant struct {
	CNs      []log.UUID // with all that they must know
	Mentions []log.UUID // VMs, and the NICs that belong to them
	NICs     []log.MAC
	Whole    bool // everything: a name is looked for among all VMs and NICs
}

// TraceOf is NewTrace on a state of the past, of which load returns what is
// wanted, or more. It is called until every CN that matters is there, a few times.
func TraceOf(from, to string, load func(TraceWant) (*projections.State, error)) (Trace, error) {
	var want TraceWant
	want.end(from)
	if _, err := netip.ParseAddr(to); err != nil {
		want.end(to)
	}
	for {
		s, err := load(want)
		if err != nil {
			return Trace{}, err
		}
		t := NewTrace(s, from, to)
		ends := append(tracedBy(s, TraceName{from, from}).ends, tracedBy(s, TraceName{to, to}).ends...)
		if want.Whole || !want.more(append(ends, t.From, t.To)) {
			return t, nil
		}
	}
}

func (w *TraceWant) end(text string) {
	if mac, err := log.ParseMAC(text); err == nil {
		w.NICs = append(w.NICs, mac)
	} else if id, err := log.ParseUUID(text); err == nil {
		w.Mentions = append(w.Mentions, id)
	} else {
		w.Whole = true
	}
}

// more adds the CNs of ends and their VMs, and reports whether one is new.
func (w *TraceWant) more(ends []TraceEnd) (more bool) {
	for _, end := range ends {
		if !end.CN.IsZero() && !slices.Contains(w.CNs, end.CN) {
			w.CNs = append(w.CNs, end.CN)
			more = true
		}
		if end.nic != nil && end.nic.BelongsToType == "zone" && !slices.Contains(w.Mentions, end.nic.BelongsToUUID) {
			w.Mentions = append(w.Mentions, end.nic.BelongsToUUID)
			more = true
		}
	}
	return more
}

// AsOf notes that a trace is of the past, so that it is unknown how far the
// kernels were: it takes the place of Judge.
func (t *Trace) AsOf(seq log.Seq) {
	t.find(Note, "as-of", log.UUID{}, "trace it without a place to be told which CN lacks what now",
		"this is as of seq %d: what the log gave the CNs then, and not what their kernels had", seq)
	*t = t.judged()
}
