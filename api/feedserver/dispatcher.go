package feedserver

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Bounds of the dispatcher.
const (
	// spareWorkers are those beyond one for each processor: a run may wait for the
	// disk while it catches up.
	spareWorkers = 2
	// runsEach is for how many queued tasks one more worker is worth its wake-up.
	runsEach = 64
)

// reason is why a task is woken: bits.
type reason uint32

// reasonScheduled says that a task is queued or runs. It stays when the task is over.
const reasonScheduled reason = 1

// dispatcher runs tasks on few goroutines. A task with nothing to do costs no
// goroutine: it is queued when it is woken, and one of the workers runs it. A worker
// that must wait for a slow socket (or the leader) is replaced by another one
// meanwhile, so that no task waits for another's socket.
//
// It knows tasks only by what they are given at their construction.
type dispatcher struct {
	start func(func()) // starts a goroutine
	limit int          // workers that run at once

	mu         sync.Mutex // protects what follows
	queue      []*task
	unfinished []*task // whose last run was too short for them: they wait behind queue
	catching   int     // workers that run one of those, at most spareWorkers
	working    int     // workers that are not blocked
}

func newDispatcher(start func(func())) *dispatcher {
	return &dispatcher{start: start, limit: runtime.GOMAXPROCS(0) + spareWorkers}
}

// outcome is what a run says of its task.
type outcome int

const (
	idle       outcome = iota // until it is woken
	unfinished                // it has more to do, after those who are queued
	over                      // that was the last run
)

// task is run when it is woken, never on two goroutines at once.
type task struct {
	dispatcher *dispatcher
	run        func(why reason) outcome
	ended      func()        // called after the last run
	why        atomic.Uint32 // the reasons to run next
	catchingUp bool          // this run is one of those of unfinished tasks; changed by the dispatcher
}

// wake lets the task run.
func (t *task) wake(why reason) {
	if t.schedule(why) {
		t.dispatcher.push(t)
	}
}

// schedule notes why the task is to run. It reports whether the task must be pushed.
func (t *task) schedule(why reason) bool {
	return t.why.Or(uint32(why|reasonScheduled))&uint32(reasonScheduled) == 0
}

// scheduleAll notes why tasks are to run, and returns those that must be pushed.
func scheduleAll(tasks []*task, why reason) (idle []*task) {
	for _, t := range tasks {
		if t.schedule(why) {
			idle = append(idle, t)
		}
	}
	return idle
}

// reasons are those for the next run.
func (t *task) reasons() reason { return reason(t.why.Load()) }

// push queues tasks that were scheduled.
func (d *dispatcher) push(tasks ...*task) {
	if len(tasks) == 0 {
		return
	}
	d.mu.Lock()
	d.queue = append(d.queue, tasks...)
	start := d.startLocked()
	d.mu.Unlock()
	for range start {
		d.start(d.work)
	}
}

// startLocked counts as many workers as may be started for what is queued.
func (d *dispatcher) startLocked() int {
	want := len(d.unfinished)
	if n := len(d.queue); n > 0 {
		want += 1 + n/runsEach
	}
	start := max(0, min(d.limit, want)-d.working)
	d.working += start
	return start
}

// nextLocked takes the task to run next; nil: there is none.
func (d *dispatcher) nextLocked() (t *task, catchingUp bool) {
	from := &d.queue
	if len(d.queue) == 0 {
		if from = &d.unfinished; len(d.unfinished) == 0 || d.catching >= spareWorkers {
			return nil, false
		}
		d.catching++
		catchingUp = true
	}
	t = (*from)[0]
	(*from)[0] = nil
	if *from = (*from)[1:]; len(*from) == 0 {
		*from = nil
	}
	return t, catchingUp
}

// work runs tasks until none is queued.
func (d *dispatcher) work() {
	for {
		d.mu.Lock()
		var t *task
		var catchingUp bool
		if d.working <= d.limit {
			t, catchingUp = d.nextLocked()
		}
		if t == nil {
			d.working--
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		t.catchingUp = catchingUp
		result := t.run(reason(t.why.And(uint32(reasonScheduled))) &^ reasonScheduled)
		again := result == idle && !t.why.CompareAndSwap(uint32(reasonScheduled), 0) // it was woken meanwhile
		d.mu.Lock()
		if catchingUp {
			d.catching--
		}
		switch {
		case result == unfinished:
			d.unfinished = append(d.unfinished, t)
		case again:
			d.queue = append(d.queue, t)
		}
		d.mu.Unlock()
		if result == over {
			t.ended()
		}
		if catchingUp {
			runtime.Gosched() // to whom entries are new come first
		}
	}
}

// block calls fn, which may take long, in a run of the task, while another worker
// takes this one's place.
func (t *task) block(fn func()) {
	d := t.dispatcher
	d.mu.Lock()
	d.working--
	if t.catchingUp {
		d.catching-- // else those who are slow would keep others from catching up
	}
	start := d.startLocked()
	d.mu.Unlock()
	for range start {
		d.start(d.work)
	}
	fn()
	d.mu.Lock()
	d.working++
	if t.catchingUp {
		d.catching++
	}
	d.mu.Unlock()
}
