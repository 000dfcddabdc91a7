package vmm

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"rutter/log"
)

// Errors of a ring.
var (
	// ErrUnknown: the log has no such VMM, and nobody said whose it is.
	ErrUnknown = errors.New("vmm: no such VMM")
	// ErrBusy: too many wait; ring again later.
	ErrBusy = errors.New("vmm: too much waits")
)

// bell holds the VMMs that were rung for and whose state is not recorded yet,
// each once however often it rings.
type bell struct {
	queue chan log.UUID // each VMM at most once, so it never overflows

	mu    sync.Mutex // protects rings
	rings map[log.UUID]*ring
}

// ring is a VMM that was rung for.
type ring struct {
	cn    log.UUID // that rang; zero if it did not say
	at    time.Time
	phase ringPhase
}

type ringPhase uint8

const (
	ringWaits  ringPhase = iota // in the queue
	ringWorked                  // its state is pulled or recorded
	ringAgain                   // likewise, and it rang meanwhile: that state may be older
)

func newBell() bell {
	return bell{queue: make(chan log.UUID, MaxRings), rings: make(map[log.UUID]*ring)}
}

// rung takes a ring; coalesced says that an earlier one stands for it.
func (b *bell) rung(vmm, cn log.UUID) (coalesced bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rings[vmm]
	switch {
	case r == nil && len(b.rings) >= MaxRings:
		return false, fmt.Errorf("%w: the states of %d VMMs", ErrBusy, len(b.rings))
	case r == nil:
		b.rings[vmm] = &ring{cn: cn, at: time.Now()}
		b.queue <- vmm
		return false, nil
	case r.phase == ringWorked:
		r.phase = ringAgain
	}
	if !cn.IsZero() {
		r.cn = cn
	}
	return true, nil
}

// begin is called by who took a VMM from the queue.
func (b *bell) begin(vmm log.UUID) ring {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rings[vmm]
	r.phase = ringWorked
	return *r
}

// end is called when the state is recorded, or could not be.
func (b *bell) end(vmm log.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rings[vmm]
	if r.phase == ringAgain {
		r.phase, r.at = ringWaits, time.Now()
		b.queue <- vmm
		return
	}
	delete(b.rings, vmm)
}

func (b *bell) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rings)
}
