// Package notify wakes a goroutine that waits on a channel of capacity 1, and has a lock made
// of one.
package notify

// Send makes ch readable.
func Send(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Turn is a lock whose owner may wait: for a disk, or for another server. It is a channel, and
// not a sync.Mutex, because the clock of testing/synctest stands still while a goroutine waits
// for a mutex, also if its owner waits for that clock.
type Turn chan struct{}

// NewTurn returns a Turn that is free.
func NewTurn() Turn { return make(Turn, 1) }

// Lock waits until the turn is free, and takes it.
func (t Turn) Lock() { t <- struct{}{} }

// Unlock frees it.
func (t Turn) Unlock() { <-t }
