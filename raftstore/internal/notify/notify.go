// Package notify wakes a goroutine that waits on a channel of capacity 1.
package notify

// Send makes ch readable.
func Send(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
