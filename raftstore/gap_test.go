package raftstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
)

// TestLongestGap measures the longest time between two acknowledgements under load while
// markers, checkpoints and deletions run, and the same without them. The figure depends
// on the machine, so it is printed, and nothing is wanted of it except that it is not
// seconds.
func TestLongestGap(t *testing.T) {
	if !long() {
		t.Skip("RUTTER_LONG is not set")
	}
	for _, upkeep := range []bool{false, true} {
		t.Run(fmt.Sprintf("upkeep=%t", upkeep), func(t *testing.T) {
			nodes := three(t, func(c *Config) {
				c.Heartbeat, c.MarkerEvery, c.MarkerEntries, c.TrailingLogs = time.Second, 2*time.Second, 256, 2048
				c.UpkeepEvery = time.Hour
				if upkeep {
					c.UpkeepEvery, c.CheckpointEvents = 200*time.Millisecond, 2000
				}
			})
			leader := leaderOf(t, nodes)
			if upkeep {
				until(t, leader, "retention", func() bool {
					return leader.SetRetention(patience(t), changesdb.Retention{Events: 5000, Bytes: 1 << 28}) == nil
				})
			}
			longest, count := loadFor(t, leader, 10*time.Second)
			st := leader.Status()
			t.Logf("%d acknowledged, longest gap %v; floor %d, %d checkpoints, first row %d, marker %d", count, longest, st.Floor, countCheckpoints(t, leader.Store), firstRow(t, leader.Store), st.Marker)
			if longest > 2*time.Second {
				t.Errorf("longest gap %v", longest)
			}
		})
	}
}

// loadFor writes with 64 writers over few objects, and returns the longest gap
// between two acknowledgements of any of them.
func loadFor(t *testing.T, n *node, d time.Duration) (longest time.Duration, count int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	begun := time.Now()
	last := begun
	for w := range 64 {
		wg.Go(func() {
			for i := 0; time.Since(begun) < d; i++ {
				c := tagChange(newID(), fmt.Sprintf("w%d", w))
				if i > 0 {
					op := &c.Ops[0]
					op.Action, op.ID, op.Set = log.Update, op.Object.ID(), []string{"mtu"}
					op.Object.(*log.NICTag).MTU = uint32(1500 + i%2)
				}
				if result, err := n.Propose(t.Context(), c); err != nil || result.Refusal != nil {
					t.Error(err, result.Refusal)
					return
				}
				mu.Lock()
				now := time.Now()
				if count > 0 {
					longest = max(longest, now.Sub(last))
				}
				last = now
				count++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return longest, count
}
