package hostile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/cmd/rutter/bench/load"
)

// Times of a Stand.
const (
	calm       = 15 * time.Second // before, at most, for what is compared with
	lookEvery  = 100 * time.Millisecond
	afterwards = 5 * time.Second // for a server that was reached to answer
)

// writers are the others, whose writes are measured. Each waits a little between
// two, so that there is time for them to be slow in.
const (
	writers   = 16
	writeRest = 5 * time.Millisecond
	// objects are what they change in turn. The servers would keep what they create,
	// and it could not be told from what clients make the servers hold.
	objects = 1000
)

// headroom is the servers' --gc-headroom here. By default garbage may lie until there
// are 256 MB of it, from any client and at any time. What clients make servers hold
// could not be told from it.
const headroom = "32MiB"

// Outcome is what came of a Stand.
type Outcome struct {
	GrownMB              int64 // the most that a server held, above the most that one held with the same writes before
	P99Before, P99During float64
	Written, Failed      uint64
	Insults              string
}

// Stand starts three servers with TLS, lets a crowd loose on the leader, and
// measures what that does to it and to others. A server that ended is an error.
func Stand(ctx context.Context, program, dir string, duration time.Duration) (o Outcome, err error) {
	c, err := bench.StartCluster(ctx, bench.Options{Program: program, Servers: 3, Dir: filepath.Join(dir, "hostile"), Flags: []string{"--log-level=error", "--gc-headroom=" + headroom}, TLS: true})
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	leader, err := c.Leader(ctx)
	if err != nil {
		return o, err
	}
	w, err := bench.NewWorkload(400)
	if err != nil {
		return o, err
	}
	write := func(duration time.Duration) (outcome load.Outcome, err error) {
		err = bench.Streams(ctx, c, 4, func(submit []bench.Submit) error {
			outcome = load.Run(ctx, load.Plan{Writers: writers, Duration: duration, Warm: time.Second, Do: func(ctx context.Context, writer int, _ uint64) error {
				time.Sleep(writeRest)
				_, err := submit[writer%len(submit)](ctx, w.Update(objects))
				return err
			}})
			return nil
		})
		return outcome, err
	}
	if _, _, err := bench.Fill(ctx, c, w, objects, objects, func(uint64) {}); err != nil {
		return o, err
	}
	look := watch(ctx, c)
	before, err := write(min(duration, calm))
	held := look()
	if err != nil {
		return o, err
	}
	crowd := &Crowd{Address: strings.TrimPrefix(leader.URL, "https://"), Office: c.Authority}
	misbehaving, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var crowdErr error
	running.Go(func() { crowdErr = crowd.Run(misbehaving) })
	look = watch(ctx, c)
	during, err := write(duration)
	o.GrownMB = (look() - held) >> 20
	cancel()
	running.Wait()
	if err = errors.Join(err, crowdErr); err != nil {
		return o, err
	}
	o.P99Before, o.P99During, o.Written, o.Failed, o.Insults = before.P99, during.P99, during.Count, during.Errors, crowd.Told()
	answering, stop := context.WithTimeout(ctx, afterwards)
	defer stop()
	for _, s := range c.Servers {
		if !s.Runs() {
			return o, fmt.Errorf("%s has ended; it said last:\n%s", s.ID, s.Tail())
		}
		if _, statusErr := c.Client.StatusOf(answering, s.URL); statusErr != nil {
			return o, fmt.Errorf("%s does not answer: %w; it said last:\n%s", s.ID, statusErr, s.Tail())
		}
	}
	return o, nil
}

// watch looks at the servers' memory until it is asked for the most that one held.
func watch(ctx context.Context, c *bench.Cluster) func() int64 {
	ctx, cancel := context.WithCancel(ctx)
	most := make(chan int64)
	go func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		var held int64
		for {
			for _, s := range c.Servers {
				held = max(held, agentsim.Resident(s.PID()))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				most <- held
				return
			}
		}
	}()
	return func() int64 { cancel(); return <-most }
}
