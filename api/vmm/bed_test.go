package vmm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testUUID(n int) log.UUID {
	u, err := log.ParseUUID(fmt.Sprintf("00000000-0000-4000-8000-%012x", n))
	if err != nil {
		panic(err)
	}
	return u
}

func newID() (log.UUID, error) {
	id, err := uuid.NewV7()
	return log.UUID(id), err
}

// central is the agreed log: the real decisions, in memory.
type central struct {
	mu      sync.Mutex // protects what follows
	state   *projections.State
	events  []*log.Event
	results map[log.UUID]log.Result
	lose    func() (before, after bool) // whether a proposal is lost before or after it is written
}

func newCentral() *central {
	return &central{state: projections.NewState(), results: make(map[log.UUID]log.Result)}
}

var errLost = errors.New("leadership lost")

func (c *central) propose(change *log.Change) (log.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := false, false
	if c.lose != nil {
		before, after = c.lose()
	}
	if before {
		return log.Result{}, errLost
	}
	result, done := c.results[change.ID]
	if !done {
		change.Time, change.Seed = c.state.Time()+1, uint64(len(c.events))+1
		var events []*log.Event
		events, result = rules.Decide(c.state, change)
		for _, e := range events {
			c.events = append(c.events, e)
			if _, err := c.state.Apply(log.Seq(len(c.events)), e); err != nil {
				panic(err)
			}
		}
		result.Last = log.Seq(len(c.events))
		c.results[change.ID] = result
	}
	if after {
		return log.Result{}, errLost
	}
	return result, nil
}

// create puts objects into the log.
func (c *central) create(t interface{ Fatalf(string, ...any) }, objects ...log.Object) {
	id, _ := newID()
	change := &log.Change{ID: id, Actor: "test"}
	for _, o := range objects {
		var set []string
		for _, d := range log.Diff(log.NewObject(o.Kind()), o) {
			set = append(set, d.Path)
		}
		change.Ops = append(change.Ops, log.Op{Action: log.Create, Kind: o.Kind(), Object: o, Set: set})
	}
	if result, err := c.propose(change); err != nil || result.Refusal != nil {
		t.Fatalf("create: %v %v", err, result.Refusal)
	}
}

// follower is a server's Store: the log so far as it has come there.
type follower struct {
	c *central

	mu    sync.Mutex // protects what follows
	state *projections.State
	seq   log.Seq
	lag   func() time.Duration // of one entry; nil: none
}

func newFollower(c *central) *follower { return &follower{c: c, state: projections.NewState()} }

// catchUp applies what there is, up to a seq.
func (f *follower) catchUp(to log.Seq) {
	f.c.mu.Lock()
	events := f.c.events
	f.c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.seq < to && int(f.seq) < len(events) {
		if _, err := f.state.Apply(f.seq+1, events[f.seq]); err != nil {
			panic(err)
		}
		f.seq++
	}
}

func (f *follower) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	if f.lag != nil {
		time.Sleep(f.lag())
	}
	result, err := f.c.propose(c)
	if f.lag == nil {
		f.catchUp(result.Last)
	}
	return result, err
}

func (f *follower) View(fn func(*projections.State, log.Cursor)) {
	if f.lag == nil {
		f.catchUp(1 << 60)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.state, log.Cursor{Seq: f.seq})
}

func (f *follower) Consistent(context.Context) (log.Seq, error) {
	f.catchUp(1 << 60)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq, nil
}

func (f *follower) WaitSeq(ctx context.Context, seq log.Seq) error {
	f.catchUp(seq)
	return ctx.Err()
}

// crawl applies one entry after the other, late, until ctx ends.
func (f *follower) crawl(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
		f.mu.Lock()
		next := f.seq + log.Seq(random.IntN(4))
		f.mu.Unlock()
		f.catchUp(next)
	}
}

// run runs a service until the returned function is called.
func run(s *Service) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	return func() { cancel(); <-done }
}

// alone is a service without peers over a log of its own.
func alone(t testing.TB, change func(*Config)) (*Service, *central) {
	t.Helper()
	c := newCentral()
	cfg := Config{Store: newFollower(c), NewID: newID}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func (c *central) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.events)
}

// vmm is a VMM as the log has it, or nil.
func (c *central) vmm(id log.UUID) *log.VMM {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rec, ok := c.state.Get(log.KindVMM, id.String()); ok {
		return rec.Object.(*log.VMM)
	}
	return nil
}

// of lists the events of an object.
func (c *central) of(kind log.Kind, id log.UUID) (events []*log.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Kind == kind && e.ID == id.String() {
			events = append(events, e)
		}
	}
	return events
}
