package serve

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// drillPoll is the least time between two reads of a drill's file.
const drillPoll = 50 * time.Millisecond

// DrillUpkeep is the time between two rounds of a server's upkeep in a drill: what the log
// lets go of after months is let go of soon after the clock was moved by them.
const DrillUpkeep = 2 * time.Second

// DrillClock is the machine's clock, moved by an offset from a file. With it operators
// and tests see how a cluster treats a server whose clock is wrong, without setting a
// machine's clock. Only the store uses it. A server with a DrillClock warns of it as
// long as it runs.
type DrillClock struct {
	Path string

	mu     sync.Mutex
	looked time.Time
	offset time.Duration
}

// NewDrillClock returns a clock that is moved by the offset in the file at path.
func NewDrillClock(path string) *DrillClock { return &DrillClock{Path: path} }

// now is raftstore.Config.Now.
func (d *DrillClock) now() time.Time {
	now := time.Now()
	return now.Add(d.moved(now))
}

// moved is the offset. It is 0 if the file is missing or holds no duration.
func (d *DrillClock) moved(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.looked) >= drillPoll {
		d.looked, d.offset = now, 0
		if text, err := os.ReadFile(d.Path); err == nil {
			if offset, err := time.ParseDuration(strings.TrimSpace(string(text))); err == nil {
				d.offset = offset
			}
		}
	}
	return d.offset
}

// warnings says that there is a drill. A nil clock has no warning.
func (d *DrillClock) warnings() []string {
	if d == nil {
		return nil
	}
	return []string{fmt.Sprintf("a drill moves this server's clock by %v: start it without --drill-clock (%s) to end that", d.moved(time.Now()), d.Path)}
}
