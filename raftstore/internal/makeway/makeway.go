// Package makeway lets long work beside the path of a change make way for it.
//
// Applying a batch takes a millisecond or two of the processor. A transaction of
// changes.db, a part of a sweep or a block of the index takes ten or more in one go, and
// the runtime lets a goroutine run for 10 ms before another one gets its place. If a few
// of them run at the same time, on a machine with two cores, all acknowledgements wait
// for them. So such work rests for as long as it worked, a millisecond at a time.
package makeway

import "time"

const (
	// slice is how long the work goes on, and then rests.
	slice = time.Millisecond
	// stepsPerLook is how many steps are made between two looks at the clock.
	stepsPerLook = 16
)

// Work is one piece of work. It belongs to one goroutine. A nil Work never rests: for
// work that a caller waits for.
type Work struct {
	begun  time.Time
	steps  int
	rested time.Duration
}

// Begin returns work that begins now.
func Begin() *Work { return &Work{begun: time.Now()} }

// Step is called before each small step of the work, of some microseconds, and rests if it
// is time to. Its caller may hold only what no change waits for.
func (w *Work) Step() {
	if w == nil {
		return
	}
	if w.steps++; w.steps%stepsPerLook != 0 {
		return
	}
	worked := time.Now()
	if worked.Sub(w.begun) < slice {
		return
	}
	time.Sleep(slice)
	w.begun = time.Now()
	w.rested += w.begun.Sub(worked)
}

// Rested returns how long the work has rested so far.
func (w *Work) Rested() time.Duration {
	if w == nil {
		return 0
	}
	return w.rested
}
