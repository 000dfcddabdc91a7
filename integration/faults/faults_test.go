package faults

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
)

const (
	shortSchedules, longSchedules = 12, 100
	// leastWrites and leastReads are what one schedule must have done at the
	// latest recovery after its last fault, or it proves nothing. On an idle
	// machine that is so long before the last fault.
	leastWrites, leastReads = 200, 200
	recovery                = 2 * time.Minute
)

// setting reads a whole number from the environment.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: want a whole number", name, text)
	}
	return n
}

// TestSchedules runs schedules of consecutive seeds.
func TestSchedules(t *testing.T) {
	needNetwork(t)
	count := uint64(shortSchedules)
	if os.Getenv("RUTTER_LONG") != "" {
		count = longSchedules
	}
	seed := uint64(time.Now().Unix())
	if os.Getenv("RUTTER_SEED") != "" {
		seed, count = setting(t, "RUTTER_SEED", 0), 1
	}
	count = setting(t, "RUTTER_SCHEDULES", count)
	t.Logf("seeds %d to %d", seed, seed+count-1)
	var all totals
	began := time.Now()
	t.Run("seed", func(t *testing.T) {
		for i := range count {
			s := newSchedule(seed + i)
			t.Run(strconv.FormatUint(s.seed, 10), func(t *testing.T) {
				t.Parallel()
				runSchedule(t, s, &all)
			})
		}
	})
	t.Logf("%d schedules in %v: %v", count, time.Since(began).Round(time.Second), &all)
}

// totals adds up what schedules did.
type totals struct {
	mu                                       sync.Mutex // protects all
	writes, swaps, reads, glimpses, unknowns int
	busy                                     time.Duration
}

// String is for the end of the run.
func (a *totals) String() string {
	seconds := a.busy.Seconds()
	return fmt.Sprintf("%d writes, %d swaps, %d consistent reads, %d others, %d unknown; %.0f acknowledged writes and %.0f consistent reads a second in each",
		a.writes, a.swaps, a.reads, a.glimpses, a.unknowns, float64(a.writes+a.swaps)/seconds, float64(a.reads)/seconds)
}

func (a *totals) add(h *history, busy time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range h.ops {
		if o.outcome == unknown {
			a.unknowns++
		}
	}
	a.writes, a.swaps, a.reads, a.glimpses = a.writes+h.count(actWrite), a.swaps+h.count(actSwap), a.reads+h.count(actRead), a.glimpses+h.count(actGlimpse)
	a.busy += busy
}

// runSchedule runs one schedule, and checks what the clients and logs say.
func runSchedule(t *testing.T, s schedule, all *totals) {
	t.Logf("again: RUTTER_SEED=%d go test ./integration/faults -run 'TestSchedules' -v%v", s.seed, s)
	c := newCluster(t)
	w := newWorkload(t, c)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx, s.seed) })
	f := &follower{w: w}
	running.Go(func() { f.run(ctx) })
	(&nemesis{t: t, c: c}).run(ctx, s)
	w.recover(ctx)
	sleep(ctx, calmTime)
	stop()
	running.Wait()
	busy := w.h.now()
	c.waitReady()
	w.finalReads()
	entries := readLogs(t, c)
	checkRegisters(w.h.ops).report(t)
	checkLog(w.objects(), w.h.ops, entries).report(t)
	f.check(entries)
	for _, s := range c.servers {
		if s.died() {
			t.Errorf("%s ended by itself", s.id)
		}
	}
	t.Logf("%d writes, %d consistent reads, %d entries followed, %v", w.h.count(actWrite, actSwap), w.h.count(actRead), len(f.chains), busy)
	all.add(w.h, busy)
}

// recover waits until writes and reads that began after the last fault were
// answered, and enough were in all.
func (w *workload) recover(ctx context.Context) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	at := w.h.now()
	for {
		wrote, read := w.h.since(at, actWrite), w.h.since(at, actRead)
		writes, reads := w.h.count(actWrite, actSwap), w.h.count(actRead)
		switch {
		case wrote && read && writes >= leastWrites && reads >= leastReads:
			w.t.Logf("well again %v after the last fault", w.h.now()-at)
			return
		case ctx.Err() != nil:
			w.t.Errorf("%v after the last fault: %d writes (of after it: %t) and %d consistent reads (%t), want %d and %d", recovery, writes, wrote, reads, read, leastWrites, leastReads)
			return
		}
		sleep(ctx, 5*time.Millisecond)
	}
}

// follower reads the log as it grows, a moment from each server in turn, as a
// listener that roams.
type follower struct {
	w      *workload
	chains []log.ChainPrefix
	times  []time.Duration // when each was seen
}

// roam is how long the follower stays with one server.
const roam = 300 * time.Millisecond

func (f *follower) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		api := f.w.apis[2*(i%servers)+1]
		stay, cancel := context.WithTimeout(ctx, roam)
		for line, err := range api.Log(stay, client.LogQuery{After: log.Seq(len(f.chains)), Follow: true}) {
			if err != nil {
				break // paused, cut off, behind: the next one
			}
			if line.Seq != log.Seq(len(f.chains)+1) {
				f.w.t.Errorf("followed to seq %d, then %d came from %s", len(f.chains), line.Seq, f.w.c.servers[i%servers].id)
				cancel()
				return
			}
			f.chains, f.times = append(f.chains, line.Chain), append(f.times, f.w.h.now())
		}
		cancel()
	}
}

// check compares what was followed with the log as it is at the end, and says
// if nothing was.
func (f *follower) check(entries []entry) {
	if len(f.chains) < leastWrites/2 {
		f.w.t.Errorf("only %d entries were followed", len(f.chains))
	}
	for i, chain := range f.chains {
		if i >= len(entries) || entries[i].chain != chain {
			f.w.t.Errorf("seq %d was followed as %s, at %v, and is something else now", i+1, chain, f.times[i])
			return
		}
	}
}
