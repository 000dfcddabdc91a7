package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"rutter/cmd/rutter/serve"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/network"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/raftstore"
)

// Ports of simulated servers.
const (
	apiPort  = 7420
	peerPort = 7421
)

// ringEntries is how many of the newest entries a server keeps in memory.
const ringEntries = 128

// server is one server of the cluster, through its restarts.
type server struct {
	busy
	*drive
	w    *world
	name string // of the machine; the first server on it has the same
	// replica: it joins without a vote.
	replica bool
	// features is what an older program knows; 0: as this program.
	features atomic.Uint32
	ringOver []int64 // by how many entries its ring was over its bound at the last looks: the observer's
	ringAt   log.Seq // of the last of them
	host     *network.Host
	clock    clock

	mu      sync.Mutex // protects what follows
	id      string     // in the cluster
	lives   int        // servers that this machine had before
	joins   bool       // it joins the others, and founded nothing
	removed bool
	hung    bool // the last process ended without its files, because its disk hung
	alone   bool // it was restored, and is a cluster of one
	run     *serve.Server
	cancel  context.CancelFunc
	ended   chan struct{} // closed when Run has returned
	err     error         // of Run
	looked  *raftstore.Store
	pointed uint64 // the raft index up to which looked was compared with others
}

// clock is a machine's wall clock: the bubble's, and what faults add.
type clock struct {
	offset atomic.Int64 // ns
	ppm    atomic.Int64
	since  atomic.Int64 // unix ns, of the drift
}

func (c *clock) now() time.Time {
	now := time.Now()
	off := c.offset.Load()
	if ppm := c.ppm.Load(); ppm != 0 {
		off += (now.UnixNano() - c.since.Load()) / 1_000_000 * ppm
	}
	if off == 0 {
		return now
	}
	return now.Add(time.Duration(off))
}

// peerNetwork is the peer port of a server.
type peerNetwork struct{ host *network.Host }

// Listen implements raftstore.Network.
func (n peerNetwork) Listen(address string) (net.Listener, error) { return n.host.Listen(address) }

// Dial implements raftstore.Network.
func (n peerNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	return n.host.Dial(ctx, "tcp", address)
}

func (s *server) url() string {
	if s.w.certificates != nil {
		return "https://" + s.address(apiPort)
	}
	return "http://" + s.address(apiPort)
}

func (s *server) address(port int) string {
	return net.JoinHostPort(s.host.Address(), strconv.Itoa(port))
}

// options are small where a history of a minute is to reach what takes hours elsewhere.
func (s *server) options() serve.Options {
	o := serve.Options{
		Store: raftstore.Config{
			ID: s.id, Dir: s.dir, Listen: s.address(peerPort), Network: peerNetwork{s.host}, InitialMembers: s.w.members,
			Now: s.clock.now, DiskDelay: s.disk.delay, Features: s.features.Load(), RaftLog: raftLog(s.w.h),
			MarkerEvery: 2 * time.Second, MarkerEntries: 32, TrailingLogs: 64,
			RingEntries: ringEntries, RingBytes: 256 << 10,
			PersistDelay: 100 * time.Millisecond, SweepEvents: 128, SweepDelay: 5 * time.Second,
			CompareEvery: 2 * time.Second, UpkeepEvery: 5 * time.Second, CheckpointEvents: 100,
			DiskLowWater: 1 << 20, DiskPatience: 6 * time.Second, FeatureSettle: 3 * time.Second, MapBytes: 256 << 20,
		},
		API: s.address(apiPort), SVP: "off", Version: "simulated", Insecure: true,
		Exit:   func(int) {}, // what waits for the disk ends when the disk goes on
		Listen: func(address string) (net.Listener, error) { return s.host.Listen(address) },
		Logger: s.w.logger(s.name), Jitter: share(s.w.jitter("share " + s.name)),
	}
	if s.w.h.Window > 0 {
		o.Store.DedupeAge, o.Store.DedupeCount = history.WindowAge, s.w.h.Window
	}
	if s.w.h.Replicas > 0 {
		o.Zone = votersZone
	}
	if s.replica {
		o.Zone, o.Store.NonVoter, o.Store.MaxLag = replicasZone, true, maxLag
	}
	if s.joins {
		o.Store.Join = s.peers()
	}
	if s.joins || s.alone {
		o.Store.InitialMembers = nil
	}
	return o
}

// start opens and runs the server from its folder.
func (s *server) start() error {
	s.mu.Lock()
	runs, hung := s.run != nil, s.hung
	s.mu.Unlock()
	if runs {
		return errRunning
	}
	if hung {
		if err := s.leave(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.hung = false
	options := s.options()
	s.mu.Unlock()
	if c := s.w.certificates; c != nil {
		folder, err := c.ofServer(options.Store.ID)
		if err != nil {
			return err
		}
		options.TLS, options.CertLife, options.CertClock, options.Insecure = folder, c.life, s.clock.now, false
	}
	s.host.Up()
	run, err := serve.Open(options) // its disk may make it wait, so without the lock; see busy
	if err != nil {
		return fmt.Errorf("open %s: %w", options.Store.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	s.run, s.cancel, s.ended, s.err = run, cancel, ended, nil
	s.w.seen.Add(s.name, seen.Process{State: "started"})
	go func() {
		err := run.Run(ctx)
		s.mu.Lock()
		s.err, s.hung = err, errors.Is(err, raftstore.ErrDiskHangs)
		if ctx.Err() == nil {
			s.run = nil
		}
		s.mu.Unlock()
		close(ended)
		if ctx.Err() == nil {
			s.w.unexpected(s.name, err)
			s.w.revive(s, err)
		}
	}()
	return nil
}

// stop ends the server in order, and returns when it has ended.
func (s *server) stop() error {
	s.mu.Lock()
	run, cancel, ended := s.run, s.cancel, s.ended
	s.run = nil
	s.mu.Unlock()
	if run == nil {
		return nil
	}
	cancel()
	<-ended
	s.w.ended(s.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// store is the running server's; nil: it does not run.
func (s *server) store() *raftstore.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return nil
	}
	return s.run.Store()
}

func (w *world) newServer(i int) *server {
	id := fmt.Sprintf("s%d", i+1)
	return &server{w: w, name: id, id: id, host: w.net.Host(id), drive: newDrive(w, id)}
}
