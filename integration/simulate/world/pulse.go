package world

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// pulse shows whether simulated time goes on: it counts the simulated seconds.
type pulse struct{ atomic.Int64 }

// watch ends the process if simulated time stands still for as long as patience, until stop. It is
// called outside of the bubble.
func (p *pulse) watch(patience time.Duration, seed uint64) (stop func()) {
	ended := make(chan struct{})
	go func() {
		const looks = 10
		tick := time.NewTicker(patience / looks)
		defer tick.Stop()
		for at, still := int64(-1), 0; still < looks; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if now := p.Load(); now != at {
				at, still = now, 0
			} else {
				still++
			}
		}
		stacks := make([]byte, 16<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		fmt.Fprintf(os.Stderr, "panic: seed %d: simulated time stands still for %v; all goroutines:\n%s\n", seed, patience, stacks)
		os.Exit(2)
	}()
	return func() { close(ended) }
}

// beat counts, until ctx ends.
func (p *pulse) beat(ctx context.Context) {
	for ctx.Err() == nil {
		p.Add(1)
		pause(ctx, time.Second)
	}
}
