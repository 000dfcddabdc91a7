package disk

import (
	"sync"
	"time"
)

// op is an operation on disk that is under way.
type op struct {
	what  string
	slack time.Duration // how many times as long as others it may take
	age   time.Duration // as the looks have counted it
}

// Ops are the operations on disk of one store that are under way. The zero value is
// ready; a nil one notes nothing. Its methods may be called from any goroutine.
//
// Their age is counted by whoever looks, in looks: a process that was stopped for a
// while, as a machine that was moved, has not waited for its disk all that time.
type Ops struct {
	mu   sync.Mutex
	next uint64
	open map[uint64]*op
}

// Slack is how many times as long an operation of many writes may take as one write
// of raft's log: a transaction of changes.db has many events, and no acknowledgement
// waits for it.
const Slack = 4

// Begin notes an operation that may take slack times as long as others. End is
// called with what it returns.
func (o *Ops) Begin(what string, slack time.Duration) uint64 {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = make(map[uint64]*op)
	}
	o.next++
	o.open[o.next] = &op{what: what, slack: slack}
	return o.next
}

// End notes that an operation has ended.
func (o *Ops) End(number uint64) {
	if o == nil {
		return
	}
	o.mu.Lock()
	delete(o.open, number)
	o.mu.Unlock()
}

// Look adds the time since the last look to each operation, and returns the one
// that is under way for longest, by its own measure; "" if there is none. weighed is
// its age divided by its slack, which counts against a bound; age is what passed.
func (o *Ops) Look(passed time.Duration) (what string, weighed, age time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range o.open {
		op.age += passed
		if w := op.age / op.slack; what == "" || w > weighed {
			what, weighed, age = op.what, w, op.age
		}
	}
	return what, weighed, age
}
