package feedserver

import (
	"runtime"
	"sync"
	"sync/atomic"

	"rutter/log"
)

// Bounds of the dispatcher.
const (
	// spareWorkers is the number of workers beyond one for each processor: a run that
	// catches up may wait for the disk.
	spareWorkers = 2
	// runsEach is the number of queued tasks for which one more worker is started.
	runsEach = 64
)

// reason is a set of bits: why a task is woken.
type reason uint32

// reasonScheduled means that a task is queued or running. It remains set after the
// task's last run.
const reasonScheduled reason = 1

// dispatcher runs tasks on few goroutines. A task with nothing to do costs no
// goroutine: it is queued when it is woken, and one of the workers runs it. If a worker
// must wait for a slow socket or the leader, another worker replaces it meanwhile, so
// that no task waits for another task's socket.
//
// It knows nothing about tasks except the functions that they were made with.
type dispatcher struct {
	start func(func()) // starts a goroutine
	limit int          // workers that run at once

	mu         sync.Mutex // protects what follows
	queue      []*task
	unfinished []*task // tasks whose last run reached its time limit; they run after those of queue
	catching   int     // workers that run an unfinished task, at most spareWorkers
	working    int     // workers that are not blocked
}

func newDispatcher(start func(func())) *dispatcher {
	return &dispatcher{start: start, limit: runtime.GOMAXPROCS(0) + spareWorkers}
}

// outcome is the result of a run.
type outcome int

const (
	idle       outcome = iota // until it is woken
	unfinished                // it has more to do, after the queued tasks
	over                      // that was the last run
)

// task is run when it is woken, never on two goroutines at once.
type task struct {
	dispatcher *dispatcher
	run        func(why reason) outcome
	ended      func() // called after the last run
	// concerned is told that entries from first to last concern what the task is for, and
	// sample returns whether its subscriber is to be asked at once for its progress at an
	// entry. Both are nil if it is not measured.
	concerned  func(first, last log.Seq)
	sample     func(log.Seq) bool
	why        atomic.Uint32 // the reasons to run next
	catchingUp bool          // this run is of an unfinished task; changed by the dispatcher
}

// wake makes the task run.
func (t *task) wake(why reason) {
	if t.schedule(why) {
		t.dispatcher.push(t)
	}
}

// schedule adds a reason. It reports whether the task must be pushed.
func (t *task) schedule(why reason) bool {
	return t.why.Or(uint32(why|reasonScheduled))&uint32(reasonScheduled) == 0
}

// scheduleAll adds a reason to tasks, and returns those that must be pushed.
func scheduleAll(tasks []*task, why reason) (idle []*task) {
	for _, t := range tasks {
		if t.schedule(why) {
			idle = append(idle, t)
		}
	}
	return idle
}

// reasons returns the reasons for the next run.
func (t *task) reasons() reason { return reason(t.why.Load()) }

// push queues scheduled tasks.
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

// startLocked returns how many workers to start for the queue, and counts them.
func (d *dispatcher) startLocked() int {
	want := len(d.unfinished)
	if n := len(d.queue); n > 0 {
		want += 1 + n/runsEach
	}
	start := max(0, min(d.limit, want)-d.working)
	d.working += start
	return start
}

// nextLocked removes the next task from the queues; nil: there is none.
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
			runtime.Gosched() // tasks with new entries run first
		}
	}
}

// block calls fn, which may take long, during a run of the task. Another worker
// replaces this one meanwhile.
func (t *task) block(fn func()) {
	d := t.dispatcher
	d.mu.Lock()
	d.working--
	if t.catchingUp {
		d.catching-- // else slow subscribers would prevent others from catching up
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
