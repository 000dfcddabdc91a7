package oracle

import (
	"bytes"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// same compares servers at equal places.
func same(p *past, report report) {
	for _, name := range p.servers() {
		for _, e := range p.logs[name].Entries {
			if w, ok := p.at(e.Seq); ok && (w.Hash != e.Hash || !bytes.Equal(w.Bytes, e.Bytes)) {
				report("%s has another entry %d than another server: %s and %s", name, e.Seq, e.Hash, w.Hash)
				break
			}
		}
	}
	type place struct {
		restores int
		applied  uint64
	}
	heads, states := make(map[place]seen.Record), make(map[place]seen.Record)
	restores := 0
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Restored:
			restores++
		case seen.Server:
			at := place{restores, e.Applied}
			if e.Applied == 0 {
				continue
			}
			if first, ok := heads[at]; !ok {
				heads[at] = r
			} else if f := first.Event.(seen.Server); f.Head != e.Head || f.Hash != e.Hash {
				report("at raft index %d, %s stood at %s, and %s at %s", e.Applied, first.Who, f.Head, r.Who, e.Head)
			}
		case seen.State:
			at := place{restores, e.Applied}
			if first, ok := states[at]; !ok {
				states[at] = r
			} else if f := first.Event.(seen.State); f.Digest != e.Digest || f.Seq != e.Seq {
				report("at raft index %d, the state of %s was %s at %d, and that of %s was %s at %d", e.Applied, first.Who, f.Digest, f.Seq, r.Who, e.Digest, e.Seq)
			}
		}
	}
}

// told compares each position that was shown with the log.
func told(p *past, report report) {
	if len(p.entries) == 0 {
		return
	}
	check := func(n int, who, what string, seq log.Seq, chain log.ChainPrefix, cluster log.UUID) {
		if seq < p.floor() || p.replaced(n, seq) || p.elsewhere(cluster) {
			return
		}
		if e, ok := p.at(seq); !ok {
			report("%s showed %s %d at %v, and the log ends at %d", who, what, seq, p.records[n].At, p.head())
		} else if e.Hash.Prefix() != chain {
			report("%s showed %s %d with %s at %v, and the log has %s there", who, what, seq, chain, p.records[n].At, e.Hash.Prefix())
		}
	}
	for n, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Server:
			if e.Head.Seq > 0 {
				check(n, r.Who, "head", e.Head.Seq, e.Head.Chain, e.Head.Cluster)
			}
		case seen.Item:
			check(n, r.Who, "entry", e.Seq, e.Chain, log.UUID{})
		case seen.Agent:
			if e.Head.Seq > 0 {
				check(n, r.Who, "bookmark", e.Head.Seq, e.Head.Chain, e.Head.Cluster)
			}
		}
	}
}

// leader looks for terms with two leaders.
func leader(p *past, report report) {
	leads := make(map[uint64]string)
	for n, r := range p.records {
		e, ok := r.Event.(seen.Server)
		if len(p.restored) > 0 && n > p.restored[0] {
			return // terms begin anew
		}
		if !ok || !e.Leads {
			continue
		}
		if other := leads[e.Term]; other != "" && other != r.Who {
			report("in term %d, %s and %s led", e.Term, other, r.Who)
		}
		leads[e.Term] = r.Who
	}
}

// excuse reports whether a fault explains that a process ended by itself: one of its disk.
func excuse(k history.Kind) bool {
	switch k {
	case history.Hang, history.SlowSync, history.Full, history.Rot, history.Power, history.Kill, history.Lose, history.Older, history.Remove, history.Restore:
		return true
	}
	return false
}

// healthy looks at the last that was seen of each server.
func healthy(p *past, report report) {
	latest, runs, excused := make(map[string]seen.Server), make(map[string]string), make(map[string]bool)
	var names []string
	var faults time.Duration
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Server:
			if _, ok := latest[r.Who]; !ok {
				names = append(names, r.Who)
			}
			latest[r.Who], runs[r.Who] = e, "started" // what is looked at runs
		case seen.Fault:
			excused[e.Fault.On] = excused[e.Fault.On] || excuse(e.Fault.Kind)
			faults = r.At
		case seen.Process:
			if runs[r.Who] = e.State; e.State == "failed" && !excused[r.Who] {
				report("%s ended by itself at %v: %s", r.Who, r.At, e.Err)
			}
		}
	}
	leaders := 0
	var first string
	for _, name := range names {
		e := latest[name]
		if state := runs[name]; state == "killed" || state == "stopped" || state == "failed" {
			report("%s is %s at the end", name, state)
			continue
		}
		if e.Ready != "" {
			report("%s is not ready at the end, after the last fault at %v: %s", name, faults, e.Ready)
		}
		if e.Leads {
			leaders++
		}
		if first == "" {
			first = name
		} else if f := latest[first]; f.Head != e.Head {
			report("at the end %s stands at %s, and %s at %s", first, f.Head, name, e.Head)
		}
	}
	if len(names) > 0 && leaders != 1 {
		report("%d servers lead at the end", leaders)
	}
}
