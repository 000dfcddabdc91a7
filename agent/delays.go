package agent

import (
	"slices"
	"time"
)

// maxDelays is how many of the last rounds a percentile is taken over.
const maxDelays = 4096

// delays are the last times from the oldest event of a round, applied, to the
// kernel's acknowledgement of all that the round's events touched.
type delays struct {
	last [maxDelays]time.Duration
	n    uint64 // noted in all
}

func (d *delays) note(took time.Duration) {
	d.last[d.n%maxDelays] = took
	d.n++
}

// percentile returns the time that p of 100 rounds did not exceed, 0 if there
// was none.
func (d *delays) percentile(p int) time.Duration {
	known := slices.Clone(d.last[:min(d.n, maxDelays)])
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return known[(len(known)-1)*p/100]
}
