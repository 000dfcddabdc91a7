package api

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"rutter/log"
)

// Bounds and times of the crew.
const (
	// spareWorkers are those beyond one for each processor: a turn may wait for
	// the disk while it catches up.
	spareWorkers = 2
	// turnsEach is for how many queued subscribers one more worker is worth its
	// wake-up.
	turnsEach = 64
	// turnTime is how long a turn lasts before others have theirs.
	turnTime = 5 * time.Millisecond
	// Subscribers that nothing concerned are told their place in rounds, each in
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

// Why a subscriber is woken: bits. wakeScheduled says that it is queued or has
// its turn, and stays when the subscriber is over.
const (
	wakeScheduled uint32 = 1 << iota
	wakeStart
	wakeLog  // the log has something for it
	wakeTick // it is looked after
	wakePing
	wakeAsk
	wakeRequest // it is asked about its VMs
	wakeWanted  // somebody waits for what it knows
	wakeDrain
	wakeReplaced
	wakeEnd
	wakeLied // what the CN said of itself cannot be
)

// mustEnd are the reasons that end a stream.
const mustEnd = wakeDrain | wakeReplaced | wakeEnd | wakeLied

// crew writes to all subscribers. A subscriber for which there is nothing to do
// costs no goroutine here: it is queued when it is woken, and one of few workers
// gives it a turn. A worker that must wait for a slow socket (or the leader) has
// another take its place, so nobody waits for somebody else's socket.
//
// One watcher reads what the log has new, once for all, and wakes whom it
// concerns, by an index of who holds which scope. Whoever is not concerned is
// told its place at a tick.
//
// Goroutines: the watcher runs while there are subscribers; workers while there
// is something to do. All are counted in Server.handlers.
type crew struct {
	s    *Server
	most int          // workers that run at once
	held atomic.Int32 // turns that wait for a socket which takes nothing

	mu        sync.Mutex // protects what follows
	queue     []*subscriber
	late      []*subscriber // whose last turn was too short for them: they wait for their turn behind queue
	catching  int           // workers that give a turn to one of those, at most spareWorkers
	working   int           // workers that are not blocked
	members   []*subscriber // in no order
	audiences map[log.Scope]*audience
	at        log.Cursor    // what was read for all; audiences know all up to it
	stop      chan struct{} // ends the watcher; nil: there is none
	joins     int           // since the last storm ended
	joined    time.Time     // the last of them

	looking sync.Mutex // held while at is moved; taken before mu
}

func newCrew(s *Server) *crew {
	return &crew{s: s, most: runtime.GOMAXPROCS(0) + spareWorkers, audiences: make(map[log.Scope]*audience)}
}

// join has u get turns, the first one at once.
func (c *crew) join(u *subscriber) {
	c.mu.Lock()
	c.joins, c.joined = c.joins+1, time.Now()
	u.slot = len(c.members)
	c.members = append(c.members, u)
	if c.stop == nil {
		stop := make(chan struct{})
		c.stop = stop
		c.restartLocked()
		c.s.handlers.Go(func() { c.watch(stop) })
	}
	c.mu.Unlock()
	u.wake(wakeStart)
}

// leave forgets u, which has had its last turn.
func (c *crew) leave(u *subscriber) {
	u.unholdAll()
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.members) - 1
	c.members[u.slot] = c.members[last]
	c.members[u.slot].slot = u.slot
	c.members[last] = nil
	c.members = c.members[:last]
	if last == 0 {
		close(c.stop)
		c.stop = nil
		c.members = nil
	}
}

// wake has u get a turn.
func (u *subscriber) wake(why uint32) {
	if u.why.Or(why|wakeScheduled)&wakeScheduled == 0 {
		u.s.crew.push(u)
	}
}

func (c *crew) push(u ...*subscriber) {
	if len(u) == 0 {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, u...)
	start := c.startLocked()
	c.mu.Unlock()
	for range start {
		c.s.handlers.Go(c.work)
	}
}

// startLocked counts as many workers as may be started for what is queued.
func (c *crew) startLocked() int {
	want := len(c.late)
	if n := len(c.queue); n > 0 {
		want += 1 + n/turnsEach
	}
	start := max(0, min(c.most, want)-c.working)
	c.working += start
	return start
}

// nextLocked takes who is to have a turn; nil: nobody.
func (c *crew) nextLocked() (u *subscriber, late bool) {
	from := &c.queue
	if len(c.queue) == 0 {
		if from = &c.late; len(c.late) == 0 || c.catching >= spareWorkers {
			return nil, false
		}
		c.catching++
		late = true
	}
	u = (*from)[0]
	(*from)[0] = nil
	if *from = (*from)[1:]; len(*from) == 0 {
		*from = nil
	}
	return u, late
}

// work gives turns until nobody is queued.
func (c *crew) work() {
	for {
		c.mu.Lock()
		var u *subscriber
		var late bool
		if c.working <= c.most {
			u, late = c.nextLocked()
		}
		if u == nil {
			c.working--
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		u.behind = late
		over := u.turn(u.why.And(wakeScheduled) &^ wakeScheduled)
		again := !over && (u.late || !u.why.CompareAndSwap(wakeScheduled, 0)) // it was woken meanwhile
		c.mu.Lock()
		if late {
			c.catching--
		}
		switch {
		case again && u.late:
			c.late = append(c.late, u)
		case again:
			c.queue = append(c.queue, u)
		}
		c.mu.Unlock()
		if over {
			c.leave(u)
			close(u.over)
		}
		if late {
			runtime.Gosched() // to whom entries are new come first
		}
	}
}

// blocking runs fn, which may take long, in a turn of u, while another worker takes
// this one's place.
func (c *crew) blocking(u *subscriber, fn func()) {
	c.mu.Lock()
	c.working--
	if u.behind {
		c.catching-- // else those who are slow would keep others from catching up
	}
	start := c.startLocked()
	c.mu.Unlock()
	for range start {
		c.s.handlers.Go(c.work)
	}
	fn()
	c.mu.Lock()
	c.working++
	if u.behind {
		c.catching++
	}
	c.mu.Unlock()
}

// watch wakes subscribers until stop is closed.
func (c *crew) watch(stop chan struct{}) {
	tick := time.NewTimer(c.tickAfter(false))
	defer tick.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	draining := c.s.draining
	slice, still := 0, time.Duration(0) // still is how long nothing came
	var woke time.Time
	for {
		changed := c.s.store.Changed()
		if left := c.s.pace() - time.Since(woke); left > 0 {
			changed = nil // what comes meanwhile goes out together
			pause.Reset(left)
		} else if c.look() {
			woke = time.Now()
			if still >= idleRound {
				tick.Reset(c.tickAfter(false))
			}
			still = 0
		}
		select {
		case <-stop:
			return
		case <-draining:
			draining = nil
			c.drain(stop)
		case <-changed:
		case <-pause.C:
		case <-tick.C:
			slice = c.tick(slice)
			after := c.tickAfter(still >= idleRound)
			still += after
			tick.Reset(after)
		}
	}
}

// tickAfter is how long it takes until the next part of the subscribers is looked
// after.
func (c *crew) tickAfter(idle bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	round := idleRound
	if !idle {
		round = min(max(time.Duration(len(c.members))*tickPer, busyRound), idleRound)
	}
	return round / time.Duration(c.slicesLocked())
}

// slicesLocked is in how many parts the subscribers are looked after.
func (c *crew) slicesLocked() int { return min(max(len(c.members)/tickEach, 1), tickSlices) }

// look reads what the log has new, notes the scopes that it concerns and wakes
// those who hold them. It reports whether there was anything.
func (c *crew) look() (moved bool) {
	c.looking.Lock()
	defer c.looking.Unlock()
	head := c.s.store.Head()
	c.mu.Lock()
	at := c.at
	c.mu.Unlock()
	replaced := at.Cluster != head.Cluster || at.Seq > head.Seq || at.Seq == head.Seq && at.Chain != head.Chain
	for at.Seq < head.Seq && !replaced {
		items, err := c.s.tail.after(at.Seq)
		if err != nil || len(items) == 0 || c.s.isOf(&position{Cursor: at, sure: true}) != nil {
			break
		}
		moved = true
		at = c.note(items)
	}
	if replaced || at.Seq < head.Seq {
		// What is between cannot be read, or it is another log: each finds out
		// for itself what that means for it.
		c.mu.Lock()
		c.restartLocked()
		all := c.scheduleLocked(c.members, wakeLog)
		c.mu.Unlock()
		c.push(all...)
		moved = true
	}
	return moved
}

// restartLocked begins to read at the head: of what is before nothing is known.
func (c *crew) restartLocked() {
	c.at = c.s.store.Head()
	for _, a := range c.audiences {
		a.touched = c.at.Seq
	}
	c.s.images.forget(nil)
}

// note takes items that follow at, and returns where that then is.
func (c *crew) note(items []*item) log.Cursor {
	c.mu.Lock()
	var woken []*subscriber
	for _, it := range items {
		for _, scope := range it.event.Scopes {
			c.s.images.forget(&scope)
			a := c.audiences[scope]
			if a == nil {
				continue
			}
			if a.touched <= c.at.Seq { // else they are woken already
				woken = append(woken, c.scheduleLocked(a.members, wakeLog)...)
			}
			a.touched = it.entry.Seq
		}
	}
	last := items[len(items)-1].entry
	c.at.Seq, c.at.Chain = last.Seq, last.Hash.Prefix()
	at := c.at
	c.mu.Unlock()
	c.push(woken...)
	return at
}

// scheduleLocked notes why, and returns who is to be queued for it.
func (c *crew) scheduleLocked(members []*subscriber, why uint32) (idle []*subscriber) {
	for _, u := range members {
		if u.why.Or(why|wakeScheduled)&wakeScheduled == 0 {
			idle = append(idle, u)
		}
	}
	return idle
}

// tick looks after some of the subscribers, and returns who is next.
func (c *crew) tick(slice int) (next int) {
	c.mu.Lock()
	var idle []*subscriber
	slices := c.slicesLocked()
	for i := slice % slices; i < len(c.members); i += slices {
		idle = append(idle, c.scheduleLocked(c.members[i:i+1], wakeTick)...)
	}
	calm := time.Since(c.joined) > stormEnd
	storm := calm && c.joins >= stormJoins
	if calm {
		c.joins = 0
	}
	c.mu.Unlock()
	c.push(idle...)
	if storm {
		c.s.handlers.Go(debug.FreeOSMemory)
	}
	return (slice + 1) % slices
}

// want has CNs asked how far they are, since somebody waits until they have
// programmed seq; all, if none are named.
func (c *crew) want(seq log.Seq, cns []log.UUID) {
	if cns == nil {
		for _, a := range c.s.cns.all() {
			a.want(seq)
		}
	}
	for _, cn := range cns {
		if a := c.s.cns.get(cn); a != nil {
			a.want(seq)
		}
	}
}

// want has the CN asked, unless it was, or has said so.
func (a *session) want(seq log.Seq) {
	a.mu.Lock()
	known := a.watermark.Programmed >= seq
	a.mu.Unlock()
	u := a.subscriber
	for old := u.wanted.Load(); !known && old < uint64(seq); old = u.wanted.Load() {
		if u.wanted.CompareAndSwap(old, uint64(seq)) {
			u.wake(wakeWanted)
		}
	}
}

// drain sends all away, in a random order and some time apart.
func (c *crew) drain(stop chan struct{}) {
	c.mu.Lock()
	all := append([]*subscriber(nil), c.members...)
	c.mu.Unlock()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	spread := min(time.Duration(len(all))*drainSpread, drainMost)
	began := time.Now()
	for i, u := range all {
		due := spread * time.Duration(i) / time.Duration(len(all))
		if wait := due - time.Since(began); wait > time.Millisecond {
			select {
			case <-time.After(wait):
			case <-stop:
			}
		}
		u.wake(wakeDrain)
	}
}

// cut ends all connections at once.
func (c *crew) cut() {
	c.mu.Lock()
	all := append([]*subscriber(nil), c.members...)
	c.mu.Unlock()
	for _, u := range all {
		u.conn.Close()
	}
}
