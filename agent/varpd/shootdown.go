package varpd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/log"
	"rutter/varp"
)

const (
	// pollBytes is how many bytes of the shootdown log are requested at once: all that
	// a client accepts. The records of the last CacheTime are in each answer, because
	// they are not acknowledged yet; 16 KiB hold 371 of them.
	pollBytes = varp.MaxBody
	// maxOpen bounds the records of one log that are not acknowledged.
	maxOpen = 4096
	// maxRemove is how many records are acknowledged at once.
	maxRemove = 1023
	// ackPause is the pause before the log is asked again after records of it were
	// acknowledged: more may follow.
	ackPause = 50 * time.Millisecond
)

// batch is the new records of one answer of the shootdown log.
type batch struct {
	records []varp.Record
	at      time.Time // when the answer came
	from    *poller
	taken   chan struct{} // closed when each record is either done, or waits for an answer
}

// record is one record that waits for an answer.
type record struct {
	from *poller
	id   log.UUID
	// until is when it can be done: an answer to a question that was sent earlier may
	// be from the server's cache, and older than the record.
	until time.Time
}

// PollState is the state of the shootdown log of one underlay address.
type PollState struct {
	Underlay netip.Addr `json:"underlay"` // the address for which the log is asked
	// From is how the address is known: "link" (the local address of a VXLAN device),
	// or "route" (the kernel's choice for a device without one).
	From  string `json:"from"`
	Polls uint64 `json:"polls"` // that were answered
	// LastPoll is when a server answered last; zero: never.
	LastPoll   time.Time `json:"last_poll"`
	Records    uint64    `json:"records"`     // received
	LastRecord time.Time `json:"last_record"` // zero: none came
	// Acknowledged counts the records that were done and removed from the log.
	Acknowledged     uint64    `json:"acknowledged"`
	LastAcknowledged time.Time `json:"last_acknowledged"`
	// Open are records that were received and are not acknowledged.
	Open int `json:"open"`
	// LastError is why the last poll or acknowledgement failed; "": it did not.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at"` // of the last failure; zero: none
}

// poller polls the shootdown log of one underlay address.
type poller struct {
	daemon *Daemon
	local  netip.Addr

	mu    sync.Mutex // protects what follows
	open  map[log.UUID]bool
	done  []log.UUID // of open, to be acknowledged
	state PollState
}

// end records that a record was done.
func (p *poller) end(id log.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = append(p.done, id)
}

// takeRecords asks again what the log names. What is not in the kernel is done; if it
// is missed while the server's cache may still have an older answer, it is asked twice.
func (d *Daemon) takeRecords(b *batch) {
	defer close(b.taken)
	until := b.at.Add(d.cfg.cacheWindow())
	for i := range b.records {
		r := &b.records[i]
		d.stats.shootdowns.Add(1)
		k := key{vnet: r.VNet, ip: r.IP}
		if r.Type == varp.RecordVL2 {
			k = key{vnet: r.VNet, mac: r.MAC}
		}
		delete(d.tables.absent, k)
		s := d.doubt(k, until)
		if !d.tables.holds(k) && d.queries.byKey[k] == nil {
			b.from.end(r.ID)
			continue
		}
		if s == nil { // too many are in doubt: the record stays in the log, and comes again
			b.from.forget(r.ID)
			continue
		}
		s.waiters = append(s.waiters, &record{from: b.from, id: r.ID, until: until})
		d.askAgain(k)
	}
}

// askAgain asks about k at once; a question that was sent already is repeated.
func (d *Daemon) askAgain(k key) {
	a := d.ask(k, true)
	a.again = a.again || a.sent
}

// pollAll polls the log of each underlay address of this node.
func (d *Daemon) pollAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	polled := map[netip.Addr]context.CancelFunc{}
	for ctx.Err() == nil {
		now := map[netip.Addr]bool{}
		for local, from := range d.readLocalAddrs() {
			now[local] = true
			if polled[local] == nil {
				one, cancel := context.WithCancel(ctx)
				polled[local] = cancel
				p := &poller{daemon: d, local: local, open: map[log.UUID]bool{}, state: PollState{Underlay: local, From: from}}
				d.cfg.Logger.Info("varpd: polls the shootdown log", "underlay", local, "known from", from)
				d.addPoller(p)
				g.Go(func() error {
					defer d.removePoller(p)
					p.run(one)
					return nil
				})
			}
		}
		for local, cancel := range polled {
			if !now[local] {
				d.cfg.Logger.Info("varpd: no longer polls the shootdown log", "underlay", local)
				cancel()
				delete(polled, local)
			}
		}
		wait(ctx, tickEvery)
	}
	_ = g.Wait() // run has no error
	return ctx.Err()
}

func (d *Daemon) addPoller(p *poller) {
	d.pollersMu.Lock()
	defer d.pollersMu.Unlock()
	d.pollers[p] = true
}

func (d *Daemon) removePoller(p *poller) {
	d.pollersMu.Lock()
	defer d.pollersMu.Unlock()
	delete(d.pollers, p)
}

// run polls until ctx ends.
func (p *poller) run(ctx context.Context) {
	every := p.daemon.cfg.PollEvery
	for ctx.Err() == nil {
		if p.poll(ctx) {
			wait(ctx, min(ackPause, every))
		} else {
			wait(ctx, every+rand.N(every/2+1))
		}
	}
}

// poll asks once for the log, and acknowledges what is done. It reports whether
// records were acknowledged, so that others may take their place in the next answer.
func (p *poller) poll(ctx context.Context) (more bool) {
	d := p.daemon
	// A server of ours attributes an acknowledgement to the node for which the same
	// connection asked last.
	d.logTurn.Lock()
	defer d.logTurn.Unlock()
	records, err := d.cfg.Resolver.LogRequest(ctx, p.local, pollBytes)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		p.failed("the shootdown log cannot be read", err)
		return false
	}
	b := p.receive(records, time.Now())
	if len(b.records) > 0 {
		select {
		case d.records <- b:
		case <-ctx.Done():
			return false
		}
		select {
		case <-b.taken:
		case <-ctx.Done():
			return false
		}
	}
	ids := p.take(len(records) > 0 && len(b.records) == 0 && isFull(records))
	if len(ids) == 0 {
		p.worked(0)
		return false
	}
	if err := d.cfg.Resolver.LogRemove(ctx, ids); err != nil {
		p.putBack(ids)
		if ctx.Err() == nil {
			p.failed("records of the shootdown log cannot be acknowledged", err)
		}
		return false
	}
	p.removed(ids)
	return true
}

// isFull reports whether one more record may have had no room in an answer.
func isFull(records []varp.Record) bool {
	sum := 0
	for i := range records {
		sum += records[i].Size()
	}
	return sum+(&varp.Record{Type: varp.RecordVL3}).Size() > pollBytes
}

// receive returns those records that did not come before.
func (p *poller) receive(records []varp.Record, now time.Time) *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.daemon
	d.stats.polls.Add(1)
	d.stats.lastPoll.Store(now.UnixNano())
	p.state.Polls++
	p.state.LastPoll = now
	b := &batch{at: now, from: p, taken: make(chan struct{})}
	for _, r := range records {
		if _, had := p.open[r.ID]; had || len(p.open) >= maxOpen {
			continue
		}
		p.open[r.ID] = true
		b.records = append(b.records, r)
	}
	if len(b.records) > 0 {
		p.state.Records += uint64(len(b.records))
		p.state.LastRecord = now
	}
	return b
}

// forget makes a record a new one when it comes again.
func (p *poller) forget(id log.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, id)
}

// take returns the records to be acknowledged. With early, records that still wait are
// among them, because newer ones have no room in the server's answer; their entries
// are asked again all the same, and after an end of this process each entry is.
func (p *poller) take(early bool) []log.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if early && len(p.done) == 0 {
		for id := range p.open {
			p.done = append(p.done, id)
		}
	}
	n := min(len(p.done), maxRemove)
	ids := p.done[:n:n]
	p.done = p.done[n:]
	return ids
}

func (p *poller) putBack(ids []log.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = append(p.done, ids...)
}

// removed records that the server acknowledged a removal.
func (p *poller) removed(ids []log.UUID) {
	p.mu.Lock()
	n := 0
	for _, id := range ids {
		if p.open[id] {
			delete(p.open, id)
			n++
		}
	}
	p.mu.Unlock()
	p.worked(n)
}

// worked records a success, and the number of records that were acknowledged with it.
func (p *poller) worked(acknowledged int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.LastError != "" {
		p.state.LastError = ""
		p.daemon.cfg.Logger.Info("varpd: the shootdown log works again", "underlay", p.local)
	}
	if acknowledged > 0 {
		p.state.Acknowledged += uint64(acknowledged)
		p.state.LastAcknowledged = time.Now()
		p.daemon.stats.acknowledged.Add(uint64(acknowledged))
	}
}

// failed records a failure, and logs the first of several.
func (p *poller) failed(what string, err error) {
	if errors.Is(err, varp.ErrStatus) {
		err = fmt.Errorf("%w; does the server know %s as the underlay address of this node?", err, p.local)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.daemon.stats.pollsFailed.Add(1)
	first := p.state.LastError == ""
	p.state.LastError, p.state.LastErrorAt = fmt.Sprintf("%s: %v", what, err), time.Now()
	if first {
		p.daemon.cfg.Logger.Warn("varpd: "+what+"; moves are noticed only after --refresh", "underlay", p.local, "error", err)
	}
}

// current returns the state now.
func (p *poller) current() PollState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	s.Open = len(p.open)
	return s
}
