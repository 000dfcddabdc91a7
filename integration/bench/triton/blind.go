package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rutter/integration/serviceaddr"
)

// blindKills is how often the holder of the service address is killed. The figure is the
// median, of a client that dials one address.
const blindKills = 5

// runBlind measures how long a client that dials one address has no answer after the
// server that had the address was killed. It needs root, for network namespaces.
func runBlind(ctx context.Context, s *suite) (err error) {
	program, err := filepath.Abs(s.rutter)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "blind")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	w, err := serviceaddr.New(program, dir, "--log-level=error")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	watch, err := w.NewWatch()
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { watch.Run(watching) })
	defer func() {
		stop()
		watched.Wait()
		_, _, seen := watch.Err()
		err = errors.Join(err, seen)
	}()
	var blind []time.Duration
	for range blindKills {
		took, err := w.Blind(ctx, watch)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "blind: %v\n", took.Round(time.Millisecond))
		blind = append(blind, took)
	}
	slices.Sort(blind)
	s.Set("blind_one_url_s", blind[len(blind)/2].Seconds())
	return nil
}
