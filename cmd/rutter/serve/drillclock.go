package serve

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// drillLook is how often the file of a drill is read at most.
const drillLook = 50 * time.Millisecond

// DrillClock is the machine's clock, moved by what a file says: so people, and our
// tests, see what a cluster does about a server whose clock is wrong without setting
// a machine's. Nothing but the store goes by it. A server that has one warns of it
// for as long as it runs.
type DrillClock struct {
	Path string

	mu     sync.Mutex
	looked time.Time
	offset time.Duration
}

// NewDrillClock is moved by what the file at path says.
func NewDrillClock(path string) *DrillClock { return &DrillClock{Path: path} }

// now is raftstore.Config.Now.
func (d *DrillClock) now() time.Time {
	now := time.Now()
	return now.Add(d.moved(now))
}

// moved is by how much; a file that is missing, or holds no duration, is none.
func (d *DrillClock) moved(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.looked) >= drillLook {
		d.looked, d.offset = now, 0
		if text, err := os.ReadFile(d.Path); err == nil {
			if offset, err := time.ParseDuration(strings.TrimSpace(string(text))); err == nil {
				d.offset = offset
			}
		}
	}
	return d.offset
}

// warnings says that there is a drill; a nil clock has none.
func (d *DrillClock) warnings() []string {
	if d == nil {
		return nil
	}
	return []string{fmt.Sprintf("a drill moves this server's clock by %v: start it without --drill-clock (%s) to end that", d.moved(time.Now()), d.Path)}
}
