package simulate

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
)

// tiny is a world for tests of the runner: a writer whose writes are lost while s1 is killed
// and s2 is cut off. Rot on s3 is a panic, Lie a goroutine that never ends, and Lose on s3 a
// mutex that is never unlocked, for which simulated time stands still.
func tiny(t *testing.T, h history.History, _ string) (r Result) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r.Coverage = map[string]int{}
		var mu sync.Mutex
		down := map[string]bool{}
		var all sync.WaitGroup
		for _, f := range h.Faults {
			all.Go(func() {
				time.Sleep(f.At)
				tinyFault(f)
				mu.Lock()
				down[f.On] = true
				mu.Unlock()
				time.Sleep(f.For)
				mu.Lock()
				down[f.On] = false
				r.Coverage[coverage.Restart]++
				mu.Unlock()
			})
		}
		for n := 0; time.Since(begun) < h.Duration; n++ {
			mu.Lock()
			if down["s1"] && down["s2"] && len(r.Failures) == 0 {
				r.Failures = append(r.Failures, fmt.Sprintf("write %d was acknowledged and is lost", n))
			}
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
		}
		all.Wait()
		r.Simulated = time.Since(begun)
	})
	return r
}

func tinyFault(f history.Fault) {
	switch {
	case f.Kind == history.Rot && f.On == "s3":
		panic("page 7 is damaged")
	case f.Kind == history.Lie:
		go func() { select {} }()
	case f.Kind == history.Lose && f.On == "s3":
		var never sync.Mutex
		never.Lock()
		never.Lock()
	}
}
