// Package gcpace sets how much garbage a process lets lie between two collections, by how
// fast it makes garbage: much under load, so that collecting takes little of the processor,
// and little else, so that the process is small.
//
// The runtime's own measure (GOGC) is a share of the heap. For a server with a small state
// under full load that is too little, and it collects many times a second. Setting it high
// once for all makes the process large for good, because the heap's pages stay in use.
package gcpace

import (
	"context"
	"log/slog"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// every is the time between two looks at what was allocated.
	every = time.Second
	// between is the time between two collections that is aimed at.
	between = 10 * time.Second
	// least is the garbage that may lie in any case, in bytes, beside a share of what is live:
	// what a collection costs grows with what is live.
	least      = 32 << 20
	leastShare = 4
	// forget is how much of the rate of before counts at a look: a burst is over after some
	// seconds.
	forget = 0.7
	// same is by which factor the wanted percentage must differ from the present one: each
	// change stops the process for some microseconds.
	same = 1.25
)

// Pace keeps the pace of one process. There must be only one.
type Pace struct {
	most   uint64 // bytes
	logger *slog.Logger

	set       func(percent int) int
	rate      float64 // bytes a second, as far as remembered
	allocated uint64  // bytes, at the last look
	percent   int
}

// New returns a Pace. most is the garbage, in bytes, that may lie beside as much as there is
// live.
func New(most uint64, logger *slog.Logger) *Pace {
	return &Pace{most: most, logger: logger, set: debug.SetGCPercent}
}

// Run keeps the pace until ctx ends. Then what the runtime had before applies again.
func (p *Pace) Run(ctx context.Context) error {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	p.allocated = samples[0].Value.Uint64()
	before := p.set(-1)
	p.percent = before
	p.set(before)
	defer p.set(before)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		metrics.Read(samples)
		p.look(samples[0].Value.Uint64(), samples[1].Value.Uint64())
	}
}

// look sets the percentage by what was allocated since the start, and what was live at the
// last collection, in bytes. It is called every second.
func (p *Pace) look(allocated, live uint64) {
	now := float64(allocated-p.allocated) / every.Seconds()
	p.allocated = allocated
	p.rate = max(now, forget*p.rate)
	want := percentOf(p.rate, live, p.most)
	if ratio := float64(want) / float64(max(p.percent, 1)); ratio < same && ratio > 1/same {
		return
	}
	p.logger.Debug("garbage collection", "percent", want, "was", p.percent, "bytes_per_second", int64(p.rate), "live_bytes", live)
	p.percent = want
	p.set(want)
}

// percentOf returns GOGC for a rate of allocation, in bytes a second: garbage of between,
// but not less than least and its share, and not more than most beside as much as there is
// live.
func percentOf(rate float64, live, most uint64) int {
	lower, upper := float64(least+live/leastShare), float64(live)+float64(most)
	garbage := max(min(rate*between.Seconds(), upper), lower)
	return int(math.Round(100 * garbage / float64(max(live, 1<<20))))
}
