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
	"rutter/raftstore/internal/raftlog"
	"rutter/raftstore/internal/window"
	"rutter/raftstore/offline"
)

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

// Network is how peers reach each other. The default is plain TCP; a TLS layer
// wraps both methods and hands out connections that are already authenticated.
type Network interface {
	// Listen opens the peer port; Dial reaches another server's.
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Config says how one server takes part in the cluster. Zero means default.
type Config struct {
	ID  string // the server's name in the cluster; required, never reused for another machine
	Dir string // data folder, made if missing; required

	// Listen is the address of the peer port (raft and forwarding), 127.0.0.1:7421.
	Listen string
	// Advertise is what the others dial; the listener's own address if empty.
	Advertise string
	Network   Network // plain TCP

	// At most one of these three is given, and each is ignored once the data
	// folder holds a cluster's state, so that flags may stay as they are.
	Bootstrap      bool     // begin a new cluster of this one server
	InitialMembers []Member // begin a new cluster of these; the same list on each of them
	Join           []string // ask these peer addresses to be let in

	// NonVoter makes a server that joins follow without a vote, until an
	// operator promotes it; else it is promoted once it has caught up.
	NonVoter bool

	Logger *slog.Logger     // slog.Default()
	Now    func() time.Time // time.Now; the leader stamps changes with it

	// Raft's clock. Heartbeat is how long a follower waits for its leader, and
	// so about half of what a failover takes. Followers are told of a commit at
	// once (internal/peer/pipelines); CommitTimeout is how late they learn it where that fails.
	Heartbeat     time.Duration // 500 ms
	Election      time.Duration // Heartbeat
	LeaderLease   time.Duration // Heartbeat
	CommitTimeout time.Duration // 20 ms

	// RaftLog says where raft's log is: RaftLogBolt, the default, or
	// RaftLogWAL. A start with another value than before moves the log over.
	RaftLog string

	// Raft's log. A marker costs one small transaction, so it is set often:
	// trimming stays small, and a restart reads little.
	MarkerEvery   time.Duration // between checks whether to set one, 2 s
	MarkerEntries uint64        // entries since the last one that make it worth it, 256
	TrailingLogs  uint64        // entries kept behind the marker for slow followers, 2,048

	// ProposeTimeout bounds Propose where its context has no deadline: 10 s.
	ProposeTimeout time.Duration
	// MaxClockOffset is how far a server's clock may be from the one that the
	// servers agree on, before it neither takes nor keeps the leadership while
	// another can, and stamps nothing by it: 3 s. NTP keeps clocks within
	// milliseconds, and within a second where it is bad; more than that is a clock
	// that nobody keeps. Change ids may be a minute ahead.
	MaxClockOffset time.Duration
	// MaxClockJump is how far the wall clock may run ahead of the monotonic one
	// before a leader that has no other to ask refuses to stamp changes with it: 5 min.
	MaxClockJump time.Duration

	// DedupeAge and DedupeCount bound the window of change ids: 1 h and
	// 200,000. They decide what is refused, so they must be the same on each
	// server of a cluster.
	DedupeAge   time.Duration
	DedupeCount int

	RingEntries int // encoded entries kept in memory for readers, at least: 65,536
	RingBytes   int // or this many bytes, 64 MiB

	// PersistDelay is how long applied entries may wait for the transaction
	// that takes them to changes.db: 250 ms; PersistEvents is how many do not
	// wait: 16,384. Few large transactions write fewer pages, and leave the disk
	// to raft's log. MaxLagEvents is how far it may fall behind before Propose
	// answers ErrOverloaded: 262,144; MaxLagBytes the same in bytes: 256 MiB.
	PersistDelay  time.Duration
	PersistEvents int
	MaxLagEvents  int
	MaxLagBytes   int

	// SweepEvents is how many events may pass before the object rows of
	// changes.db follow them: 524,288, which a start folds in about a
	// second, and among which neighbours share pages. SweepDelay is how long
	// fewer may wait while few come: 1 min.
	SweepEvents int
	SweepDelay  time.Duration

	// CompareEvery is how often this server compares its state with those of
	// the others: 5 s.
	CompareEvery time.Duration

	// UpkeepEvery is how often retention and checkpoints are looked after: 1
	// min. CheckpointEvents is how many entries lie between two checkpoints at
	// least: 250,000, which replay in less than a second.
	UpkeepEvery      time.Duration
	CheckpointEvents int

	// DiskStall is how long an operation on disk may be under way before this server
	// gives up leadership and readiness for as long as it lasts: two heartbeats, at
	// least 1 s; for a transaction of changes.db four times that. DiskPatience is
	// when the process ends: 1 min, twice what Linux gives a command to a disk before
	// it tries that again or fails it (30 s, for SCSI and NVMe alike).
	DiskStall    time.Duration
	DiskPatience time.Duration

	// DiskLowWater is how many bytes the data folder must have room for, the free pages
	// of changes.db included, lest what grows be refused: 1 GiB, a tenth of the file
	// system if that is less (room.go says why). A quarter of it is the reserve, below
	// which this server writes nothing that could fail half-way.
	DiskLowWater int64

	// FeatureSettle is how long every server must have known a higher feature
	// version before the leader raises the cluster's: 10 min. Until then an
	// upgrade can be taken back.
	FeatureSettle time.Duration

	// Budgets bound what compute nodes and programs without a certificate may
	// write a second: those of budget.Table.
	Budgets budget.Set

	// MapBytes is the address space reserved for changes.db, which must be
	// more than the file ever grows to, else a long read stops the writer:
	// 32 GiB, twice what Retention.Bytes keeps.
	MapBytes int

	sweepRows, sweepPart int // bounds of a sweep, if not 0; tests set them

	features uint32 // the highest feature version that this program knows; tests play others
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

// withDefaults returns c with every zero field set, or says what is wrong with it.
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
	or(&c.RaftLog, RaftLogBolt)
	if c.RaftLog != RaftLogBolt && c.RaftLog != RaftLogWAL {
		return c, fmt.Errorf("raftstore: raft log %q: want %s or %s", c.RaftLog, RaftLogBolt, RaftLogWAL)
	}
	or(&c.CompareEvery, 5*time.Second)
	or(&c.UpkeepEvery, time.Minute)
	or(&c.FeatureSettle, 10*time.Minute)
	or(&c.CheckpointEvents, 250_000)
	or(&c.DiskStall, max(2*c.Heartbeat, stallLeast))
	or(&c.DiskPatience, time.Minute)
	or(&c.MapBytes, 32<<30)
	or(&c.features, log.FeatureVersion)
	if c.DiskLowWater < 0 || c.DiskPatience < c.DiskStall {
		return c, fmt.Errorf("raftstore: low water of %d bytes, disk patience %v: want a number of bytes, and at least %v", c.DiskLowWater, c.DiskPatience, c.DiskStall)
	}
	if c.LeaderLease > c.Heartbeat || c.Election < c.Heartbeat {
		return c, fmt.Errorf("raftstore: lease %v, heartbeat %v, election %v: want them in this order, none above the next", c.LeaderLease, c.Heartbeat, c.Election)
	}
	return c, nil
}

// checkStart refuses flags that say two ways of coming into being.
func (c Config) checkStart() error {
	ways := 0
	for _, given := range []bool{c.Bootstrap, len(c.InitialMembers) > 0, len(c.Join) > 0} {
		if given {
			ways++
		}
	}
	if ways > 1 {
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
