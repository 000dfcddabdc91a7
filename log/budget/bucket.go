package budget

import "time"

// Bucket is a token bucket. It fills at a rate, up to a burst. Work takes from Left,
// which may go below 0: that is a debt. It has no lock.
type Bucket struct {
	Left float64
	At   time.Time // when Left was right
}

// Fill adds what has accrued between At and now. rate is per second. burst is the most
// that the bucket holds. If now is before At, it adds nothing.
func (b *Bucket) Fill(now time.Time, rate, burst float64) {
	b.Left, b.At = min(b.Left+max(0, now.Sub(b.At).Seconds())*rate, burst), now
}

// Until returns the time until the bucket holds need, at a rate per second. It is 0 if
// it does already.
func (b *Bucket) Until(need, rate float64) time.Duration {
	return time.Duration(max(0, need-b.Left) / rate * float64(time.Second))
}
