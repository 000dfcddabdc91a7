package budget

import "time"

// Bucket is what somebody may still do of something: time fills it at a rate, up to a
// burst, and whatever is done is taken from Left, below 0 too, which is a debt then. It
// has no lock.
type Bucket struct {
	Left float64
	At   time.Time // when Left was right
}

// Fill gives back what time has filled up to now. rate is a second's worth; burst is
// the most that the bucket holds. A now before At fills nothing.
func (b *Bucket) Fill(now time.Time, rate, burst float64) {
	b.Left, b.At = min(b.Left+max(0, now.Sub(b.At).Seconds())*rate, burst), now
}

// Until is how long it takes at a rate until there is need; 0 if there is.
func (b *Bucket) Until(need, rate float64) time.Duration {
	return time.Duration(max(0, need-b.Left) / rate * float64(time.Second))
}
