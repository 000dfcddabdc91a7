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
	// ErrUnknown: the log has no such VMM, and the ring did not name its CN.
	ErrUnknown = errors.New("vmm: no such VMM")
	// ErrBusy: too many VMMs wait; ring again later.
	ErrBusy = errors.New("vmm: too much waits")
)

// pullQueue holds the VMMs that were rung for and whose state is not recorded yet, each
// once for all its rings. It selects the next pull: CNs take turns, so that none delays
// the others.
type pullQueue struct {
	awake chan struct{} // a token for each pull that may begin

	mu          sync.Mutex // protects what follows
	rings       map[log.UUID]*ring
	cns         map[log.UUID]*cnPulls
	ready       []*cnPulls // CNs of which a pull may begin, in order
	readySilent []*cnPulls // the same for CNs that do not answer
	outSilent   int        // pending pulls of CNs that do not answer
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
	ringWorked                  // its state is being pulled or recorded
	ringAgain                   // the same, and it rang again: the state being recorded may be older
)

// cnPulls are the pulls of one CN.
type cnPulls struct {
	cn     log.UUID
	queue  []log.UUID // VMMs that wait
	out    int        // pulls without an answer yet
	silent bool       // it did not answer the last one
	queued bool       // it is in ready or readySilent
}

// pull is a pull that has begun. patience bounds the time for its answer.
type pull struct {
	vmm, cn  log.UUID
	at       time.Time // of the ring
	patience time.Duration
	of       *cnPulls
	toSilent bool
}

func newPullQueue() pullQueue {
	return pullQueue{awake: make(chan struct{}, maxPulls), rings: make(map[log.UUID]*ring), cns: make(map[log.UUID]*cnPulls)}
}

// add takes a ring for a VMM of a CN. coalesced: an earlier ring of the VMM is still
// queued.
func (b *pullQueue) add(vmm, cn log.UUID) (coalesced bool, err error) {
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

// enqueue queues a VMM for its pull. The caller holds the lock.
func (b *pullQueue) enqueue(vmm, cn log.UUID) {
	p := b.cns[cn]
	if p == nil {
		p = &cnPulls{cn: cn}
		b.cns[cn] = p
	}
	p.queue = append(p.queue, vmm)
	b.enqueueCN(p)
}

// enqueueCN queues a CN if one of its pulls may begin. The caller holds the lock.
func (b *pullQueue) enqueueCN(p *cnPulls) {
	if p.queued || len(p.queue) == 0 || p.out >= maxPullsOfCN {
		return
	}
	p.queued = true
	if p.silent {
		b.readySilent = append(b.readySilent, p)
	} else {
		b.ready = append(b.ready, p)
	}
	select {
	case b.awake <- struct{}{}:
	default: // every worker already has a token
	}
}

// begin begins the next pull; false if none may begin now.
func (b *pullQueue) begin() (pull, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var p *cnPulls
	patience := quickTime
	switch {
	case len(b.ready) > 0:
		p, b.ready = b.ready[0], b.ready[1:]
	case len(b.readySilent) > 0 && b.outSilent < maxPullsOfSilent:
		p, b.readySilent = b.readySilent[0], b.readySilent[1:]
		b.outSilent++
		patience = askTime
	default:
		return pull{}, false
	}
	vmm := p.queue[0]
	p.queue, p.queued = p.queue[1:], false
	p.out++
	b.enqueueCN(p)
	r := b.rings[vmm]
	r.phase = ringWorked
	return pull{vmm: vmm, cn: p.cn, at: r.at, patience: patience, of: p, toSilent: patience == askTime}, true
}

// pullDone ends a pull with respect to its CN. A CN that did not answer in time counts
// as silent, and is asked again: true means that this pull is repeated.
func (b *pullQueue) pullDone(of pull, silent bool) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := of.of
	p.out--
	if of.toSilent {
		b.outSilent--
	}
	if silent != p.silent {
		b.dequeueCN(p)
		p.silent = silent
	}
	if again = silent && !of.toSilent; again {
		r := b.rings[of.vmm]
		r.phase = ringWaits
		b.enqueue(of.vmm, p.cn)
	}
	b.enqueueCN(p)
	b.forget(p)
	if len(b.readySilent) > 0 {
		select {
		case b.awake <- struct{}{}: // a slot is free
		default:
		}
	}
	return again
}

// reachable is called when a silent CN has connected again.
func (b *pullQueue) reachable(cn log.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.cns[cn]
	if p == nil || !p.silent {
		return
	}
	b.dequeueCN(p)
	p.silent = false
	b.enqueueCN(p)
	b.forget(p)
}

// dequeueCN removes a CN from its queue. The caller holds the lock.
func (b *pullQueue) dequeueCN(p *cnPulls) {
	if !p.queued {
		return
	}
	is := func(waits *cnPulls) bool { return waits == p }
	b.ready, b.readySilent = slices.DeleteFunc(b.ready, is), slices.DeleteFunc(b.readySilent, is)
	p.queued = false
}

// forget drops a CN without rings and pulls. Up to maxReports silent CNs are
// remembered. The caller holds the lock.
func (b *pullQueue) forget(p *cnPulls) {
	if p.out == 0 && len(p.queue) == 0 && (!p.silent || len(b.cns) > maxReports) {
		delete(b.cns, p.cn)
	}
}

// end is called when the state is recorded, or could not be.
func (b *pullQueue) end(vmm log.UUID) {
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

func (b *pullQueue) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rings)
}
