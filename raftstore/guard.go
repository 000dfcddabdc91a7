package raftstore

import (
	"errors"
	"fmt"
	"runtime/debug"

	"rutter/log"
)

// guard runs fn, and turns a panic into an error. A damaged page makes bbolt
// panic, or read outside its map, which is a fault of the machine's. The
// damage is found out, and told, in the one case as in the other.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(fmt.Errorf("a page is damaged: %v: %w", p, log.ErrCorrupt), err)
		}
	}()
	return fn()
}

// calmly runs fn, a start of raft's, which panics where its files cannot be
// read or written. What was reported of them is the error then.
func (s *Store) calmly(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("start raft: %v", p)
		}
		if known := s.failure(); err != nil && known != nil {
			err = known // raft keeps but its text
		}
	}()
	return fn()
}
