package vmm

import (
	"errors"
	"fmt"
	"slices"
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
// each once however often it rings, and says which is pulled next: CNs take
// turns, so that none of them keeps the others waiting.
type bell struct {
	awake chan struct{} // a token for each pull that may be begun

	mu    sync.Mutex // protects what follows
	rings map[log.UUID]*ring
	cns   map[log.UUID]*pulled
	turns []*pulled // CNs of which a pull may be begun, in order
	mute  []*pulled // likewise, of those that are silent
	muted int       // pulls that are out at silent CNs
}

// ring is a VMM that was rung for.
type ring struct {
	cn    log.UUID // its CN
	at    time.Time
	phase ringPhase
}

type ringPhase uint8

const (
	ringWaits  ringPhase = iota // in the queue of its CN
	ringWorked                  // its state is pulled or recorded
	ringAgain                   // likewise, and it rang meanwhile: that state may be older
)

// pulled is a CN that is asked for states.
type pulled struct {
	cn     log.UUID
	queue  []log.UUID // VMMs that wait
	out    int        // pulls that have no answer yet
	silent bool       // it did not answer the last one
	turn   bool       // it stands in turns or mute
}

// pull is one that was begun. patience is how long its answer may take.
type pull struct {
	vmm, cn  log.UUID
	at       time.Time // of the ring
	patience time.Duration
	of       *pulled
	muted    bool
}

func newBell() bell {
	return bell{awake: make(chan struct{}, maxPulls), rings: make(map[log.UUID]*ring), cns: make(map[log.UUID]*pulled)}
}

// rung takes a ring for a VMM of a CN; coalesced says that an earlier one stands
// for it.
func (b *bell) rung(vmm, cn log.UUID) (coalesced bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rings[vmm]
	switch {
	case r == nil && len(b.rings) >= MaxRings:
		return false, fmt.Errorf("%w: the states of %d VMMs", ErrBusy, len(b.rings))
	case r == nil:
		b.rings[vmm] = &ring{cn: cn, at: time.Now()}
		b.enqueue(vmm, cn)
		return false, nil
	case r.phase == ringWorked:
		r.phase, r.cn = ringAgain, cn
	}
	return true, nil
}

// enqueue has a VMM wait for its pull. The caller holds the lock.
func (b *bell) enqueue(vmm, cn log.UUID) {
	p := b.cns[cn]
	if p == nil {
		p = &pulled{cn: cn}
		b.cns[cn] = p
	}
	p.queue = append(p.queue, vmm)
	b.line(p)
}

// line gives a CN its place among those that wait, if a pull of it may be begun.
// The caller holds the lock.
func (b *bell) line(p *pulled) {
	if p.turn || len(p.queue) == 0 || p.out >= maxPullsOfCN {
		return
	}
	p.turn = true
	if p.silent {
		b.mute = append(b.mute, p)
	} else {
		b.turns = append(b.turns, p)
	}
	select {
	case b.awake <- struct{}{}:
	default: // as many as there are pulls look already
	}
}

// begin begins the next pull; false if none may be begun now.
func (b *bell) begin() (pull, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var p *pulled
	patience := quickTime
	switch {
	case len(b.turns) > 0:
		p, b.turns = b.turns[0], b.turns[1:]
	case len(b.mute) > 0 && b.muted < maxPullsOfSilent:
		p, b.mute = b.mute[0], b.mute[1:]
		b.muted++
		patience = askTime
	default:
		return pull{}, false
	}
	vmm := p.queue[0]
	p.queue, p.turn = p.queue[1:], false
	p.out++
	b.line(p)
	r := b.rings[vmm]
	r.phase = ringWorked
	return pull{vmm: vmm, cn: p.cn, at: r.at, patience: patience, of: p, muted: patience == askTime}, true
}

// answered ends a pull as far as its CN is concerned. One that did not answer in
// time is silent from now on, and asked again: true says that this pull will be.
func (b *bell) answered(of pull, silent bool) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := of.of
	p.out--
	if of.muted {
		b.muted--
	}
	if silent != p.silent {
		b.unline(p)
		p.silent = silent
	}
	if again = silent && !of.muted; again {
		r := b.rings[of.vmm]
		r.phase = ringWaits
		b.enqueue(of.vmm, p.cn)
	}
	b.line(p)
	b.forget(p)
	if len(b.mute) > 0 {
		select {
		case b.awake <- struct{}{}: // its place is free
		default:
		}
	}
	return again
}

// heard is called when a CN that was silent is there again.
func (b *bell) heard(cn log.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.cns[cn]
	if p == nil || !p.silent {
		return
	}
	b.unline(p)
	p.silent = false
	b.line(p)
	b.forget(p)
}

// unline takes a CN out of its row. The caller holds the lock.
func (b *bell) unline(p *pulled) {
	if !p.turn {
		return
	}
	is := func(waits *pulled) bool { return waits == p }
	b.turns, b.mute = slices.DeleteFunc(b.turns, is), slices.DeleteFunc(b.mute, is)
	p.turn = false
}

// forget drops a CN of which nothing waits; that it is silent is remembered, of
// so many. The caller holds the lock.
func (b *bell) forget(p *pulled) {
	if p.out == 0 && len(p.queue) == 0 && (!p.silent || len(b.cns) > maxReports) {
		delete(b.cns, p.cn)
	}
}

// end is called when the state is recorded, or could not be.
func (b *bell) end(vmm log.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rings[vmm]
	if r.phase == ringAgain {
		r.phase, r.at = ringWaits, time.Now()
		b.enqueue(vmm, r.cn)
		return
	}
	delete(b.rings, vmm)
}

func (b *bell) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rings)
}
