package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"rutter/integration/vmmove"
)

// lossOfMoves moves VMs, and takes the most that one pinger lost in one move.
func (s *suite) lossOfMoves(ctx context.Context) (err error) {
	w, err := vmmove.New(ctx, vmmove.Options{Program: s.rutter, Dir: filepath.Join(s.dir, "move"), Servers: 3})
	defer func() { err = errors.Join(err, w.Close()) }()
	if err != nil {
		return err
	}
	most := 0
	for _, f := range []*vmmove.Fabric{w.Shared, w.Lone} {
		for _, order := range []vmmove.Order{vmmove.NICFirst, vmmove.VMFirst} {
			after, all := 0, 0
			for range s.moves {
				moved, err := w.Move(ctx, f, order)
				if err != nil {
					return fmt.Errorf("%w\n%s", err, w.Tail())
				}
				for _, loss := range moved.Losses {
					after, all = max(after, loss.AfterUp), max(all, loss.All)
				}
			}
			fmt.Printf("%d moves, %s fabric, %s: one of 1,000 pings a second lost at most %d after the link was up, %d in all\n", s.moves, f, order, after, all)
			most = max(most, after)
		}
	}
	s.Set("move_lost_ms", float64(most))
	return nil
}
