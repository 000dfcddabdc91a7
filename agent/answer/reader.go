package answer

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"rutter/projections/answers"
)

// reader answers the requests of one segment.
type reader struct {
	answerer   *Answerer
	segment    Segment
	stop       context.CancelFunc
	socket     atomic.Pointer[socket] // nil: it is not open
	unanswered atomic.Uint64

	// What follows belongs to run: how much each port asked since begun.
	asked map[uint32]int
	begun time.Time
}

// run answers until ctx ends. A socket that fails is opened again.
func (r *reader) run(ctx context.Context) {
	var said failing
	for {
		err := r.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		r.answerer.tally.failed.Add(1)
		if said.isNews(err) {
			r.answerer.cfg.Logger.Warn("requests of VMs for addresses are not answered on a segment; it is tried again", "bridge", r.segment.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reopenAfter):
		}
	}
}

// failing is what a reader's socket failed with.
type failing struct {
	gone bool   // last, because the bridge is gone or down
	said string // the last text that was news
}

// isNews reports whether a failure is to be logged: not again, and not the first of a bridge
// that is gone. A bridge goes with its last NIC, and its reader soon after: that is no
// failure. One that is still to be read when it is tried again is missing.
func (f *failing) isNews(err error) bool {
	before := f.gone
	f.gone = errors.Is(err, syscall.ENETDOWN) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO)
	if text := err.Error(); text != f.said && (before || !f.gone) {
		f.said = text
		return true
	}
	return false
}

// serve answers on one socket until it fails or ctx ends.
func (r *reader) serve(ctx context.Context) error {
	s, err := listen(r.segment.Index)
	if err != nil {
		return err
	}
	tally := &r.answerer.tally
	tally.sockets.Add(1)
	r.socket.Store(s)
	defer func() {
		r.socket.Store(nil)
		tally.sockets.Add(-1)
		_ = s.close() // nothing was written that could be lost
	}()
	end := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer end()
	buffer := make([]byte, frameBytes)
	for {
		if err := s.receive(buffer, func(b []byte) { r.take(s, b) }); err != nil {
			return err
		}
	}
}

// take answers one request, whose frame it does not keep.
func (r *reader) take(s *socket, b []byte) {
	tally := &r.answerer.tally
	f, ok := parseFrame(b)
	if !ok {
		tally.malformed.Add(1)
		return
	}
	port, ok := (*r.answerer.ports.Load())[place{r.segment.Index, f.src}]
	if !ok {
		tally.strangers.Add(1)
		return
	}
	if now := time.Now(); now.Sub(r.begun) >= requestWindow {
		r.begun = now
		clear(r.asked)
	}
	if r.asked[port.Index]++; r.asked[port.Index] > MaxRequests {
		tally.limited.Add(1)
		return
	}
	r.answer(s, port, func(by responder, guest answers.Guest) reply { return by.respond(f, guest) })
}

// answer sends a port what respond says.
func (r *reader) answer(s *socket, port Port, respond func(responder, answers.Guest) reply) {
	a := r.answerer
	tally := &a.tally
	guest, ok := a.cfg.Log.Guest(port.MAC)
	if !ok || guest.VNet != r.segment.VNet || guest.VLAN != r.segment.VLAN {
		tally.strangers.Add(1) // or the log moved it, and its port is still where it was
		return
	}
	bridge, err := s.mac()
	if err != nil {
		tally.unsent.Add(1)
		return
	}
	got := respond(responder{a.cfg.Log, bridge}, guest)
	switch got.outcome {
	case unknown:
		r.unanswered.Add(1)
		tally.unknown.Add(1)
	case malformed:
		tally.malformed.Add(1)
	case released:
		tally.released.Add(1)
	case declined:
		tally.declined.Add(1)
		a.logDeclined(guest)
	case silent, answered:
	}
	if got.frame == nil {
		return
	}
	if err := s.send(port.Index, got.frame); err != nil {
		tally.unsent.Add(1)
		return
	}
	tally.answer(got.kind)
	if got.shortened {
		tally.shortened.Add(1)
	}
}

// logDeclined writes a line about an address that a guest found in use, at most one each
// declineEvery.
func (a *Answerer) logDeclined(guest answers.Guest) {
	now, last := time.Now().UnixNano(), a.declinedAt.Load()
	if now-last < int64(declineEvery) || !a.declinedAt.CompareAndSwap(last, now) {
		return
	}
	a.cfg.Logger.Warn("a guest says that the address of its NIC is in use; look for another host with it on its network", "nic", guest.NIC, "vm", guest.VM, "address", guest.IP.Addr(), "declined", a.tally.declined.Load())
}
