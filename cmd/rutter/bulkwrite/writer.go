package bulkwrite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rutter/api/client"
	"rutter/log"
)

// Bounds of a Writer.
const (
	// MaxUnderWay is how many changes are without an answer at once: enough that the
	// servers never wait for the next one.
	MaxUnderWay = 1024
	// leastUnderWay is what overloaded servers slow it down to.
	leastUnderWay = 8
	// MaxHeld and MaxHeldBytes bound the changes that are read and not settled: under way,
	// held back because of an earlier one, or answered before an earlier one.
	MaxHeld      = 8192
	MaxHeldBytes = 64 << 20
	// Patience is how long servers may leave one change without an answer.
	Patience = 90 * time.Second
	// restAfter is the least pause after servers say that they are overloaded, and
	// longestRest the longest.
	restAfter   = 100 * time.Millisecond
	longestRest = 5 * time.Second
	// alone is how many of the first changes are submitted one after another: a target that
	// takes none of them is left as it was, and a short list is made in its order wherever
	// it is sent.
	alone = 32
	// growAfter is how many answers make the number under way one larger again.
	growAfter = 4
)

// Submitter submits a change, and returns what waits for its result: a client.Stream,
// whose errors it has.
type Submitter interface {
	Start(ctx context.Context, change *log.Change) (wait func(context.Context) (log.Result, error), err error)
}

// Item is a change to write.
type Item struct {
	Change *log.Change // nil: there is nothing to write, and Settled is called in its turn
	// Touches are its objects; nil: those of its operations, of which updates then must
	// not change what a Touch without Before must not change.
	Touches []Touch
	// Size is what the item takes in memory, in bytes, or about that; 0 counts as 1 KiB.
	Size int
	// Settled is called with its result, or with its refusal, or with the error for which
	// no server can take it. The calls are in the order of the items. An error ends the
	// Writer. nil: nothing is called.
	Settled func(result log.Result, refused error) error
}

// Options say how a Writer writes.
type Options struct {
	// GoOn: a refused change does not end it. The changes that waited for the refused one
	// are submitted all the same.
	GoOn bool
	// UnderWay bounds the changes under way; 0: MaxUnderWay. Patience is as the constant.
	UnderWay int
	Patience time.Duration
	// Idle, if not nil, is called now and then while the Writer waits, by its goroutine.
	Idle func()
}

// idleEvery is the time between two calls of Options.Idle.
const idleEvery = 200 * time.Millisecond

// RefusedError is the error of a Writer that a refusal ended.
type RefusedError struct{ Cause error }

// Error implements error.
func (e *RefusedError) Error() string { return e.Cause.Error() }

// Unwrap returns the *log.Refusal, client.ErrBadChange or log.ErrTooLarge.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Writer writes changes. See the package's documentation.
type Writer struct {
	to  Submitter
	o   Options
	ctx context.Context // of the submits

	mu      sync.Mutex // protects what follows
	changed chan struct{}
	held    []*job // in the order of Add; the first ones leave when they are settled
	bytes   int    // of held
	ready   []*job // to be submitted
	flying  int
	limit   int // of flying now
	answers int // since limit changed
	until   time.Time
	things  map[key]*thing
	failed  error // ends it
	added   uint64
	done    uint64 // answered
	// refused is the number of the first job that was refused, if that ended it: those
	// before it are still submitted.
	refused uint64

	hands sync.WaitGroup
}

// job is an item that is not settled.
type job struct {
	Item
	number uint64 // from 1, in the order of Add
	waits  int    // earlier jobs that must be answered first
	behind []*job // those that wait for it
	writes []key
	reads  []key
	state  state
	result log.Result
	err    error
}

type state byte

const (
	waiting state = iota
	underWay
	answered
)

// thing is what a key stands for: the last job that writes it, and those that read it
// since, as far as they are not answered.
type thing struct {
	writer  *job
	readers []*job
	users   int // jobs that are not answered
}

// New returns a Writer. Its submits end with ctx.
func New(ctx context.Context, to Submitter, o Options) *Writer {
	if o.UnderWay <= 0 {
		o.UnderWay = MaxUnderWay
	}
	if o.Patience <= 0 {
		o.Patience = Patience
	}
	return &Writer{to: to, o: o, ctx: ctx, limit: o.UnderWay, things: make(map[key]*thing), changed: make(chan struct{}, 1)}
}

// Add takes a change, as soon as there is room. It hands on results that are there.
// Errors: *RefusedError, those of Item.Settled and Submitter, ctx's. After an error
// nothing more is submitted; Wait still hands on what was answered.
func (w *Writer) Add(item Item) error {
	if item.Size <= 0 {
		item.Size = 1 << 10
	}
	for {
		if err := w.handOn(); err != nil {
			return err
		}
		w.mu.Lock()
		room := len(w.held) == 0 || len(w.held) < MaxHeld && w.bytes+item.Size <= MaxHeldBytes
		if room {
			w.take(item)
		}
		err := w.failed
		w.mu.Unlock()
		if room || err != nil {
			return err
		}
		if err := w.await(); err != nil {
			return err
		}
	}
}

// await waits until something was answered, or the context ends.
func (w *Writer) await() error {
	idle := time.NewTimer(idleEvery)
	defer idle.Stop()
	select {
	case <-w.changed:
	case <-idle.C:
		if w.o.Idle != nil {
			w.o.Idle()
		}
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	return nil
}

// Wait waits until everything that was added is settled, or, after an error, until
// nothing is under way, hands on what was answered, and returns that error.
func (w *Writer) Wait() error {
	for {
		_ = w.handOn() // the error is w.failed
		w.mu.Lock()
		done, stopped, err := len(w.held) == 0, w.failed != nil && w.flying == 0, w.failed
		w.mu.Unlock()
		if done {
			w.hands.Wait()
			return err
		}
		if !stopped && w.await() != nil {
			w.hands.Wait() // they end with the context
			w.end(w.ctx.Err())
		}
	}
}

// end notes why the Writer ends. What a caller says of a refusal tells more than it.
func (w *Writer) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed, w.refused = err, 0
	} else if errors.As(w.failed, new(*RefusedError)) {
		w.failed = err
	}
}

// Settle hands on results that are there, as Add does.
func (w *Writer) Settle() error { return w.handOn() }

// take adds a job behind those that it must follow.
func (w *Writer) take(item Item) {
	w.added++
	j := &job{Item: item, number: w.added}
	w.held = append(w.held, j)
	w.bytes += j.Size
	if item.Change == nil {
		j.state = answered
		return
	}
	k := keysOf(item.Change, item.Touches)
	j.writes, j.reads = k.writes, k.reads
	for _, of := range j.writes {
		t := w.thing(of)
		j.follow(t.writer)
		for _, reader := range t.readers {
			j.follow(reader)
		}
		t.writer, t.readers = j, t.readers[:0]
	}
	for _, of := range j.reads {
		t := w.thing(of)
		j.follow(t.writer)
		if len(t.readers) == cap(t.readers) { // before it grows
			t.readers = unanswered(t.readers)
		}
		t.readers = append(t.readers, j)
	}
	if j.waits == 0 {
		w.ready = append(w.ready, j)
		w.submit()
	}
}

func unanswered(jobs []*job) []*job {
	kept := make([]*job, 0, len(jobs)+4)
	for _, j := range jobs {
		if j.state != answered {
			kept = append(kept, j)
		}
	}
	return kept
}

func (w *Writer) thing(of key) *thing {
	t := w.things[of]
	if t == nil {
		t = new(thing)
		w.things[of] = t
	}
	t.users++
	return t
}

// follow makes j wait for an earlier job.
func (j *job) follow(earlier *job) {
	if earlier != nil && earlier != j && earlier.state != answered {
		j.waits++
		earlier.behind = append(earlier.behind, j)
	}
}

// submit begins with the jobs that are ready, as many as may be under way.
func (w *Writer) submit() {
	for len(w.ready) > 0 && w.flying < w.most() && w.ctx.Err() == nil {
		j := w.ready[0]
		w.ready[0] = nil
		w.ready = w.ready[1:]
		if w.failed != nil && j.number >= w.refused {
			continue // it never will be
		}
		j.state = underWay
		w.flying++
		// Here, so that the servers get the changes in the order of Add as far as they can.
		var wait func(context.Context) (log.Result, error)
		var err error
		if !time.Now().Before(w.until) {
			wait, err = w.to.Start(w.ctx, j.Change)
		}
		w.hands.Go(func() { w.do(j, wait, err) })
	}
}

// most is how many jobs may be under way now.
func (w *Writer) most() int {
	if w.done < alone {
		return 1
	}
	return w.limit
}

// do awaits the answer of a job that was started, or could not be (err), or, if wait is
// nil, must be; and submits it again while the servers are overloaded.
func (w *Writer) do(j *job, wait func(context.Context) (log.Result, error), err error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.o.Patience)
	defer cancel()
	rest := restAfter
	for {
		result := log.Result{}
		if wait == nil && err == nil {
			if err = w.awaitRest(ctx); err == nil {
				wait, err = w.to.Start(ctx, j.Change)
			}
		}
		if err == nil {
			result, err = wait(ctx)
		}
		if !errors.Is(err, client.ErrOverloaded) || ctx.Err() != nil {
			w.answered(j, result, err)
			return
		}
		pause := rest
		var budget *client.BudgetError
		if errors.As(err, &budget) {
			pause = max(pause, budget.After)
		}
		w.slowDown(pause)
		wait, err, rest = nil, nil, min(2*rest, longestRest)
	}
}

// awaitRest waits while the servers are to be left alone.
func (w *Writer) awaitRest(ctx context.Context) error {
	for {
		w.mu.Lock()
		pause := time.Until(w.until)
		w.mu.Unlock()
		if pause <= 0 {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: the servers were overloaded all the time: %w", client.ErrUnavailable, ctx.Err())
		}
	}
}

// slowDown leaves the servers alone for a while, and halves what is under way.
func (w *Writer) slowDown(pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.until) {
		return // of the same moment
	}
	w.until = time.Now().Add(pause)
	w.limit, w.answers = max(w.limit/2, min(leastUnderWay, w.o.UnderWay)), 0
}

// answered notes the answer of a job, and begins with those that waited for it.
func (w *Writer) answered(j *job, result log.Result, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer wake(w.changed)
	w.flying--
	if err != nil && !isRefused(err) {
		j.state = waiting // its outcome is not known
		w.failed, w.refused = cmp.Or(w.failed, err), 0
		return
	}
	j.state, j.result, j.err = answered, result, err
	w.done++
	w.forget(j)
	if err != nil && !w.o.GoOn {
		if w.failed == nil || j.number < w.refused {
			w.failed, w.refused = &RefusedError{err}, j.number
		}
		w.submit()
		return
	}
	if w.answers++; w.answers%growAfter == 0 {
		w.limit = min(w.limit+1, w.o.UnderWay)
	}
	for _, next := range j.behind {
		if next.waits--; next.waits == 0 {
			w.ready = append(w.ready, next)
		}
	}
	j.behind = nil
	w.submit()
}

// forget removes a job that was answered from what it used.
func (w *Writer) forget(j *job) {
	for _, all := range [...][]key{j.writes, j.reads} {
		for _, of := range all {
			t := w.things[of]
			if t.users--; t.users == 0 {
				delete(w.things, of)
			} else if t.writer == j {
				t.writer = nil
			}
		}
	}
	j.writes, j.reads = nil, nil
}

// isRefused reports whether an error says that a change was decided, or can never be.
func isRefused(err error) bool {
	if errors.Is(err, client.ErrUnavailable) {
		return false // an earlier attempt may have been written
	}
	return errors.As(err, new(*log.Refusal)) || errors.Is(err, client.ErrBadChange) || errors.Is(err, log.ErrTooLarge)
}

func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// handOn hands on the results that are there, in the order of the items: after an error
// also those behind a change that has none. It returns why the Writer ends.
func (w *Writer) handOn() error {
	for {
		j, err := w.next()
		if j == nil {
			return err
		}
		if j.Settled == nil {
			continue
		}
		if err := j.Settled(j.result, j.err); err != nil {
			w.end(err)
		}
	}
}

// next returns the next job to hand on, or nil and why the Writer ends.
func (w *Writer) next() (*job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.held) > 0 {
		first := w.held[0]
		if first.state != answered && (w.failed == nil || w.flying > 0) {
			break
		}
		w.bytes -= first.Size
		w.held[0] = nil
		w.held = w.held[1:]
		if first.state == answered {
			return first, nil
		}
	}
	return nil, w.failed
}
