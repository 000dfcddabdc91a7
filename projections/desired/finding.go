package desired

import (
	"fmt"
	"slices"

	"rutter/log"
)

// Verdicts of a Trace.
const (
	Reachable   = "reachable"   // the log has what both kernels need
	Routed      = "routed"      // they lie on two networks: a gateway must pass packets on
	Doubtful    = "doubtful"    // it should work, but something is behind or not as usual
	Unreachable = "unreachable" // something is missing, and is named
)

// Levels of a Finding.
const (
	Fault = "fault" // a cause: packets do not arrive
	Doubt = "doubt" // they may not arrive, or it is unknown whether they do
	Note  = "note"  // good to know
)

// Finding is one thing that a Trace found, with what to do about it.
type Finding struct {
	Level  string   `json:"level"`
	Code   string   `json:"code"` // stable, for programs: one of Codes
	CN     log.UUID `json:"cn_uuid,omitzero"`
	Text   string   `json:"text"`
	Remedy string   `json:"remedy,omitempty"`
}

func (t *Trace) find(level, code string, cn log.UUID, remedy, format string, args ...any) {
	f := Finding{Level: level, Code: code, CN: cn, Text: fmt.Sprintf(format, args...), Remedy: remedy}
	if !slices.Contains(t.Findings, f) {
		t.Findings = append(t.Findings, f)
	}
}

func hostOf(end TraceEnd) string {
	if end.Host != "" {
		return "CN " + end.Host
	}
	return "CN " + end.CN.String()
}

// judged sets the verdict and its summary from what was found.
func (t Trace) judged() Trace {
	t.Verdict = Reachable
	faults, why := 0, ""
	for _, f := range t.Findings {
		switch {
		case f.Level == Fault:
			if faults++; faults == 1 {
				why = f.Text
			}
			t.Verdict = Unreachable
		case t.Verdict == Unreachable:
		case f.Code == "routed" && t.Verdict == Reachable:
			t.Verdict = Routed
		case f.Level == Doubt:
			t.Verdict = Doubtful
		}
	}
	ends := t.From.Asked + " and " + t.To.Asked
	switch t.Verdict {
	case Reachable:
		t.Summary = ends + " can reach each other: the log gives both kernels what they need" + t.haveIt()
	case Routed:
		t.Summary = ends + " reach each other through a gateway only"
	case Doubtful:
		t.Summary = ends + " should reach each other, with doubts"
	case Unreachable:
		t.Summary = ends + " cannot reach each other: " + why
		if faults > 1 {
			t.Summary += fmt.Sprintf(" (and %d more faults)", faults-1)
		}
	}
	return t
}

// rank is lower for the pair of NICs that answers the question better.
func (t *Trace) rank() int {
	rank := 0
	for _, f := range t.Findings {
		switch {
		case f.Level == Fault && f.Code == "other-vnet":
			rank += 100
		case f.Level == Fault:
			rank += 10
		case f.Code == "routed":
			rank += 5
		case f.Level == Doubt:
			rank++
		}
	}
	return rank
}

// haveIt says for the summary that the kernels have it, if all were seen.
func (t *Trace) haveIt() string {
	for i := range t.KernelsAsked {
		if k := &t.KernelsAsked[i]; k.View == nil || len(k.View.Unknown) > 0 {
			return ""
		}
	}
	if len(t.KernelsAsked) == 0 {
		return ""
	}
	return ", and they have it"
}
