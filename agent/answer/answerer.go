package answer

import (
	"context"
	"encoding/binary"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"rutter/log"
	"rutter/projections/answers"
)

const (
	// MaxRequests is how many requests of one port are answered in requestWindow. Others are
	// dropped before they are decoded. The kernel's limit (package filter) is below it; this
	// one stands where the kernel has none.
	MaxRequests   = 200
	requestWindow = 100 * time.Millisecond
	// reopenAfter is the pause before a socket that failed is opened again.
	reopenAfter = time.Second
	// declineEvery is the least time between two lines in the log about declined addresses.
	declineEvery = time.Minute
)

// native is the machine's byte order.
var native = binary.NativeEndian

// Segment is a bridge that joins the ports of VMs.
type Segment struct {
	Index uint32 // ifindex
	Name  string
	VNet  uint32
	VLAN  uint16 // 0: untagged
}

// Port is the host end of a VM's link.
type Port struct {
	Index   uint32 // ifindex
	Segment uint32 // Index of its Segment
	MAC     log.MAC
}

// Config configures an Answerer. Log must be given.
type Config struct {
	Log    Log
	Every  time.Duration // between advertisements of routers; 0: AdvertiseEvery
	Logger *slog.Logger  // nil discards
}

// Answerer answers requests. Its methods may be called by any goroutine.
type Answerer struct {
	cfg     Config
	tally   tally
	changed chan struct{} // has room for one
	ports   atomic.Pointer[map[place]Port]

	declinedAt atomic.Int64 // Unix nanoseconds of the last line about one

	mu       sync.Mutex // protects what follows
	segments map[uint32]Segment
	readers  map[uint32]*reader
}

// place is where a NIC is on this node.
type place struct {
	segment uint32
	mac     log.MAC
}

// New makes an Answerer for no segment: Update names them.
func New(cfg Config) *Answerer {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Every == 0 {
		cfg.Every = AdvertiseEvery
	}
	a := &Answerer{cfg: cfg, changed: make(chan struct{}, 1), readers: map[uint32]*reader{}}
	a.ports.Store(&map[place]Port{})
	return a
}

// Update sets the segments and ports that exist. It returns at once; Run opens and closes
// the sockets.
func (a *Answerer) Update(segments []Segment, ports []Port) {
	places := make(map[place]Port, len(ports))
	for _, p := range ports {
		places[place{p.Segment, p.MAC}] = p
	}
	a.ports.Store(&places)
	wanted := make(map[uint32]Segment, len(segments))
	for _, s := range segments {
		wanted[s.Index] = s
	}
	a.mu.Lock()
	same := maps.Equal(a.segments, wanted)
	a.segments = wanted
	a.mu.Unlock()
	if !same {
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

// Run answers until ctx ends, and returns nil when all that it started has ended. A segment
// whose socket fails does not disturb others.
func (a *Answerer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer a.follow(ctx, nil)
	advertise := time.NewTicker(a.cfg.Every)
	defer advertise.Stop()
	for {
		a.follow(ctx, &running)
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		case <-advertise.C:
			a.advertise()
		}
	}
}

// follow starts and stops readers, so that each segment has one. Without running it stops
// all.
func (a *Answerer) follow(ctx context.Context, running *sync.WaitGroup) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for index, r := range a.readers {
		if s, wanted := a.segments[index]; running == nil || !wanted || s != r.segment {
			r.stop()
			delete(a.readers, index)
		}
	}
	if running == nil {
		return
	}
	for index, s := range a.segments {
		if a.readers[index] == nil {
			r := &reader{answerer: a, segment: s, asked: map[uint32]int{}}
			var inner context.Context
			inner, r.stop = context.WithCancel(ctx)
			a.readers[index] = r
			running.Go(func() { r.run(inner) })
		}
	}
}

// advertise sends each port what a router solicitation of it would get.
func (a *Answerer) advertise() {
	a.mu.Lock()
	readers := maps.Clone(a.readers)
	a.mu.Unlock()
	for _, p := range *a.ports.Load() {
		r := readers[p.Segment]
		if r == nil {
			continue
		}
		if s := r.socket.Load(); s != nil {
			r.answer(s, p, func(by responder, guest answers.Guest) reply { return by.router(p.MAC, guest) })
		}
	}
}
