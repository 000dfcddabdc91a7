package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"rutter/log"
	"rutter/log/budget"
	"rutter/raftstore/internal/lag"
	"rutter/raftstore/internal/raftlog"
	"rutter/raftstore/internal/window"
	"rutter/raftstore/offline"
)

// DefaultMaxLag is the default of Config.MaxLag.
const DefaultMaxLag = lag.Default

type (
	// Member is one server of the cluster.
	Member = offline.Member
	// MemberStatus is a member as raft's configuration has it.
	MemberStatus = offline.MemberStatus
)

// Where raft's log can be, for Config.RaftLog.
const (
	RaftLogBolt = raftlog.Bolt
	RaftLogWAL  = raftlog.WAL
)

// Network is how peers reach each other. The default is plain TCP; a TLS layer wraps both
// methods and returns authenticated connections.
type Network interface {
	// Listen opens the peer port. Dial connects to that of another server.
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Config is the configuration of one server. A zero field means its default, which stands
// beside it.
type Config struct {
	ID  string // the server's name in the cluster; required, never reused for another machine
	Dir string // data folder, made if missing; required

	// Listen is the address of the peer port (raft and forwarding), 127.0.0.1:7421.
	Listen string
	// Advertise is the address that the others dial; if empty, the listener's own.
	Advertise string
	Network   Network // plain TCP

	// At most one of these three may be set. They are ignored once the data folder holds
	// a cluster's state, so the flags may stay in place.
	Bootstrap      bool     // begin a new cluster of this one server
	InitialMembers []Member // begin a new cluster of these; the same list on each of them
	Join           []string // join a running cluster through one of these peer addresses

	// NonVoter makes a joining server follow without a vote until an operator promotes
	// it. Without it, the server is promoted as soon as it has caught up. A replica stays
	// one, whatever a later start says here: only a server that began to join for a vote
	// asks for it.
	NonVoter bool
	// MaxLag is how far a server without a vote may be behind the leader, in time, before
	// it is not ready: 10 s (lag.Default has the reason). It is ready again when it has
	// been at most half of it behind, for half of it. Servers with a vote ignore it.
	MaxLag time.Duration

	Logger *slog.Logger     // slog.Default()
	Now    func() time.Time // time.Now; the leader stamps changes with it

	// Raft's clock. Heartbeat is how long a follower waits for its leader; it is about
	// half of the time that a failover takes. Followers receive a commit at once
	// (internal/peer/pipelines). CommitTimeout is the longest delay if that fails.
	Heartbeat     time.Duration // 500 ms
	Election      time.Duration // Heartbeat
	LeaderLease   time.Duration // Heartbeat
	CommitTimeout time.Duration // 20 ms

	// RaftLog is where raft's log is: RaftLogBolt or RaftLogWAL. If that is not where the
	// folder has it, Open moves it. "" (default) leaves a log where it is, and begins a
	// new one as RaftLogWAL.
	RaftLog string

	// Raft's log. A marker costs one small transaction. It is set often, so that each
	// trim is small and a restart reads little.
	MarkerEvery   time.Duration // between two checks whether a marker is due, 2 s
	MarkerEntries uint64        // entries since the last marker that make one due, 256
	TrailingLogs  uint64        // entries kept behind the marker for slow followers, 2,048

	// ProposeTimeout bounds Propose if its context has no deadline: 10 s.
	ProposeTimeout time.Duration
	// MaxClockOffset is how far a server's clock may be from the agreed clock: 3 s. A
	// server beyond it neither takes nor keeps the leadership while another server can
	// lead, and its clock is not used for stamps. NTP keeps clocks within milliseconds,
	// and within a second at worst; a larger offset means that the clock is not
	// synchronized. Change ids may be a minute ahead.
	MaxClockOffset time.Duration
	// MaxClockJump is how far the wall clock may run ahead of the monotonic clock: 5 min.
	// Beyond it, a leader without other voters refuses to stamp changes.
	MaxClockJump time.Duration

	// DedupeAge and DedupeCount bound the window of change ids: 1 h and 200,000. They
	// decide which changes are refused, so all servers of a cluster must have the same
	// values.
	DedupeAge   time.Duration
	DedupeCount int

	RingEntries int // encoded entries kept in memory for readers, at least: 65,536
	RingBytes   int // or this many bytes, 64 MiB

	// PersistDelay is how long applied entries may wait for the transaction that writes
	// them to changes.db: 250 ms. PersistEvents (16,384) events do not wait. Few large
	// transactions write fewer pages, and leave the disk to raft's log. MaxLagEvents is
	// how many events changes.db may be behind before Propose returns ErrOverloaded:
	// 262,144. MaxLagBytes is the same in bytes: 256 MiB.
	PersistDelay  time.Duration
	PersistEvents int
	MaxLagEvents  int
	MaxLagBytes   int

	// SweepEvents is how many events may pass before a sweep writes the object rows of
	// changes.db: 524,288. A start folds that many in about a second, and among so many,
	// neighbouring rows share pages. SweepDelay is how long fewer events may wait while
	// few come: 1 min.
	SweepEvents int
	SweepDelay  time.Duration

	// CompareEvery is the time between two comparisons of this server's state with the
	// others: 5 s.
	CompareEvery time.Duration

	// UpkeepEvery is the time between two rounds of upkeep (retention and checkpoints): 1
	// min. CheckpointEvents is the least number of entries between two checkpoints:
	// 250,000, which replay in less than a second.
	UpkeepEvery      time.Duration
	CheckpointEvents int

	// DiskStall is how long an operation on disk may take: two heartbeats, at least 1 s;
	// for a transaction of changes.db four times that. Beyond it, this server gives up
	// leadership and readiness until the operation ends. DiskPatience is how long an
	// operation may take before the process ends: 1 min. That is twice the time after
	// which Linux repeats or fails a command to a disk (30 s, for SCSI and for NVMe).
	DiskStall    time.Duration
	DiskPatience time.Duration

	// DiskDelay, if not nil, is called before each write, sync or deletion on disk, with a text
	// for people, and may wait: a simulation makes a disk slow, or hang, with it. It is called
	// under no lock but those of what needs the same disk, so that nothing else waits. Its time
	// is one of the operation (DiskStall). It may be called from several goroutines at once.
	DiskDelay func(what string)

	// DiskLowWater is the bytes of free space that the data folder needs, the free pages
	// of changes.db included: 1 GiB, or a tenth of the file system if that is less
	// (space.go has the reason). Below it, changes that make the state grow are refused. A
	// quarter of it is the reserve. Below the reserve this server writes nothing that
	// could fail half-way.
	DiskLowWater int64

	// FeatureSettle is how long all servers must know a higher feature version before the
	// leader raises the cluster's version: 10 min. Until then an upgrade can be taken
	// back.
	FeatureSettle time.Duration
	// FeatureManual lets this server agree to a higher feature version only when
	// Membership.Finalize has said so: until then no time ends in which the upgrade can be
	// taken back. One such server keeps the version of the whole cluster. A new cluster
	// begins with the version of its program.
	FeatureManual bool
	// Program is the version of the program, for people; others are told.
	Program string

	// Budgets bound what compute nodes, and programs without a certificate, may write in
	// a second: those of budget.Table.
	Budgets budget.Set

	// MapBytes is the address space, in bytes, reserved for changes.db: 32 GiB, twice the
	// default of Retention.Bytes. It must be more than the file ever grows to, because
	// else a long read stops the writer.
	MapBytes int

	sweepRows, sweepPart int // bounds of a sweep, if not 0; tests set them

	// Features is the highest feature version that this program knows: log.FeatureVersion.
	// Tests and simulations of older programs set others.
	Features uint32
}

// tcp is the default Network.
type tcp struct{}

func (tcp) Listen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

func (tcp) Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// or sets *p to def if it is the zero value.
func or[T comparable](p *T, def T) {
	var zero T
	if *p == zero {
		*p = def
	}
}

// withDefaults returns c with a default in every zero field, or an error that says what
// is wrong with c.
func (c Config) withDefaults() (Config, error) {
	if c.ID == "" {
		return c, errors.New("raftstore: the server has no ID: give each server of the cluster a name of its own")
	}
	if c.Dir == "" {
		return c, errors.New("raftstore: no data folder: set Dir")
	}
	if err := c.checkStart(); err != nil {
		return c, err
	}
	or(&c.Listen, "127.0.0.1:7421")
	or[Network](&c.Network, tcp{})
	or(&c.Logger, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	or(&c.Heartbeat, 500*time.Millisecond)
	or(&c.Election, c.Heartbeat)
	or(&c.LeaderLease, c.Heartbeat)
	or(&c.CommitTimeout, 20*time.Millisecond)
	or(&c.MarkerEvery, 2*time.Second)
	or(&c.MarkerEntries, 256)
	or(&c.TrailingLogs, 2048)
	or(&c.ProposeTimeout, 10*time.Second)
	or(&c.MaxLag, lag.Default)
	or(&c.MaxClockOffset, 3*time.Second)
	or(&c.MaxClockJump, 5*time.Minute)
	or(&c.DedupeAge, window.DefaultAge)
	or(&c.DedupeCount, window.DefaultCount)
	or(&c.RingEntries, 1<<16)
	or(&c.RingBytes, 64<<20)
	or(&c.PersistDelay, 250*time.Millisecond)
	or(&c.PersistEvents, 1<<14)
	or(&c.MaxLagEvents, 1<<18)
	or(&c.MaxLagBytes, 256<<20)
	or(&c.SweepEvents, 1<<19)
	or(&c.SweepDelay, time.Minute)
	if c.RaftLog != "" && c.RaftLog != RaftLogBolt && c.RaftLog != RaftLogWAL {
		return c, fmt.Errorf("raftstore: raft log %q: want %s or %s", c.RaftLog, RaftLogBolt, RaftLogWAL)
	}
	or(&c.CompareEvery, 5*time.Second)
	or(&c.UpkeepEvery, time.Minute)
	or(&c.FeatureSettle, 10*time.Minute)
	or(&c.CheckpointEvents, 250_000)
	or(&c.DiskStall, max(2*c.Heartbeat, stallLeast))
	or(&c.DiskPatience, time.Minute)
	or(&c.MapBytes, 32<<30)
	or(&c.Features, log.FeatureVersion)
	if c.DiskLowWater < 0 || c.DiskPatience < c.DiskStall {
		return c, fmt.Errorf("raftstore: low water of %d bytes, disk patience %v: want a number of bytes, and at least %v", c.DiskLowWater, c.DiskPatience, c.DiskStall)
	}
	if c.MaxLag < time.Second {
		return c, fmt.Errorf("raftstore: a lag of at most %v: want at least 1s, because the leader is asked a few times a second", c.MaxLag)
	}
	if c.LeaderLease > c.Heartbeat || c.Election < c.Heartbeat {
		return c, fmt.Errorf("raftstore: lease %v, heartbeat %v, election %v: want them in this order, none above the next", c.LeaderLease, c.Heartbeat, c.Election)
	}
	return c, nil
}

// checkStart refuses flags that give two ways to start a cluster.
func (c Config) checkStart() error {
	starts := 0
	for _, given := range []bool{c.Bootstrap, len(c.InitialMembers) > 0, len(c.Join) > 0} {
		if given {
			starts++
		}
	}
	if starts > 1 {
		return errors.New("raftstore: bootstrap, initial members and join exclude each other: give one of them")
	}
	if len(c.InitialMembers) == 0 {
		return nil
	}
	seen := make(map[string]bool)
	for _, m := range c.InitialMembers {
		if m.ID == "" || m.Address == "" {
			return fmt.Errorf("raftstore: initial member %q at %q: want an id and an address", m.ID, m.Address)
		}
		if seen[m.ID] || seen[m.Address] {
			return fmt.Errorf("raftstore: initial member %s at %s is named twice", m.ID, m.Address)
		}
		seen[m.ID], seen[m.Address] = true, true
	}
	if !seen[c.ID] {
		return fmt.Errorf("raftstore: server %q is not among the initial members: add it, or join the cluster instead", c.ID)
	}
	return nil
}
