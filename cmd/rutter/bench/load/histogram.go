package load

import (
	"math/bits"
	"time"
)

// subBuckets is the number of buckets of a doubling: quantiles are exact to 1/32.
const subBuckets = 32

// Histogram counts durations in buckets whose width grows with the duration.
// The zero value is empty. It must not be used concurrently.
type Histogram struct {
	counts [subBuckets * 40]uint32 // up to 2^44 ns, almost 5 hours
	total  uint64
	max    time.Duration
}

// bucket returns the place of a duration, in units of 16 ns.
func bucket(d time.Duration) int {
	n := uint64(max(d, 0)) >> 4
	if n < subBuckets {
		return int(n)
	}
	doublings := bits.Len64(n) - 6 // 0 for 32 to 63
	return min((doublings+1)*subBuckets+int(n>>doublings)-subBuckets, subBuckets*40-1)
}

// floor returns the least duration of a bucket.
func floor(i int) time.Duration {
	if i < subBuckets {
		return time.Duration(i) << 4
	}
	doublings := i/subBuckets - 1
	return time.Duration(i%subBuckets+subBuckets) << doublings << 4
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucket(d)]++
	h.total++
	h.max = max(h.max, d)
}

// Merge adds what other has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// Max returns the longest duration.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that the share q of all does not exceed: to
// 1/32, downwards, and exactly for the longest.
func (h *Histogram) Quantile(q float64) time.Duration {
	want := uint64(q * float64(h.total))
	if want+1 >= h.total {
		return h.max
	}
	var seen uint64
	for i, n := range h.counts {
		if seen += uint64(n); seen > want {
			return floor(i)
		}
	}
	return h.max
}
