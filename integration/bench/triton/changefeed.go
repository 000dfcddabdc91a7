package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"rutter/api/triton/changefeed/listen"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/integration/triton"
)

// Sizes of what is measured of the change feed (issue 8).
const (
	itemListeners = 200
	itemRate      = 100 // changes a second
	roamListeners = 30
	roamItems     = 10_000
	idleListeners = 1000
	settle        = 3 * time.Second // for what is idle to become so
)

// runItems measures how late items are at listeners of all servers.
func runItems(ctx context.Context, s *suite) error {
	return s.on(ctx, "items", func(c *bench.Cluster) error {
		o, err := triton.Late(ctx, c, itemListeners, itemRate, s.duration)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "items: %+v\n", o)
		if o.Missing > 0 {
			return fmt.Errorf("%d items never came", o.Missing)
		}
		s.Set("item_p99_ms_200", float64(o.P99.Microseconds())/1000)
		return nil
	})
}

// runRoam kills every server under load.
func runRoam(ctx context.Context, s *suite) error {
	return s.on(ctx, "roam", func(c *bench.Cluster) error {
		o, err := triton.Roam(ctx, c, roamListeners, roamItems)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "roam: %+v\n", o)
		s.Set("roam_lost", float64(o.Lost))
		s.Set("roam_dup", float64(o.Doubled))
		s.Set("roam_gap_s", o.Gap.Seconds())
		if o.Noticed > 0 {
			return errors.New("listeners of other servers noticed a kill")
		}
		return nil
	})
}

// runIdle says what idle listeners of one server cost it: memory, and time while
// changes that concern none of them are made.
func runIdle(ctx context.Context, s *suite) error {
	return s.on(ctx, "idle", func(c *bench.Cluster) error {
		home := c.Servers[0]
		before := agentsim.Resident(home.PID())
		fleet, err := triton.StartFleet([]string{home.URL}, idleListeners, []listen.Want{{Resource: "aggregation", SubResources: []string{"create"}}}, nil)
		if err != nil {
			return err
		}
		defer fleet.Stop()
		if err := fleet.AwaitRegistered(ctx); err != nil {
			return err
		}
		time.Sleep(settle)
		with := agentsim.Resident(home.PID())
		o, err := triton.Late(ctx, c, 1, itemRate, s.duration)
		fmt.Fprintf(os.Stderr, "idle: %d bytes for each of %d listeners; beside them: %+v\n", (with-before)/idleListeners, idleListeners, o)
		return err
	})
}
