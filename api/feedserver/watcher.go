package feedserver

import (
	"math/rand/v2"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"rutter/api/logread"
)

// Times of the watcher.
const (
	// Subscribers that no entry concerned get a bookmark in rounds, each in
	// tickSlices parts at most, of tickEach at least, since each part is a wake-up:
	// of idleRound while the log is idle, else of tickPer for each subscriber, from
	// busyRound on.
	idleRound  = time.Second
	busyRound  = 100 * time.Millisecond
	tickPer    = 100 * time.Microsecond
	tickSlices = 10
	tickEach   = 64
	// A storm is stormJoins subscribers with less than stormEnd between them. What
	// their requests left behind would stay until the next collection, which on an
	// idle server is minutes away: it is given back at the end.
	stormJoins = 1000
	stormEnd   = time.Second
	// drainSpread is how far apart two subscribers are sent away, so that the
	// next server is not run over; drainMost bounds the time for all of them.
	drainSpread = 100 * time.Microsecond
	drainMost   = 2 * time.Second
)

// Wake-ups of a busy log. A write to a subscriber costs the same for one entry as
// for twenty, so one that was just written to waits for what comes next: the
// longer, the more streams there are. One that was idle is written to at once.
// Up to paceFew streams that is less than what people notice; beyond it the
// processor is what is short.
const (
	pacePerStream = 25 * time.Microsecond // 5 ms at 200, 100 ms at 4,000
	paceSteep     = 75 * time.Microsecond // for each beyond paceFew: 15 ms at 333
	paceSteepMost = 40 * time.Millisecond
	paceMost      = 100 * time.Millisecond
	paceFew       = 200 // streams
	paceFrom      = 50  // streams; below it is of no use
)

func paceOf(streams int64) time.Duration {
	if streams < paceFrom {
		return 0
	}
	n := time.Duration(streams)
	steep := min(paceFew*pacePerStream+max(n-paceFew, 0)*paceSteep, paceSteepMost)
	if n <= paceFew {
		steep = 0
	}
	return min(max(n*pacePerStream, steep), paceMost)
}

// watcher reads what the log has new, once for all subscribers, and wakes those whom
// it concerns, by the index of who holds which scope. The others are woken at ticks.
//
// Its goroutine runs while there are subscribers.
type watcher struct {
	store      Store
	tail       *logread.Tail
	index      *scopeIndex
	snapshots  *snapshots
	dispatcher *dispatcher
	streams    func() int64    // decides the pace
	draining   <-chan struct{} // closed: all are sent away

	mu      sync.Mutex    // protects what follows; taken before that of the index
	members []*member     // in no order
	stop    chan struct{} // ends the goroutine; nil: there is none
	joins   int           // since the last storm ended
	joined  time.Time     // the last of them

	reading sync.Mutex // held while the index advances; taken before mu
}

// member is a subscriber as the watcher knows it.
type member struct {
	task *task
	conn net.Conn
	slot int // in watcher.members; protected by its lock
}

// join adds a subscriber and lets it run, for why.
func (w *watcher) join(m *member, why reason) {
	w.mu.Lock()
	w.joins, w.joined = w.joins+1, time.Now()
	m.slot = len(w.members)
	w.members = append(w.members, m)
	if w.stop == nil {
		stop := make(chan struct{})
		w.stop = stop
		w.restart()
		w.dispatcher.start(func() { w.watch(stop) })
	}
	w.mu.Unlock()
	m.task.wake(why)
}

// leave forgets a subscriber.
func (w *watcher) leave(m *member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.members) - 1
	w.members[m.slot] = w.members[last]
	w.members[m.slot].slot = m.slot
	w.members[last] = nil
	w.members = w.members[:last]
	if last == 0 {
		close(w.stop)
		w.stop = nil
		w.members = nil
	}
}

// watch wakes subscribers until stop is closed.
func (w *watcher) watch(stop chan struct{}) {
	tick := time.NewTimer(w.tickAfter(false))
	defer tick.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	draining := w.draining
	slice, still := 0, time.Duration(0) // still is how long nothing came
	var woke time.Time
	for {
		changed := w.store.Changed()
		if left := paceOf(w.streams()) - time.Since(woke); left > 0 {
			changed = nil // what comes meanwhile goes out together
			pause.Reset(left)
		} else if w.read() {
			woke = time.Now()
			if still >= idleRound {
				tick.Reset(w.tickAfter(false))
			}
			still = 0
		}
		select {
		case <-stop:
			return
		case <-draining:
			draining = nil
			w.drain(stop)
		case <-changed:
		case <-pause.C:
		case <-tick.C:
			slice = w.tick(slice)
			after := w.tickAfter(still >= idleRound)
			still += after
			tick.Reset(after)
		}
	}
}

// tickAfter is how long it takes until the next part of the subscribers is woken.
func (w *watcher) tickAfter(idle bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	round := idleRound
	if !idle {
		round = min(max(time.Duration(len(w.members))*tickPer, busyRound), idleRound)
	}
	return round / time.Duration(w.slicesLocked())
}

// slicesLocked is in how many parts the subscribers are woken at ticks.
func (w *watcher) slicesLocked() int { return min(max(len(w.members)/tickEach, 1), tickSlices) }

// read reads what the log has new, notes the scopes that it concerns and wakes
// those who hold them. It reports whether there was anything.
func (w *watcher) read() (moved bool) {
	w.reading.Lock()
	defer w.reading.Unlock()
	head := w.store.Head()
	at := w.index.position()
	replaced := at.Cluster != head.Cluster || at.Seq > head.Seq || at.Seq == head.Seq && at.Chain != head.Chain
	for at.Seq < head.Seq && !replaced {
		entries, err := w.tail.After(at.Seq)
		of := logread.Position{Cursor: at, Known: true}
		if err != nil || len(entries) == 0 || of.Check(w.store) != nil {
			break
		}
		moved = true
		var woken []*task
		at, woken = w.index.advance(entries, w.snapshots.forget)
		w.dispatcher.push(woken...)
	}
	if replaced || at.Seq < head.Seq {
		// What is between cannot be read, or it is another log: each subscriber finds
		// out for itself what that means for it.
		w.mu.Lock()
		w.restart()
		all := schedule(w.members, wakeLog)
		w.mu.Unlock()
		w.dispatcher.push(all...)
		moved = true
	}
	return moved
}

// restart begins to read at the head: of what is before it nothing is known.
func (w *watcher) restart() {
	w.index.restart(w.store.Head())
	w.snapshots.forgetAll()
}

// schedule notes why members are to run, and returns the tasks that must be pushed.
func schedule(members []*member, why reason) (idle []*task) {
	for _, m := range members {
		if m.task.schedule(why) {
			idle = append(idle, m.task)
		}
	}
	return idle
}

// tick wakes some of the subscribers, and returns the slice that is next.
func (w *watcher) tick(slice int) (next int) {
	w.mu.Lock()
	var idle []*task
	slices := w.slicesLocked()
	for i := slice % slices; i < len(w.members); i += slices {
		idle = append(idle, schedule(w.members[i:i+1], wakeTick)...)
	}
	calm := time.Since(w.joined) > stormEnd
	storm := calm && w.joins >= stormJoins
	if calm {
		w.joins = 0
	}
	w.mu.Unlock()
	w.dispatcher.push(idle...)
	if storm {
		w.dispatcher.start(debug.FreeOSMemory)
	}
	return (slice + 1) % slices
}

// all returns the members.
func (w *watcher) all() []*member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*member(nil), w.members...)
}

// drain sends all away, in a random order and some time apart.
func (w *watcher) drain(stop chan struct{}) {
	all := w.all()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	spread := min(time.Duration(len(all))*drainSpread, drainMost)
	began := time.Now()
	for i, m := range all {
		due := spread * time.Duration(i) / time.Duration(len(all))
		if wait := due - time.Since(began); wait > time.Millisecond {
			select {
			case <-time.After(wait):
			case <-stop:
			}
		}
		m.task.wake(wakeDrain)
	}
}

// abort ends all connections at once.
func (w *watcher) abort() {
	for _, m := range w.all() {
		m.conn.Close()
	}
}
