package simulate

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"rutter/integration/simulate/history"
)

// Run runs one history in the test t, which is outside of any bubble. logFile is where it says
// what happens; "" is nowhere.
type Run func(t *testing.T, h history.History, logFile string) Result

// Result is what a history came to. It passes from process to process as JSON.
type Result struct {
	Failures  []string       `json:"failures,omitempty"` // what did not hold; empty: all held
	Coverage  map[string]int `json:"coverage,omitempty"` // by the names of package coverage
	Simulated time.Duration  `json:"simulated"`
	Real      time.Duration  `json:"real"`
	Output    string         `json:"output,omitempty"` // what the process printed, if it ended
}

// Failed reports whether something did not hold.
func (r Result) Failed() bool { return len(r.Failures) > 0 }

// varying is what differs from one occurrence of a failure to the next.
var varying = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f-]*`)

// Sort is the same for two failures of the same kind: the beginning of the first one without
// its numbers and ids.
func (r Result) Sort() string {
	if !r.Failed() {
		return ""
	}
	first, _, _ := strings.Cut(r.Failures[0], "\n")
	text := varying.ReplaceAllString(first, "#")
	return text[:min(len(text), 100)]
}
