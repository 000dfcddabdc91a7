package serviceaddr

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Leader is what a Service knows of the cluster. Its methods may be called concurrently.
type Leader interface {
	// Confirmed returns the term in which this server is elected, the latest time at which
	// no later leader was elected, and the other members' peer addresses; ok is false if
	// this server is not elected.
	Confirmed() (term uint64, at time.Time, others []string, ok bool)
	// Serves reports whether this server takes changes and serves clients.
	Serves() bool
	// Moved returns a channel that is closed when the leader may have changed.
	Moved() <-chan struct{}
	// HandOver hands the leadership to another server, if this one leads and can.
	HandOver(ctx context.Context) error
}

const (
	// tick is the time between two steps of an elected server.
	tick = 25 * time.Millisecond
	// idle is the time between two steps of another server, unless the leader moves.
	idle = time.Second
	// handOverWithin bounds the hand-over at the end.
	handOverWithin = 2 * time.Second
	// linkPatience is how long a leader's link may be unusable before it hands the
	// leadership on, and handOnEvery the time between two attempts.
	linkPatience = 3 * time.Second
	handOnEvery  = time.Minute
)

// Config configures a Service. All must be set.
type Config struct {
	Addresses []Address
	Leader    Leader
	Logger    *slog.Logger
}

// Service keeps the service addresses of one server.
type Service struct {
	cfg     Config
	keepers []*keeper
	kernel  *kernel
	// busy is when the message to the kernel that is under way began, in ns of the
	// monotonic clock since start; 0: there is none.
	busy  atomic.Int64
	start time.Time

	handedOn time.Time // last attempt because of a link
	resolved map[string]lookup

	mu     sync.Mutex // protects what follows
	broken string     // why no address can be kept; "": nothing
	states []State    // of the addresses, in their order
}

// State is how it is with one address on this server.
type State struct {
	Address Address
	Held    bool
	Probing bool   // it is elected, and waits until the address is free
	Problem string // what an operator must act on; "": nothing
	Warning string // what an operator should look at, while it is elected; "": nothing
	Foreign bool   // a machine that is no server has the address

	Takes, Losses, Renewals, Failures, Late, Claims uint64
}

// New makes a Service, which does nothing until Run.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg, start: time.Now(), resolved: make(map[string]lookup)}
	for _, a := range cfg.Addresses {
		s.keepers = append(s.keepers, &keeper{service: s, state: State{Address: a}})
		s.states = append(s.states, State{Address: a})
	}
	return s
}

// Run keeps the addresses until ctx ends: then it deletes those that it holds, and hands
// the leadership on if it held one. It fails only by ctx; what else goes wrong is in
// Problems, and tried again.
func (s *Service) Run(ctx context.Context) error {
	defer s.closeKernel()
	for ctx.Err() == nil {
		moved := s.cfg.Leader.Moved()
		l, others := s.leadership()
		if s.openKernel() {
			for _, k := range s.keepers {
				if s.openKernel() {
					k.step(l, others)
				}
			}
			s.publish()
			s.handOn(ctx, l)
		}
		s.pause(ctx, moved, l.Elected)
	}
	held := false
	for _, k := range s.keepers {
		held = k.holder.Held() || held
		k.end()
	}
	s.publish()
	if held {
		handing, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOverWithin)
		defer cancel()
		if err := s.cfg.Leader.HandOver(handing); err != nil {
			s.cfg.Logger.Info("stopping with the leadership: no server took it", "because", err)
		}
	}
	return nil
}

func (s *Service) pause(ctx context.Context, moved <-chan struct{}, elected bool) {
	wait := idle
	if elected {
		wait = tick
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-moved:
	case <-timer.C:
	}
}

// leadership returns what is known now.
func (s *Service) leadership() (l Leadership, others []string) {
	l.Term, l.Proved, others, l.Elected = s.cfg.Leader.Confirmed()
	l.Serves = l.Elected && s.cfg.Leader.Serves()
	l.Now = time.Now() // last: the proof is at least as old as it seems
	return l, others
}

// openKernel reports whether the kernel can be reached, and deletes what an earlier
// process left when it is reached first.
func (s *Service) openKernel() bool {
	if s.kernel != nil {
		return true
	}
	k, err := openKernel()
	if err != nil {
		s.fail(err)
		return false
	}
	s.kernel = k
	s.fail(nil)
	for _, k := range s.keepers {
		if k.holder.Held() {
			continue // by a socket that was given up
		}
		if err := k.clearLeftovers(); err != nil {
			k.problem(err)
		}
	}
	return true
}

func (s *Service) closeKernel() {
	if s.kernel != nil {
		_ = s.kernel.close()
	}
	s.kernel = nil
}

func (s *Service) fail(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != "" && text != s.broken {
		s.cfg.Logger.Error("no service address can be kept", "error", err)
	}
	s.broken = text
}

// asking marks a message to the kernel, for Problems: it may wait for other programs'
// changes of links, which the kernel does one at a time.
func (s *Service) asking() (done func()) {
	s.busy.Store(int64(time.Since(s.start)) | 1)
	return func() { s.busy.Store(0) }
}

// publish shows the keepers' states to other goroutines.
func (s *Service) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range s.keepers {
		k.state.Held = k.holder.Held()
		k.state.Foreign = k.holder.Foreign()
		s.states[i] = k.state
	}
}

// States returns the states of all addresses.
func (s *Service) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.states)
}

// Problems returns what an operator must act on.
func (s *Service) Problems() (all []string) {
	if s == nil {
		return nil
	}
	if began := s.busy.Load(); began != 0 && time.Since(s.start)-time.Duration(began) > Lifetime {
		all = append(all, "service addresses: the kernel has not answered for over a second; other programs change its links")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != "" {
		all = append(all, "service addresses: "+s.broken)
	}
	for i := range s.states {
		st := &s.states[i]
		for _, text := range []string{st.Problem, st.Warning} {
			if text != "" {
				all = append(all, "service address "+st.Address.String()+": "+text)
			}
		}
	}
	return all
}

// Lines returns one line for each address: whether this server has it.
func (s *Service) Lines() (all []string) {
	if s == nil {
		return nil
	}
	for _, st := range s.States() {
		where := "not here"
		switch {
		case st.Held:
			where = "held"
		case st.Probing:
			where = "waits until it is free"
		}
		all = append(all, "service address "+st.Address.String()+": "+where)
	}
	return all
}

// handOn hands the leadership on if a link has been unusable for linkPatience: clients
// cannot reach this server by the address, and may reach another one.
func (s *Service) handOn(ctx context.Context, l Leadership) {
	bad := slices.ContainsFunc(s.keepers, func(k *keeper) bool {
		return !k.unusable.IsZero() && l.Now.Sub(k.unusable) >= linkPatience
	})
	if !bad || !l.Serves || !s.handedOn.IsZero() && l.Now.Sub(s.handedOn) < handOnEvery {
		return
	}
	s.handedOn = l.Now
	s.cfg.Logger.Warn("giving the leadership away: a service address has no link here")
	ctx, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	if err := s.cfg.Leader.HandOver(ctx); err != nil {
		s.cfg.Logger.Warn("no server took the leadership", "error", err)
	}
}

// lookup is the result of resolving a peer's host name.
type lookup struct {
	ip netip.Addr
	at time.Time
}

const (
	resolveWithin = 100 * time.Millisecond
	resolveEvery  = 10 * time.Second
)

// addressOf returns the IP address of a peer address; the zero address if it is not known.
func (s *Service) addressOf(peer string) netip.Addr {
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		return netip.Addr{}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("")
	}
	if last, ok := s.resolved[host]; ok && time.Since(last.at) < resolveEvery {
		return last.ip
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveWithin)
	defer cancel()
	var ip netip.Addr
	if all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host); err == nil && len(all) > 0 {
		ip = all[0].Unmap()
	}
	s.resolved[host] = lookup{ip, time.Now()}
	return ip
}

// errForeign: this machine has the address by another program.
var errForeign = errors.New("another program of this machine has set it: remove it there (ip address del), or choose another service address")
