package feedserver

import (
	"math/rand/v2"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"rutter/api/internal/logread"
	"rutter/api/internal/nodemetrics"
)

// Times of the watcher.
const (
	// Subscribers without new entries get a bookmark once per round. A round has at
	// most tickSlices parts, at least tickEach apart, because each part is a wake-up.
	// It lasts idleRound while the log is idle, else tickPer for each subscriber, at
	// least busyRound.
	idleRound  = time.Second
	busyRound  = 100 * time.Millisecond
	tickPer    = 100 * time.Microsecond
	tickSlices = 10
	tickEach   = 64
	// A storm is stormJoins subscribers less than stormEnd apart. The memory of their
	// requests would stay until the next collection, which is minutes away on an idle
	// server. So the watcher frees it at the end of the storm.
	stormJoins = 1000
	stormEnd   = time.Second
	// drainSpread is the time between two subscribers that are sent away, so that the
	// next server is not overloaded. drainMost bounds the time for all of them.
	drainSpread = 100 * time.Microsecond
	drainMost   = 2 * time.Second
)

// Wake-ups of a busy log. A write to a subscriber costs the same for 1 entry as for 20.
// So a subscriber that was just written to waits for more entries; the more streams,
// the longer. An idle subscriber is written to at once. Up to paceFew streams the delay
// is not noticeable. Beyond, the processor is the bottleneck.
const (
	pacePerStream = 25 * time.Microsecond // 5 ms at 200, 100 ms at 4,000
	paceSteep     = 75 * time.Microsecond // for each beyond paceFew: 15 ms at 333
	paceSteepMost = 40 * time.Millisecond
	paceMost      = 100 * time.Millisecond
	paceFew       = 200 // streams
	paceFrom      = 50  // streams; below it the delay has no use
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

// watcher reads new entries of the log once for all subscribers, and wakes those that
// hold a scope of an entry, by the scope index. The others are woken at ticks.
//
// Its goroutine runs while there are subscribers.
type watcher struct {
	store      Store
	tail       *logread.Tail
	index      *scopeIndex
	snapshots  *snapshots
	dispatcher *dispatcher
	tracker    *nodemetrics.Tracker
	streams    func() int64    // decides the pace
	draining   <-chan struct{} // closed: all are sent away
	lagging    func() error    // Config.Lagging

	mu      sync.Mutex    // protects what follows; taken before that of the index
	members []*member     // in no order
	stop    chan struct{} // ends the goroutine; nil: there is none
	joins   int           // since the last storm ended
	joined  time.Time     // time of the last of them

	reading sync.Mutex // held while the index advances; taken before mu
}

// member is the watcher's record of a subscriber.
type member struct {
	task *task
	conn net.Conn
	slot int // in watcher.members; protected by its lock
}

// join adds a subscriber and wakes it with why.
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
		w.dispatcher.start(func() { w.stamp(stop) })
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
	slice, still := 0, time.Duration(0) // still is the time without new entries
	var woke time.Time
	for {
		changed := w.store.Changed()
		if left := paceOf(w.streams()) - time.Since(woke); left > 0 {
			changed = nil // entries that arrive meanwhile are sent together
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

// tickAfter returns the time until the next part of the subscribers is woken.
func (w *watcher) tickAfter(idle bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	round := idleRound
	if !idle {
		round = min(max(time.Duration(len(w.members))*tickPer, busyRound), idleRound)
	}
	return round / time.Duration(w.slicesLocked())
}

// slicesLocked returns the number of parts of a round.
func (w *watcher) slicesLocked() int { return min(max(len(w.members)/tickEach, 1), tickSlices) }

// read reads new entries, marks the scopes that they concern and wakes the holders of
// these. It reports whether there were any.
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
		// The entries between cannot be read, or it is another log. Each subscriber
		// finds out for itself.
		w.mu.Lock()
		w.restart()
		all := schedule(w.members, wakeLog)
		w.mu.Unlock()
		w.dispatcher.push(all...)
		moved = true
	}
	return moved
}

// stamp records when this server applies what, until stop is closed. It is apart from
// watch, which pauses so that entries are sent together.
func (w *watcher) stamp(stop chan struct{}) {
	for {
		changed := w.store.Changed()
		w.tracker.Applied(w.store.Head().Seq)
		select {
		case <-stop:
			return
		case <-changed:
		}
	}
}

// restart makes the watcher read from the head. It knows nothing about earlier entries.
func (w *watcher) restart() {
	head := w.store.Head()
	w.index.restart(head)
	w.tracker.Restart(head.Seq)
	w.snapshots.forgetAll()
}

// schedule adds a reason to members' tasks, and returns those that must be pushed.
func schedule(members []*member, why reason) (idle []*task) {
	for _, m := range members {
		if m.task.schedule(why) {
			idle = append(idle, m.task)
		}
	}
	return idle
}

// tick wakes one slice of the subscribers, and returns the next slice. While this server
// lags, it sends that slice away: all are gone after one round, at most idleRound.
func (w *watcher) tick(slice int) (next int) {
	why := reason(wakeTick)
	if w.lagging() != nil {
		why |= wakeLagging
	}
	w.mu.Lock()
	var idle []*task
	slices := w.slicesLocked()
	for i := slice % slices; i < len(w.members); i += slices {
		idle = append(idle, schedule(w.members[i:i+1], why)...)
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

// drain sends all subscribers away, in random order and some time apart.
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
