package conformance

import "encoding/json"

// Outcome is what became of a row.
type Outcome string

// The outcomes.
const (
	Holds    Outcome = "holds"    // the answer is as documented
	Departs  Outcome = "departs"  // it is as docs/triton.md says of Rutter
	Differs  Outcome = "differs"  // it is neither
	Skipped  Outcome = "skipped"  // the installation has nothing to show it with
	Pending  Outcome = "pending"  // it differs, and is marked as not built yet
	Unmarked Outcome = "unmarked" // it is marked as not built yet, and holds: the mark has to go
)

// Outcomes are all of them, in the order of reports.
var Outcomes = []Outcome{Holds, Departs, Differs, Skipped, Pending, Unmarked}

// Result is what became of one row.
type Result struct {
	ID          string   `json:"id"`
	Outcome     Outcome  `json:"outcome"`
	Call        string   `json:"call"`
	Shows       string   `json:"shows,omitempty"`
	Source      string   `json:"source,omitempty"`
	Departure   string   `json:"departure,omitempty"`
	Why         string   `json:"why,omitempty"`         // it was skipped
	Differences []string `json:"differences,omitempty"` // in printable ASCII

	answer *answer
}

// Report has the results in the order of the rows.
type Report struct {
	Results []Result `json:"results"`
}

func (r *Report) add(result Result) { r.Results = append(r.Results, result) }

// Counts returns how many rows had each outcome.
func (r *Report) Counts() map[Outcome]int {
	counts := map[Outcome]int{}
	for i := range r.Results {
		counts[r.Results[i].Outcome]++
	}
	return counts
}

// MarshalJSON adds the counts.
func (r *Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Counts  map[Outcome]int `json:"counts"`
		Results []Result        `json:"results"`
	}{r.Counts(), r.Results})
}
