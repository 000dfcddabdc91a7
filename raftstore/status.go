package raftstore

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
)

// Status is what a server reports about itself, at one moment.
type Status struct {
	ID        string         `json:"id"`
	Address   string         `json:"address"`
	State     string         `json:"state"` // Follower, Candidate, Leader, Shutdown; Stopped before Run
	Term      uint64         `json:"term"`
	LeaderID  string         `json:"leader_id"`
	Leader    string         `json:"leader"` // the leader's peer address, "" if unknown
	Members   []MemberStatus `json:"members"`
	Ready     bool           `json:"ready"`
	NotReady  string         `json:"not_ready,omitempty"` // why
	Head      log.Cursor     `json:"head"`
	Time      log.Time       `json:"time"`
	Floor     log.Seq        `json:"floor"`
	Diverged  string         `json:"diverged,omitempty"`   // why nothing is served
	Compared  []Compared     `json:"compared,omitempty"`   // results of the last comparison with the others
	Rebuild   bool           `json:"rebuilding,omitempty"` // the state is being replaced by another server's
	Retention Retention      `json:"retention"`
	Durable   log.Seq        `json:"durable"` // in changes.db, synced
	Age       time.Duration  `json:"age_ns"`  // since the last contact with a leader
	Commit    uint64         `json:"commit_index"`
	Applied   uint64         `json:"applied_index"` // raft index that this server's state has reached
	LastIndex uint64         `json:"last_index"`    // of raft's log
	Marker    uint64         `json:"marker_index"`  // raft's log is trimmed behind it

	Clock Clock `json:"clock"`

	// Replica: this server is a member without a vote. Lag is how far it is behind the
	// leader, MaxLag the bound, Lagging why it is not asked, and Lags how often that
	// began; all zero on a server with a vote.
	Replica bool          `json:"replica"`
	Lag     time.Duration `json:"replica_lag_ns"`
	MaxLag  time.Duration `json:"replica_max_lag_ns"`
	Lagging string        `json:"replica_lagging,omitempty"`
	Lags    uint64        `json:"replica_lags_total"`

	Feature    uint32  `json:"feature_version"`
	Knows      uint32  `json:"feature_known"`    // the highest that this program knows
	Agrees     uint32  `json:"feature_agreed"`   // the highest that this server agrees to now
	Program    string  `json:"program"`          // version
	RaftLog    string  `json:"raft_log"`         // boltdb or wal
	RaftBytes  int64   `json:"raft_log_bytes"`   // size of its files
	DBBytes    int64   `json:"changes_db_bytes"` // size of the file
	DiskFree   int64   `json:"disk_free_bytes"`  // of the data folder's file system, free for this process
	DiskBytes  int64   `json:"disk_bytes"`       // size of that file system
	LagEvents  int     `json:"persister_lag_events"`
	LagBytes   int     `json:"persister_lag_bytes"`
	RingFirst  log.Seq `json:"ring_first"`
	Queued     int     `json:"proposals_queued"`
	Proposals  uint64  `json:"proposals_total"` // taken by this server as the leader
	Batches    uint64  `json:"batches_total"`
	Forwarded  uint64  `json:"forwarded_total"` // forwarded to the leader
	Overloaded uint64  `json:"overloaded_total"`
	Duplicates uint64  `json:"duplicates_total"` // changes answered from the window of ids
	Refused    uint64  `json:"refused_total"`
	Undecided  uint64  `json:"undecided_total"`     // refused because this program failed to decide them
	Unreadable uint64  `json:"unreadable_total"`    // refused because their bytes in the log do not decode
	Early      uint64  `json:"refused_early_total"` // refused by this server before they were proposed
	NoPlaces   uint64  `json:"peer_refused_total"`  // connections of the peer port, beyond its limit
	Probes     uint64  `json:"peer_probes_total"`   // of peers that answered nothing for a while
	Silent     uint64  `json:"peer_silent_total"`   // connections given up after such a probe
	Persisted  uint64  `json:"persister_transactions_total"`
	Snapshots  uint64  `json:"snapshots_sent_total"`
	Restores   uint64  `json:"snapshots_restored_total"`

	Comparisons uint64 `json:"comparisons_total"` // with the other servers' states
	Differences uint64 `json:"differences_total"` // times that this server stopped serving

	Room       Room          `json:"room"`
	NoRoom     string        `json:"no_room,omitempty"`      // why the cluster refuses growth
	NoRooms    uint64        `json:"refused_for_room_total"` // changes that this server, as the leader, refused for that
	DiskOp     time.Duration `json:"disk_operation_age_ns"`  // of the longest operation on disk under way
	DiskStalls uint64        `json:"disk_stalls_total"`      // times that the disk began to hang
}

// Alarms returns what an operator has to act on: alarms of the whole cluster, and of this
// server.
func (st *Status) Alarms() (alarms []string) {
	if st.NoRoom != "" {
		alarms = append(alarms, st.NoRoom)
	}
	switch {
	case st.Room.Full:
		alarms = append(alarms, fmt.Sprintf("%s has no room on disk: %d bytes free; it takes no entries until there is more", st.ID, st.Room.Free))
	case st.Room.Low:
		alarms = append(alarms, fmt.Sprintf("%s has little room on disk: %d bytes, and the low water is %d", st.ID, st.Room.Usable, st.Room.LowWater))
	}
	return alarms
}

// ID returns the server's name in the cluster.
func (s *Store) ID() string { return s.cfg.ID }

// Status returns the present status of the server.
func (s *Store) Status() Status {
	st := Status{ID: s.cfg.ID, Address: s.address, State: "Stopped"}
	s.mu.RLock()
	h := s.head
	st.Head, st.Time, st.Floor, st.Feature = h.Cursor(), h.Time, h.Floor, h.Feature
	st.Knows, st.Agrees, st.Program = s.cfg.Features, s.keeper.agrees(), s.cfg.Program
	st.Retention, st.RaftLog = h.Retention.OrDefault(), s.cfg.RaftLog
	st.Applied, st.RingFirst = h.Applied, s.ring.First
	s.mu.RUnlock()
	p := s.persister.Progress()
	st.Durable, st.Marker = p.Seq, p.Marker
	st.LagEvents, st.LagBytes, st.Persisted = p.LagEvents, p.LagBytes, p.Transactions
	c := &s.counters
	st.Proposals, st.Batches, st.Forwarded, st.Overloaded = c.proposals.Load(), c.batches.Load(), c.forwarded.Load(), c.overloaded.Load()
	st.Duplicates, st.Refused, st.Snapshots, st.Restores = c.duplicates.Load(), c.refused.Load(), c.snapshots.Load(), c.restores.Load()
	st.Undecided, st.Unreadable, st.Early = c.undecided.Load(), c.unreadable.Load(), c.early.Load()
	st.NoPlaces = s.tasks.Refused()
	if peers := s.endpoint.peers.Load(); peers != nil {
		st.Probes, st.Silent = peers.Probes()
	}
	st.Queued, st.Age = s.proposer.queue.Length(), s.Age()
	st.Room, st.NoRooms = s.Room(), s.disks.space.refused.Load()
	st.DiskFree, st.DiskBytes = st.Room.Free, s.disks.space.size.Load()
	if err := s.NoRoom(); err != nil {
		st.NoRoom = err.Error()
	}
	st.RaftBytes, st.DBBytes = s.raftLog.Bytes(), disk.FileSize(filepath.Join(s.cfg.Dir, changesdb.Name))
	st.DiskOp, st.DiskStalls = time.Duration(s.disks.stall.age.Load()), s.disks.stall.count.Load()
	st.Compared, st.Rebuild = s.comparison.compared(), s.applier.rebuilding()
	st.Comparisons, st.Differences = c.comparisons.Load(), c.differences.Load()
	st.Clock = s.Clock()
	if err := s.Serving(); err != nil {
		st.Diverged = err.Error()
	}
	if err := s.Ready(); err != nil {
		st.NotReady = err.Error()
	} else {
		st.Ready = true
	}
	r := s.raft.Load()
	if r == nil || phase(s.lead.phase.Load()) != running {
		return st
	}
	address, id := r.LeaderWithID()
	st.State, st.Term, st.LeaderID, st.Leader = r.State().String(), r.CurrentTerm(), string(id), string(address)
	st.Commit, st.LastIndex = s.raftLog.Bound(r.CommitIndex()), r.LastIndex()
	if st.Replica = s.replica.follows(r); st.Replica {
		lagging := s.replica.meter.Status()
		st.Lag, st.MaxLag, st.Lags = lagging.Lag, s.replica.meter.Bound(), lagging.Times
		if err := s.Lagging(); err != nil {
			st.Lagging = err.Error()
		}
	}
	for _, m := range r.GetConfiguration().Configuration().Servers {
		st.Members = append(st.Members, MemberStatus{Member: Member{ID: string(m.ID), Address: string(m.Address)}, Voter: m.Suffrage == raft.Voter, Leader: m.ID == id})
	}
	return st
}

// Unapplied returns how many committed entries of raft wait for this server's state to take
// them. On a server that works there are few, and not the same ones for long.
func (s *Store) Unapplied() uint64 {
	r := s.raft.Load()
	if r == nil {
		return 0
	}
	waiting, _ := strconv.ParseUint(r.Stats()["fsm_pending"], 10, 64) // raft has it as text only
	return waiting
}

// Age returns the time since this server's last contact with a leader: its state is at
// most that old. If there was no contact since the start, it is the time since the start.
// On a leader it is 0. A leader that was just cut off may return 0 for up to
// Config.LeaderLease; only Consistent proves that the state is current.
func (s *Store) Age() time.Duration {
	r := s.raft.Load()
	if r == nil {
		return time.Since(s.opened)
	}
	if r.State() == raft.Leader {
		return 0
	}
	contact := r.LastContact()
	if contact.IsZero() {
		contact = s.opened
	}
	return max(0, time.Since(contact))
}
