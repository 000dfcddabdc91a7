package operate

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// pingPatience is how long an echo reply may take on a machine that has others to serve.
const pingPatience = 5 * time.Second

// pings go from one VM to another all the time, the next one a moment after the reply.
type pings struct {
	name    string
	end     chan struct{}
	running sync.WaitGroup
	once    sync.Once
	sent    int
	longest time.Duration
	lost    []error
}

func startPings(t *testing.T, from, to *upgradeNode) *pings {
	p := &pings{name: "pings from " + from.name + " to " + to.name, end: make(chan struct{})}
	p.running.Go(func() {
		for {
			select {
			case <-p.end:
				return
			case <-time.After(10 * time.Millisecond):
			}
			took, err := from.first.ns.Ping(to.first.ip, 56, pingPatience)
			p.sent++
			p.longest = max(p.longest, took)
			if err != nil {
				p.lost = append(p.lost, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
			}
		}
	})
	t.Cleanup(p.stop)
	return p
}

func (p *pings) stop() {
	p.once.Do(func() { close(p.end) })
	p.running.Wait()
}

// check ends the pings, of which none may be lost.
func (p *pings) check(t *testing.T) {
	t.Helper()
	p.stop()
	t.Logf("%s: %d sent, %d lost, the longest took %v", p.name, p.sent, len(p.lost), p.longest.Round(time.Microsecond))
	if len(p.lost) > 0 || p.sent < 100 {
		t.Errorf("%s: %v", p.name, errors.Join(p.lost...))
	}
}
