package sdnotify

import "time"

// Progress measures for how long a counter of work has stood still. The zero value is
// ready for use; it belongs to one goroutine.
type Progress struct {
	count uint64
	at    time.Time // when it was seen to move, or nothing waited for it
}

// Still returns for how long the counter has not moved although work waited for it.
func (p *Progress) Still(count uint64, waits bool, now time.Time) time.Duration {
	if p.at.IsZero() || count != p.count || !waits {
		p.count, p.at = count, now
	}
	return now.Sub(p.at)
}
