package network

import "time"

// waiter is one goroutine that waits for a direction to change, or for a time.
type waiter struct {
	wake  chan struct{} // 1
	timer *time.Timer
	at    time.Time // zero: without a time
}

// waiters are the goroutines that wait for one thing. They are guarded by Net.mu.
type waiters struct {
	all   []*waiter
	spare *waiter // of the one that waited last
}

// wait gives n.mu free until wakeAll is called, or until at (zero: without end), or until done
// is closed.
func (ws *waiters) wait(n *Net, at time.Time, done <-chan struct{}) {
	w := ws.spare
	if ws.spare = nil; w == nil {
		w = &waiter{wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		w.timer.Stop()
	}
	if w.at = at; !at.IsZero() {
		w.timer.Reset(time.Until(at))
	}
	ws.all = append(ws.all, w)
	n.mu.Unlock()
	select {
	case <-w.wake:
	case <-w.timer.C:
	case <-done:
	}
	n.mu.Lock()
	w.timer.Stop()
	for i, other := range ws.all {
		if other == w {
			ws.all[i] = ws.all[len(ws.all)-1]
			ws.all = ws.all[:len(ws.all)-1]
			break
		}
	}
	select {
	case <-w.wake: // it was given meanwhile
	default:
	}
	ws.spare = w
}

// wakeAll lets all look again, at once.
func (ws *waiters) wakeAll() {
	for _, w := range ws.all {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// by lets those look again at a time who would wait longer.
func (ws *waiters) by(at time.Time) {
	for _, w := range ws.all {
		if w.at.IsZero() || at.Before(w.at) {
			w.at = at
			w.timer.Reset(time.Until(at))
		}
	}
}
