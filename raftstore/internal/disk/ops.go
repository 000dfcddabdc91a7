package disk

import (
	"sync"
	"time"
)

// op is an operation on disk that is under way.
type op struct {
	what  string
	slack time.Duration // how many times as long as other operations it may take
	age   time.Duration // sum of the times passed to Look
}

// Ops are the operations on disk of one store that are under way. The zero value is ready
// for use; a nil Ops does nothing. Its methods may be called from any goroutine.
//
// The watcher counts their age, in its calls of Look. So the age does not include a time
// in which the process was stopped, as when a virtual machine was migrated.
type Ops struct {
	// Delay, if not nil, is called by Before. It is set before the first use.
	Delay func(what string)

	mu   sync.Mutex
	next uint64
	open map[uint64]*op
}

// Slack is how many times as long as a write of raft's log a transaction of changes.db
// may take. It has many events, and no acknowledgement waits for it.
const Slack = 4

// Before calls Delay, as an operation of that age, before the operation begins. It is called
// where the caller has no lock: a disk that hangs holds up who waits for it, and no other.
func (o *Ops) Before(what string, slack time.Duration) {
	if o == nil || o.Delay == nil {
		return
	}
	number := o.Begin(what, slack)
	defer o.End(number)
	o.Delay(what)
}

// Begin adds an operation that may take slack times as long as others. The caller passes
// the returned number to End.
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

// End removes an operation that has ended.
func (o *Ops) End(number uint64) {
	if o == nil {
		return
	}
	o.mu.Lock()
	delete(o.open, number)
	o.mu.Unlock()
}

// Look adds passed, the time since the last call, to the age of each operation. It
// returns the operation with the highest age divided by slack; what is "" if there is
// none. weighed is that quotient, which is compared with a bound; age is the age itself.
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
