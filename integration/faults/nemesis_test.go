package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fault is what the nemesis can do.
type fault int

const (
	killLeader   fault = iota // SIGKILL, and a start after the hold
	killOne                   // a server drawn
	killTwo                   // a majority
	killAll                   // as when the power fails, page cache aside
	pauseLeader               // SIGSTOP: it wakes up and believes that it leads
	pauseOne                  //
	pauseTwo                  //
	deafLeader                // it sends and hears nothing
	muteLeader                // it hears and is not heard
	cutLeader                 // both
	halfLeader                // one follower and it are cut from each other; both reach the third
	ring                      // each hears one of the other two
	someLinks                 // any set of directed links
	unplugLeader              // its port down: the clients lose it too
	unplugOne                 //
	transfer                  // the leadership moves by itself
	slowLeader                // short stops one after the other, as on a disk that takes its time
	slowOne                   //
	faults                    // how many there are
)

func (f fault) String() string {
	return [...]string{
		"kill leader", "kill one", "kill two", "kill all", "pause leader", "pause one", "pause two", "deaf leader", "mute leader",
		"cut leader", "half leader", "ring", "some links", "unplug leader", "unplug one", "transfer", "slow leader", "slow one",
	}[f]
}

// step is one fault of a schedule.
type step struct {
	fault fault
	at    time.Duration // begins, after the clients
	hold  time.Duration // ends after that
	draw  int           // which server, where one is drawn
	cuts  links         // of someLinks
}

// schedule is what happens in one run.
type schedule struct {
	seed  uint64
	steps []step
}

// String lists the steps.
func (s schedule) String() string {
	var b strings.Builder
	for _, step := range s.steps {
		fmt.Fprintf(&b, "\n  %5d ms for %4d ms: %v, %d%s", step.at.Milliseconds(), step.hold.Milliseconds(), step.fault, step.draw+1, step.cuts)
	}
	return b.String()
}

const (
	// faultTime is how long faults begin, and calmTime how long the clients go
	// on after the last one.
	faultTime = 2500 * time.Millisecond
	calmTime  = 500 * time.Millisecond
	maxSteps  = 5
	// longestFault is how long one may hold beyond the least.
	longestFault = 1300 * time.Millisecond
)

// newSchedule draws the schedule of a seed. Seeds that follow each other begin
// with different faults, so that a dozen of them have met nearly all.
func newSchedule(seed uint64) schedule {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := schedule{seed: seed}
	for i := range 2 + rng.IntN(maxSteps-1) {
		next := step{
			fault: fault(rng.IntN(int(faults))),
			at:    200*time.Millisecond + time.Duration(rng.Int64N(int64(faultTime))),
			hold:  200*time.Millisecond + time.Duration(rng.Int64N(int64(longestFault))),
			draw:  rng.IntN(servers),
		}
		if i == 0 {
			next.fault, next.at = fault(seed%uint64(faults)), 300*time.Millisecond
		}
		for next.fault == someLinks && next.cuts == 0 {
			next.cuts = links(rng.UintN(1<<(servers*servers))) &^ (link(0, 0) | link(1, 1) | link(2, 2))
		}
		s.steps = append(s.steps, next)
	}
	slices.SortFunc(s.steps, func(a, b step) int { return int(a.at - b.at) })
	return s
}

// nemesis carries out a schedule.
type nemesis struct {
	t  *testing.T
	c  *cluster
	mu sync.Mutex // protects active
	// active has the cuts of each step that holds now.
	active map[int]links
}

// run returns when every fault is over: all servers run, all links are whole.
func (n *nemesis) run(ctx context.Context, s schedule) {
	n.active = make(map[int]links)
	var steps sync.WaitGroup
	for i, step := range s.steps {
		steps.Go(func() {
			sleep(ctx, step.at)
			n.step(ctx, i, step)
		})
	}
	steps.Wait()
	for _, s := range n.c.servers {
		n.must(s.resume())
		n.must(s.start())
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (n *nemesis) must(err error) {
	if err != nil {
		n.t.Error(err)
	}
}

// step begins a fault, holds it, and ends it.
func (n *nemesis) step(ctx context.Context, i int, s step) {
	victim := n.c.servers[s.draw]
	switch s.fault {
	case killLeader, pauseLeader, deafLeader, muteLeader, cutLeader, halfLeader, unplugLeader, slowLeader:
		if leader := n.c.leader(ctx); leader != nil {
			victim = leader
		}
	}
	next, last := n.c.servers[(victim.host+1)%servers], n.c.servers[(victim.host+2)%servers]
	n.t.Logf("%v: %s", s.fault, victim.id)
	a, b, c := victim.host, next.host, last.host
	to, from := link(a, b)|link(a, c), link(b, a)|link(c, a)
	switch s.fault {
	case killLeader, killOne:
		n.kill(ctx, s.hold, victim)
	case killTwo:
		n.kill(ctx, s.hold, victim, next)
	case killAll:
		n.kill(ctx, s.hold, victim, next, last)
	case pauseLeader, pauseOne:
		n.pause(ctx, s.hold, victim)
	case pauseTwo:
		n.pause(ctx, s.hold, victim, next)
	case deafLeader:
		n.cut(ctx, i, s.hold, from)
	case muteLeader:
		n.cut(ctx, i, s.hold, to)
	case cutLeader:
		n.cut(ctx, i, s.hold, to|from)
	case halfLeader:
		n.cut(ctx, i, s.hold, link(a, b)|link(b, a))
	case ring:
		n.cut(ctx, i, s.hold, link(a, b)|link(b, c)|link(c, a))
	case someLinks:
		n.cut(ctx, i, s.hold, s.cuts)
	case unplugLeader, unplugOne:
		n.must(n.c.net.plug(a, false))
		sleep(ctx, s.hold)
		n.must(n.c.net.plug(a, true))
	case transfer:
		n.transfer(ctx, victim)
	case slowLeader, slowOne:
		n.slow(ctx, s.hold, victim)
	}
}

func (n *nemesis) kill(ctx context.Context, hold time.Duration, victims ...*server) {
	for _, s := range victims {
		n.must(s.kill())
	}
	sleep(ctx, hold)
	for _, s := range victims {
		n.must(s.start())
	}
}

func (n *nemesis) pause(ctx context.Context, hold time.Duration, victims ...*server) {
	for _, s := range victims {
		n.must(s.pause())
	}
	sleep(ctx, hold)
	for _, s := range victims {
		n.must(s.resume())
	}
}

// slow stops the server for most of the time, in pieces shorter than a
// heartbeat: everything it does takes several times as long.
func (n *nemesis) slow(ctx context.Context, hold time.Duration, victim *server) {
	for end := time.Now().Add(hold); time.Now().Before(end) && ctx.Err() == nil; sleep(ctx, 10*time.Millisecond) {
		n.pause(ctx, 40*time.Millisecond, victim)
	}
}

// cut holds cuts, beside those of other steps.
func (n *nemesis) cut(ctx context.Context, step int, hold time.Duration, cuts links) {
	n.t.Logf("cut%s", cuts)
	n.setCuts(step, cuts)
	sleep(ctx, hold)
	n.setCuts(step, 0)
}

func (n *nemesis) setCuts(step int, cuts links) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.active[step] = cuts
	var all links
	for _, l := range n.active {
		all |= l
	}
	n.must(n.c.net.cut(all))
}

// transfer asks for the leadership to move to the victim; that it cannot just
// now is no error.
func (n *nemesis) transfer(ctx context.Context, victim *server) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := n.c.api.Raw(ctx, "POST", "/cluster/transfer", []byte(`{"id":"`+victim.id+`"}`)); err != nil {
		n.t.Logf("transfer: %v", err)
	}
}
