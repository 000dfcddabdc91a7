package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
	"rutter/raftstore/internal/admission"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/clocks"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/distrust"
	"rutter/raftstore/internal/lag"
	"rutter/raftstore/internal/notify"
	"rutter/raftstore/internal/peer"
	"rutter/raftstore/internal/raftlog"
)

// Store is one server's replica of the log. It holds what its parts share: the files, and
// the state that readers see. Each concern with a state and rules of its own is a part:
// applying, leading, proposing, the members, the disk, time, the comparison with the
// other servers, upkeep.
type Store struct {
	// Set by Open, and immutable.
	cfg       Config
	logger    *slog.Logger
	address   string
	raftLog   *raftlog.Log
	files     *changesdb.Files
	persister *changesdb.Persister
	past      *history.Reader
	images    *images
	opened    time.Time // for Age
	tasks     *peer.Tasks
	counters  counters

	applier    applier // belongs to raft's FSM goroutine
	barriers   barriers
	comparison comparison
	disks      diskWatch
	endpoint   endpoint
	keeper     keeper
	lead       leadership
	members    *Membership
	replica    replica
	proposer   proposer
	rebuilder  rebuilder
	skipping   skipWatch
	times      timekeeper

	*core

	raft atomic.Pointer[raft.Raft]
	// transport is raft's own.
	transport atomic.Pointer[peer.Transport]

	ending   chan struct{} // closed when Run begins to stop
	failOnce sync.Once
	failed   chan struct{} // closed by fail, after failErr was set
	failErr  error
}

// core is the state of a Store that readers see, and that its parts share. Only the
// applier writes it.
type core struct {
	mu    sync.RWMutex // protects what follows
	state *projections.State
	head  changesdb.Head
	// headTime is head.Time. It is read without the lock, also by who has it: a second read
	// lock would wait for a writer that waits for the first.
	headTime atomic.Int64
	ring     changesdb.Ring
	changed  chan struct{} // closed and replaced when more was applied
}

// appliedIndex returns the raft index up to which everything is applied.
func (c *core) appliedIndex() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.head.Applied
}

// counters are the counters of Status.
type counters struct {
	proposals, batches, forwarded, overloaded atomic.Uint64
	duplicates, refused, snapshots, restores  atomic.Uint64
	comparisons, differences                  atomic.Uint64
	undecided, unreadable, early              atomic.Uint64
}

// Open opens or makes the files in cfg.Dir, reads them, and takes the peer
// port. The caller calls Run next, and Close at the end.
func Open(cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := newStore(cfg)
	if err := s.keeper.loadConsent(); err != nil {
		return nil, err
	}
	if err := s.openFiles(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.endpoint.openPort(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newStore returns a store that has not opened any file.
func newStore(cfg Config) *Store {
	s := &Store{
		cfg:    cfg,
		logger: cfg.Logger.With("server", cfg.ID),
		files:  new(changesdb.Files),
		opened: time.Now(),
		tasks:  new(peer.Tasks),
		core:   &core{changed: make(chan struct{})},
		failed: make(chan struct{}),
		ending: make(chan struct{}),
	}
	known := clocks.New(cfg.Now, cfg.ID, cfg.MaxClockOffset)
	s.applier.store = s
	s.barriers = barriers{store: s, kick: make(chan struct{}, 1)}
	s.comparison = comparison{
		round: notify.NewTurn(),
		cfg:   &s.cfg, logger: s.logger, counters: &s.counters,
		rebuilding: s.applier.rebuilding, wake: s.applier.wake, callPeer: s.endpoint.callPeer,
	}
	s.disks = diskWatch{store: s, ops: &disk.Ops{Delay: cfg.DiskDelay}, space: spaceWatch{upkeep: make(chan struct{}, 1)}}
	s.endpoint.store = s
	s.keeper.store = s
	s.rebuilder.store = s
	s.lead = leadership{store: s, moved: make(chan struct{})}
	s.members = &Membership{store: s}
	s.replica = replica{store: s, meter: lag.New(cfg.MaxLag, s.opened)}
	s.proposer = proposer{store: s, queue: admission.NewQueue(), budgets: admission.NewBudgets(cfg.Budgets, cfg.Now)}
	s.skipping = skipWatch{core: s.core, logger: s.logger, adopt: s.applier.adoptSkips}
	s.times = timekeeper{store: s, clocks: known, clock: clocks.NewStamper(cfg.Now, cfg.MaxClockJump, cfg.MaxClockOffset, known.Agreement.Load)}
	return s
}

func (s *Store) openFiles() error {
	if err := changesdb.PrepareDir(s.cfg.Dir); err != nil {
		return err
	}
	if err := errors.Join(distrust.Reread(s.cfg.Dir), s.makeFiles()); err != nil {
		return err
	}
	db, err := changesdb.Open(filepath.Join(s.cfg.Dir, changesdb.Name), s.cfg.MapBytes)
	if err != nil {
		return err
	}
	if err := s.files.Swap(db); err != nil {
		return err
	}
	begun := time.Now()
	c, err := changesdb.Load(db, s.cfg.DedupeAge, s.cfg.DedupeCount)
	if errors.Is(err, log.ErrFormat) {
		return fmt.Errorf("%s: %w", s.cfg.Dir, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; move it away with raft.db and raft.wal, and let the server join again", s.cfg.Dir, err)
	}
	s.state, s.head = c.State, c.Head
	s.headTime.Store(int64(c.Head.Time))
	s.ring = changesdb.Ring{MaxEntries: s.cfg.RingEntries, MaxBytes: s.cfg.RingBytes}
	s.ring.Reset(c.Head.Seq)
	s.applier.enc, s.applier.window, s.applier.head = log.NewSharingEncoder(encoderRoom), c.Window, c.Head
	s.comparison.points.reset(&c.Head)
	s.persister = changesdb.NewPersister(s.persistOptions(), s.files, &c)
	s.keeper.upkeep = &changesdb.Upkeep{
		Persister: s.persister, Files: s.files, Logger: s.logger, Every: log.Seq(s.cfg.CheckpointEvents),
		Objects: s.keeper.objectCount, Scarce: func() bool { return s.Room().Low },
	}
	s.past = history.NewReader(s.files, s.persister, s.Serving, s.headAndFloor, func(fn func(*projections.State)) {
		s.View(func(v View) { fn(v.State) })
	})
	s.keeper.indexer = &history.Indexer{Persister: s.persister, Files: s.files}
	s.images = &images{
		cfg: &s.cfg, files: s.files, persister: s.persister, tasks: s.tasks, logger: s.logger, counters: &s.counters, core: s.core, dir: s.cfg.Dir,
		incoming: make(map[string]*sink), streams: make(map[*source]struct{}),
	}
	if s.raftLog, err = raftlog.Open(s.raftLogOptions()); err != nil {
		return err
	}
	s.cfg.RaftLog = s.raftLog.Kind()
	s.disks.measureSpace()
	if err := s.raftLog.Verify(c.Marker.Index); err != nil {
		return err
	}
	last, err := s.raftLog.LastIndex()
	if err != nil {
		return err
	}
	if c.Head.Applied > max(last, c.Marker.Index) {
		return fmt.Errorf("%s: changes.db is at raft index %d, and raft's log ends at %d: raft.db or raft.wal was lost or is another server's; remove this server from the cluster, and let it join with an empty folder", s.cfg.Dir, c.Head.Applied, last)
	}
	if err := distrust.Clear(s.cfg.Dir); err != nil {
		return err
	}
	c.GiveBack()
	s.logger.Info("store opened", "dir", s.cfg.Dir, "seq", c.Head.Seq, "raft_index", c.Head.Applied, "replay", last-min(last, c.Head.Applied), "took", time.Since(begun))
	return nil
}

// raftLogOptions returns the options of raft's log.
func (s *Store) raftLogOptions() raftlog.Options {
	return raftlog.Options{
		Dir: s.cfg.Dir, Kind: s.cfg.RaftLog, MapBytes: s.cfg.MapBytes, Logger: s.cfg.Logger,
		Leads: s.appends, Changes: command.IsBatch, Report: s.fail, Admit: s.disks.admit, Ops: s.disks.ops,
		Full:   func() error { return errorIn(&s.disks.space.last) },
		Ending: s.ending,
	}
}

// appends reports whether raft leads, and so appends to the log itself. Unlike leading it
// checks nothing else.
func (s *Store) appends() bool {
	r := s.raft.Load()
	return r != nil && r.State() == raft.Leader
}

// Address returns the address of the peer port, as the others dial it.
func (s *Store) Address() string { return s.address }

// Close closes the files and the port. If Run was called, it must have returned.
func (s *Store) Close() error {
	var errs []error
	if s.endpoint.listener != nil {
		if err := s.endpoint.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.disks.stall.left.Load() {
		return errors.Join(errs...) // the files are in use, and closing them would wait
	}
	if s.raftLog != nil {
		errs = append(errs, s.raftLog.Close())
	}
	return errors.Join(append(errs, s.files.Close())...)
}

// fail stops the server in order: Run returns err. Nothing is applied any more.
func (s *Store) fail(err error) {
	s.failOnce.Do(func() {
		s.failErr = err
		close(s.failed)
		s.logger.Error("the store stops", "error", err)
		if errors.Is(err, ErrDisk) || errors.Is(err, ErrDiskHangs) {
			distrust.Note(s.cfg.Dir, err)
		}
	})
}

// failure returns the error of the first call of fail, or nil.
func (s *Store) failure() error {
	select {
	case <-s.failed:
		return s.failErr
	default:
		return nil
	}
}

// persistOptions returns the options of the writer of changes.db.
func (s *Store) persistOptions() changesdb.Options {
	return changesdb.Options{
		Logger: s.cfg.Logger, Delay: s.cfg.PersistDelay, Events: s.cfg.PersistEvents,
		MaxLagEvents: s.cfg.MaxLagEvents, MaxLagBytes: s.cfg.MaxLagBytes,
		SweepEvents: s.cfg.SweepEvents, SweepDelay: s.cfg.SweepDelay, SweepRows: s.cfg.sweepRows, SweepPart: s.cfg.sweepPart,
		Ops: s.disks.ops, Full: func() error { return errorIn(&s.disks.space.file) }, Spare: func() error { return errorIn(&s.disks.space.spare) },
	}
}

// Ready returns why clients should not use this server now, or nil. It must have applied
// a leader's commit once since it started (SAFETY P4), and must know a leader now.
func (s *Store) Ready() error {
	if err := s.failure(); err != nil {
		return errors.Join(ErrStopped, err)
	}
	switch {
	case phase(s.lead.phase.Load()) != running:
		return ErrStopped
	case s.Serving() != nil:
		return s.Serving()
	case s.disks.stalled() != nil:
		return s.disks.stalled()
	case s.disks.behindOthers() != nil:
		return s.disks.behindOthers()
	case s.Lagging() != nil:
		return s.Lagging()
	case !s.lead.ready.Load():
		return s.skipping.orSkips(ErrNotReady)
	case s.Head().Cluster.IsZero():
		return ErrNotReady // there is a leader, but it has not founded the cluster yet
	case s.lead.leaderAddress() == "":
		return s.skipping.orSkips(ErrNoLeader)
	}
	return nil
}

// run holds what one call of Run started.
type run struct {
	s         *Store
	raft      *raft.Raft
	transport *peer.Transport
	port      *peer.Port
	persisted chan error // the persister has ended
	endDisk   context.CancelFunc
}

// Run takes part in the cluster until ctx is done. Then it hands the leadership over,
// stops, and writes what is left. It may be called once. The error is nil after an
// orderly stop, else the cause of the stop.
func (s *Store) Run(ctx context.Context) error {
	if !s.lead.becomeRunning() {
		return fmt.Errorf("%w: Run is called once", ErrStopped)
	}
	defer s.lead.becomeStopped()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	r, err := s.startRaft(life)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(life)
	defer stop()
	var loops sync.WaitGroup
	loops.Go(func() { s.proposer.runProposer(work, r.raft) })
	loops.Go(func() { s.barriers.runBarriers(work, r.raft) })
	loops.Go(func() { s.lead.runLeadership(work, r.raft) })
	s.tasks.Start(func() { s.times.runClocks(work, r.raft) })
	s.tasks.Start(func() { s.comparison.runCompare(work, r.raft) })
	s.tasks.Start(func() { s.keeper.runUpkeep(work, r.raft) })
	s.tasks.Start(func() { s.persister.RunSweeps(work) })
	s.tasks.Start(func() { s.lead.runReady(work, r.raft) })
	s.tasks.Start(func() { s.replica.run(work, r.raft) })
	s.tasks.Start(func() { s.leaderWatch(r).Run(work) })
	s.tasks.Start(func() { s.disks.runStall(work, r.raft) })
	s.tasks.Start(func() { s.disks.runSpace(work, r.raft) })
	if len(s.cfg.Join) > 0 && s.members.mayJoin() {
		s.tasks.Start(func() {
			votes, err := s.members.wantsVote()
			if err == nil {
				err = s.members.join(work)
			}
			if err != nil {
				s.fail(err)
			} else if votes {
				s.members.stage(work)
			}
		})
	}
	select {
	case <-ctx.Done():
		s.lead.handOver(r.raft)
	case <-s.failed:
	}
	s.lead.becomeStopping()
	stop()
	if s.disks.stalled() != nil { // goroutines that wait for the disk cannot be awaited
		return errors.Join(s.failure(), s.disks.stalled(), r.leave(end))
	}
	s.await(&loops)
	return errors.Join(s.failure(), r.stop(end))
}

// await waits for the loops, which end when raft has answered their batches. Raft
// answers, or loses the leadership and reports that, unless its disk hangs.
func (s *Store) await(loops *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		loops.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * drainWait(&s.cfg)):
		s.logger.Warn("raft did not answer before the end")
	}
}

// startRaft starts the peer port, the persister and raft.
func (s *Store) startRaft(life context.Context) (_ *run, err error) {
	port := s.endpoint.newPort(life)
	s.endpoint.peers.Store(peer.NewClient(port))
	disk, endDisk := context.WithCancel(life)
	r := &run{s: s, port: port, persisted: make(chan error, 1), endDisk: endDisk}
	transport := s.endpoint.newTransport(port)
	s.tasks.Start(func() {
		if err := port.Run(); err != nil {
			s.fail(err)
		}
	})
	if s.members.fresh, err = s.bootstrap(life, transport); err != nil {
		endDisk()
		err = errors.Join(err, transport.Close(), port.Close())
		s.tasks.Stop()
		return nil, err
	}
	go func() {
		err := s.persister.Run(disk)
		if err != nil {
			s.fail(err)
		}
		r.persisted <- err
	}()
	err = s.withoutPanic(func() (err error) {
		r.raft, err = raft.NewRaft(raftConfig(&s.cfg, s.logger), transport.FSM(fsm{s}), s.raftLog, transport.Stable(), s.images, transport)
		return err
	})
	if err != nil {
		endDisk()
		<-r.persisted
		err = errors.Join(fmt.Errorf("start raft: %w", err), transport.Close())
		s.tasks.Stop()
		return nil, err
	}
	r.transport = transport
	s.transport.Store(transport)
	s.raftLog.SetLive(true)
	s.raft.Store(r.raft)
	return r, nil
}

// bootstrap writes the first configuration to a new folder, if the flags request one. It
// reports whether the folder was new.
func (s *Store) bootstrap(ctx context.Context, transport raft.Transport) (fresh bool, err error) {
	if err := s.raftLog.UndoFounding(); err != nil {
		return false, fmt.Errorf("bootstrap: %w", err)
	}
	old, err := raft.HasExistingState(s.raftLog, s.raftLog, s.images)
	if err != nil || old {
		return false, err
	}
	members := s.cfg.InitialMembers
	if s.cfg.Bootstrap {
		members = []Member{{ID: s.cfg.ID, Address: s.address}}
	}
	if len(members) == 0 {
		return true, nil
	}
	if err := s.members.checkFounding(ctx); err != nil {
		return false, err
	}
	var conf raft.Configuration
	for _, m := range members {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Address)})
	}
	err = s.withoutPanic(func() error {
		return raft.BootstrapCluster(raftConfig(&s.cfg, s.logger), s.raftLog, s.raftLog, s.images, transport, conf)
	})
	if err != nil {
		return false, fmt.Errorf("bootstrap: %w", err)
	}
	return true, nil
}

// stop ends raft, then the port and its connections, then the persister, which writes to
// changes.db what is left.
func (r *run) stop(end context.CancelFunc) error {
	var errs []error
	if err := r.transport.Shutdown(r.raft); err != nil {
		errs = append(errs, fmt.Errorf("stop raft: %w", err))
	}
	r.s.raftLog.SetLive(false)
	r.s.raftLog.Settle()
	end()
	errs = append(errs, r.port.Close())
	r.s.tasks.Stop()
	r.endDisk()
	if err := <-r.persisted; !errors.Is(r.s.failure(), err) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
