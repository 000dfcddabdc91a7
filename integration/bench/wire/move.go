package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"rutter/integration/vmmove"
)

// lossOfMoves moves VMs, with port security and without, and takes the most that one pinger
// lost in one move with port security after the VM's link was up on its new node.
func (s *suite) lossOfMoves(ctx context.Context) error {
	if _, err := s.moveIn(ctx, "without", true); err != nil {
		return err
	}
	most, err := s.moveIn(ctx, "with", false)
	if err == nil {
		s.Set("move_lost_ms", float64(most))
	}
	return err
}

func (s *suite) moveIn(ctx context.Context, name string, plain bool) (most int, err error) {
	w, err := vmmove.New(ctx, vmmove.Options{Program: s.rutter, Dir: filepath.Join(s.dir, name), Servers: 3, Plain: plain})
	defer func() { err = errors.Join(err, w.Close()) }()
	if err != nil {
		return 0, err
	}
	for _, f := range []*vmmove.Fabric{w.Shared, w.Lone} {
		for _, order := range []vmmove.Order{vmmove.NICFirst, vmmove.VMFirst} {
			after, all := 0, 0
			for range s.moves {
				moved, err := w.Move(ctx, f, order)
				if err != nil {
					return 0, fmt.Errorf("%w\n%s", err, w.Tail())
				}
				for _, loss := range moved.Losses {
					after, all = max(after, loss.AfterUp), max(all, loss.All)
				}
			}
			fmt.Printf("%d moves %s port security, %s fabric, %s: one of 1,000 pings a second lost at most %d after the link was up, %d in all\n", s.moves, name, f, order, after, all)
			most = max(most, after)
		}
	}
	return most, nil
}
