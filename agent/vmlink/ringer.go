package vmlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/vminfo/vmmstate"
	"rutter/log"
	"rutter/log/feed"
)

// ringer brings each VMM's state into the log.
type ringer struct {
	*Link
	state    State
	attempts map[log.UUID]*attempt
	calls    *errgroup.Group
}

// attempt has the attempts to record one state of a VMM.
type attempt struct {
	gen   uint64
	tries int
	next  time.Time // earliest time of the next attempt
}

// roundEvery is the least time between two rounds without a change of a VMM, because a
// busy log has many bookmarks.
const roundEvery = 5 * time.Millisecond

func (r *ringer) run(ctx context.Context) error {
	r.calls = new(errgroup.Group)
	r.calls.SetLimit(maxCalls)
	defer func() { _ = r.calls.Wait() }() // calls return no error
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.due:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		next := r.round(ctx, began)
		timer.Reset(max(0, time.Until(next)))
		if len(r.attempts) > feed.MaxRings { // many: leave processor time to others
			time.Sleep(roundEvery)
		}
	}
}

// idleEvery is the time between two rounds when nothing seems to wait.
const idleEvery = 30 * time.Second

// round checks each VMM whose state the log may not have, and returns when to check
// again.
func (r *ringer) round(ctx context.Context, now time.Time) time.Time {
	next := now.Add(idleEvery)
	var ring []log.UUID
	waiting := r.cfg.VMMs.Unrecorded()
	still := make(map[log.UUID]*attempt, len(waiting))
	for _, vmm := range waiting {
		held, known := r.held(vmm)
		if known && recorded(held, vmm) {
			if err := r.cfg.VMMs.Recorded(vmm.ID, vmm.Gen); err != nil {
				r.cfg.Logger.Error("a VMM that is recorded cannot be removed", "vmm", vmm.ID, "error", err)
			}
			continue
		}
		a := r.attempts[vmm.ID]
		if a == nil || a.gen != vmm.Gen {
			a = &attempt{gen: vmm.Gen}
		}
		still[vmm.ID] = a
		if a.next.After(now) {
			next = earliest(next, a.next)
			continue
		}
		a.tries++
		a.next = now.Add(r.pause(a.tries))
		next = earliest(next, a.next)
		if a.tries == 1 && r.connected() {
			ring = append(ring, vmm.ID)
		} else {
			r.call(a, func() error { return r.doorbell(ctx, vmm.ID) })
		}
	}
	r.attempts = still
	r.ring(ring)
	return next
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// recorded reports whether the log has the state of a VMM, or a newer one. What is placed
// is no state that a node told, so the first one is newer with the same generation.
func recorded(held *log.VMM, vmm vmmstate.VMM) bool {
	return held.Gen > vmm.Gen || held.Gen == vmm.Gen && held.State != statePlaced
}

// statePlaced is the state of a VMM of which no node has told a state.
const statePlaced = "creating"

// held is the log's record of a VMM.
func (r *ringer) held(vmm vmmstate.VMM) (*log.VMM, bool) {
	object, ok := r.state.Object(log.KindVMM, vmm.ID.String())
	if !ok {
		return nil, false
	}
	held, ok := object.(*log.VMM)
	return held, ok
}

// pause is the time after the nth attempt; up to half of it is left out at random, so
// that the nodes of a lost server do not ring at once.
func (r *ringer) pause(n int) time.Duration {
	d := r.cfg.RingMin
	for ; n > 1 && d < r.cfg.RingMax; n-- {
		d = min(2*d, r.cfg.RingMax)
	}
	return d - rand.N(d/2+1)
}

// ringWithin bounds the wait for room in the connection's queue.
const ringWithin = 100 * time.Millisecond

func (r *ringer) connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn.conn != nil && r.conn.ctx.Err() == nil
}

// ring rings through the agent's connection. Its effect shows in the log.
func (r *ringer) ring(ids []log.UUID) {
	r.mu.Lock()
	c := r.conn
	r.mu.Unlock()
	for len(ids) > 0 {
		n := min(len(ids), feed.MaxRings)
		ctx, cancel := context.WithTimeout(c.ctx, ringWithin)
		err := c.conn.Send(ctx, &feed.Ring{VMMs: ids[:n]})
		cancel()
		if err != nil {
			return // the next attempt is over HTTP
		}
		r.update(func(s *Status) { s.Rings += uint64(n) })
		ids = ids[n:]
	}
}

// call makes an HTTP request beside the loop, or postpones it if too many are running.
func (r *ringer) call(a *attempt, do func() error) {
	begun := r.calls.TryGo(func() error {
		err := do()
		r.update(func(s *Status) {
			s.Calls++
			if s.Failure = ""; err != nil {
				s.Failure = err.Error()
			}
		})
		if err != nil {
			r.cfg.Logger.Warn("a VMM's state could not be reported", "error", err)
		}
		wake(r.due)
		return nil
	})
	if !begun {
		a.tries--
		a.next = time.Time{} // a call that ends wakes us
	}
}

// callWithin bounds one call, over all servers.
const callWithin = 5 * time.Second

// doorbell rings at any server. A server without the doorbell has only the old PUT, and
// may need its body; the newest ignore it.
func (r *ringer) doorbell(ctx context.Context, id log.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	path := "/vmms/" + id.String()
	_, err := r.cfg.Servers.Raw(ctx, http.MethodPost, path+"/doorbell?cn="+r.cfg.CN.String(), nil)
	var refusal *log.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	vmm, gone := r.cfg.VMMs.Get(id)
	if gone != nil {
		return nil // it was recorded meanwhile
	}
	body, err := json.Marshal(vmm.Sled())
	if err != nil {
		return err
	}
	if _, err = r.cfg.Servers.Raw(ctx, http.MethodPut, path, body); err != nil {
		return fmt.Errorf("vmlink: no doorbell (%s), and the old way: %w", refusal.Message, err)
	}
	return nil
}
