package notify

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTurn: one at a time has the turn, and the bubble's clock goes on while another waits for
// it, which it does not for a sync.Mutex.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, owners, begun := NewTurn(), 0, time.Now()
		done := make(chan struct{})
		for range 3 {
			go func() {
				turn.Lock()
				if owners++; owners != 1 {
					t.Errorf("%d have the turn", owners)
				}
				time.Sleep(time.Second)
				owners--
				turn.Unlock()
				done <- struct{}{}
			}()
		}
		for range 3 {
			<-done
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("three turns of a second took %v", took)
		}
	})
}
