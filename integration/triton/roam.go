package triton

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/api/client"
	"rutter/api/triton/changefeed/listen"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// Sizes of Roam.
const (
	writers     = 8
	writeWithin = 60 * time.Second // for one change, whatever is killed meanwhile
	moveWithin  = 30 * time.Second // for listeners to be elsewhere, or all has failed
)

// RoamOutcome is what came of killing every server under load.
type RoamOutcome struct {
	Items   int           // written
	Lost    int           // of all listeners together
	Doubled int           // came twice, or not in order
	Gap     time.Duration // the longest from a kill to a listener being served elsewhere
	// Noticed are the connections to other servers that ended meanwhile.
	Noticed int
}

// Roam runs listeners on each server of c, kills one after the other while items
// are written, and starts each again.
func Roam(ctx context.Context, c *bench.Cluster, listeners, items int) (o RoamOutcome, err error) {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URL)
	}
	fleet, err := StartFleet(urls, listeners, []listen.Want{{Resource: "vm", SubResources: []string{"create"}}}, nil)
	if err != nil {
		return o, err
	}
	defer fleet.Stop()
	if err := fleet.AwaitRegistered(ctx); err != nil {
		return o, fmt.Errorf("the listeners register: %w", err)
	}
	var written atomic.Int64
	g, writing := errgroup.WithContext(ctx)
	for w := range writers {
		g.Go(func() error {
			for n := w; n < items; n += writers {
				if err := create(writing, c.Client, n); err != nil {
					return err
				}
				written.Add(1)
			}
			return nil
		})
	}
	g.Go(func() error {
		for i, s := range c.Servers {
			due := int64(items * (i + 1) / (len(c.Servers) + 2))
			for written.Load() < due {
				select {
				case <-writing.Done():
					return writing.Err()
				case <-time.After(lookAgain):
				}
			}
			if err := o.kill(writing, c, fleet, s); err != nil {
				return fmt.Errorf("%s is killed: %w", s.ID, err)
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return o, err
	}
	o.Items = items
	return o, o.judge(ctx, c, fleet)
}

// judge compares what the listeners got with the log.
func (o *RoamOutcome) judge(ctx context.Context, c *bench.Cluster, fleet *Fleet) (err error) {
	var want []log.Seq
	for line, err := range c.Client.Log(ctx, client.LogQuery{}) {
		if err != nil {
			return err
		}
		if line.Event.Kind == log.KindVM && line.Event.Action == log.Create {
			want = append(want, line.Seq)
		}
	}
	if len(want) != o.Items {
		return fmt.Errorf("the log has %d creations, %d were acknowledged", len(want), o.Items)
	}
	patience, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	// A listener that does not get there has lost something, which is counted.
	if err := fleet.AwaitSeq(patience, want[len(want)-1]); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	o.Lost, o.Doubled, err = fleet.Judge(want)
	return err
}

// kill kills a server, waits until its listeners are elsewhere, and starts it again.
func (o *RoamOutcome) kill(ctx context.Context, c *bench.Cluster, fleet *Fleet, s *bench.Server) error {
	here, before := fleet.on(s.URL)
	killed := time.Now()
	if err := s.Stop(syscall.SIGKILL); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	moved := func(m *member) bool { return len(m.boots) > before[m] }
	if err := fleet.await(patience, func(m *member) bool { return here[m] }, moved); err != nil {
		return fmt.Errorf("its listeners go elsewhere: %w", err)
	}
	for m, was := range here {
		m.mu.Lock()
		switch {
		case was:
			o.Gap = max(o.Gap, m.boots[before[m]].at.Sub(killed))
		case len(m.boots) > before[m]:
			o.Noticed++
		}
		m.mu.Unlock()
	}
	if err := s.Start(); err != nil {
		return err
	}
	return c.AwaitReady(ctx, s)
}

// create creates the nth VM, with as many tries as that takes.
func create(ctx context.Context, api *client.Client, n int) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	change := creation(n)
	for {
		_, err := api.Submit(ctx, change)
		if err == nil || ctx.Err() != nil {
			return err
		}
		var refused *log.Refusal
		if errors.As(err, &refused) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}

// creation is the change that creates the nth VM.
func creation(n int) *log.Change {
	return &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindVM, Set: []string{"alias", "owner_uuid", "state", "uuid"},
		Object: &log.VM{UUID: vmID(n), Alias: fmt.Sprint("vm", n), OwnerUUID: log.UUID{15: 1}, State: "running"},
	}}}
}

// vmID names the nth VM, and vmOf is its inverse.
func vmID(n int) (id log.UUID) {
	id[0], id[12], id[13], id[14], id[15] = 0xa1, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return id
}

func vmOf(text string) (n int, ok bool) {
	id, err := log.ParseUUID(text)
	return int(id[12])<<24 | int(id[13])<<16 | int(id[14])<<8 | int(id[15]), err == nil && id[0] == 0xa1
}
