// Package slots bounds the connections of a listener: each takes a slot before it is
// accepted, and frees it when it is closed.
//
// It owns the slots and the end of a wait for one when the listener is closed. Which
// connections are admitted is left to the listeners of packages guard and allow.
//
// A Listener may be used from any number of goroutines.
package slots

import (
	"net"
	"sync"
)

// Listener is a listener with slots for its connections. Its users wrap Accept.
type Listener struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

// New returns a listener with n slots over l.
func New(l net.Listener, n int) *Listener {
	return &Listener{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

// Acquire waits for a free slot; false: the listener is closed. full, if not nil, is
// called once if all slots are taken at first.
func (l *Listener) Acquire(full func()) bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	if full != nil {
		full()
	}
	select {
	case l.slots <- struct{}{}:
		return true
	case <-l.closed:
		return false
	}
}

// Release frees a slot that Acquire took.
func (l *Listener) Release() { <-l.slots }

// Close implements net.Listener. It ends the waits of Acquire.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
