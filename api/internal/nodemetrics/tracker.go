package nodemetrics

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/log"
	"rutter/log/budget"
)

// Bounds of a Tracker.
const (
	// maxStamps bounds the moments of which a Tracker remembers how far the log was: 2 s of
	// a log that is applied 2,000 times a second. Entries are looked up within 100 ms. A
	// stamp takes 32 bytes.
	maxStamps = 4096
	// SamplesPerSecond bounds the entries of which a CN is asked to say at once that its
	// kernel has them, because each costs two frames. Without being asked, CNs say it 500 ms
	// later, which would be measured in place of their kernels.
	SamplesPerSecond = 20
	samplesAtOnce    = 100
)

// Tracker has what the measures of all CNs of a server share.
type Tracker struct {
	now        func() time.Time
	programmed prometheus.Histogram
	drift      prometheus.Counter

	mu      sync.Mutex // protects what follows
	stamps  [maxStamps]stamp
	stamped uint64 // the count of all stamps
	samples budget.Bucket
}

// stamp says that this server had applied the log up to seq at a time.
type stamp struct {
	seq log.Seq
	at  time.Time
}

// New returns a Tracker. now tells the time, of which only differences are used; nil means
// time.Now.
func New(now func() time.Time) *Tracker {
	if now == nil {
		now = time.Now
	}
	return &Tracker{
		now: now,
		programmed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rutter_programmed_seconds",
			Help: fmt.Sprintf("Time from applying an entry on this server until a compute node that it concerns said that its kernel has it. A sample: at most %d pairs of entry and node a second. Nodes whose kernel lacks something else are left out meanwhile.", SamplesPerSecond),
			// From 1 ms to 5 minutes: below is the network's time, beyond are nodes that are cut off.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		drift: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rutter_cns_drift_total",
			Help: "Differences that other programs made in the kernels of compute nodes, as reported to this server: found and put right.",
		}),
		samples: budget.Bucket{Left: samplesAtOnce, At: now()},
	}
}

// Applied records that this server has applied the log up to seq now. The calls must be in
// the order of seqs; a seq that is not beyond the last is ignored.
func (t *Tracker) Applied(seq log.Seq) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stamped > 0 && t.stamps[(t.stamped-1)%maxStamps].seq >= seq {
		return
	}
	t.stamps[t.stamped%maxStamps] = stamp{seq, now}
	t.stamped++
}

// Restart forgets all that Applied recorded: the log was replaced, or not watched for some
// time. Entries up to seq have no known time.
func (t *Tracker) Restart(seq log.Seq) {
	t.mu.Lock()
	t.stamped = 0
	t.mu.Unlock()
	t.Applied(seq)
}

// appliedAt returns when this server had applied seq: the first stamp that is not before
// it. A seq beyond the last stamp is applied now; one up to the oldest stamp is as old as
// that at least.
func (t *Tracker) appliedAt(seq log.Seq) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	low, high := t.stamped-min(t.stamped, maxStamps), t.stamped
	for low < high {
		if mid := (low + high) / 2; t.stamps[mid%maxStamps].seq < seq {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == t.stamped {
		return t.now()
	}
	return t.stamps[low%maxStamps].at
}

// maySample takes one of the samples of SamplesPerSecond.
func (t *Tracker) maySample() bool {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.samples.Fill(now, SamplesPerSecond, samplesAtOnce)
	if t.samples.Left < 1 {
		return false
	}
	t.samples.Left--
	return true
}
