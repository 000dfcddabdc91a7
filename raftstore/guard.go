package raftstore

import "fmt"

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
