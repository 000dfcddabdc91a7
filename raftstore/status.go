package raftstore

import "rutter/log"

// Status is what a server says of itself, at one moment.
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
	Durable   log.Seq        `json:"durable"` // in changes.db, synced
	Commit    uint64         `json:"commit_index"`
	Applied   uint64         `json:"applied_index"` // of raft, by this server's state
	LastIndex uint64         `json:"last_index"`    // of raft's log
	Marker    uint64         `json:"marker_index"`  // raft's log is trimmed behind it

	Feature    uint32 `json:"feature_version"`
	RaftBytes  int64  `json:"raft_log_bytes"`   // size of the file
	DBBytes    int64  `json:"changes_db_bytes"` // size of the file
	LagEvents  int    `json:"persister_lag_events"`
	LagBytes   int    `json:"persister_lag_bytes"`
	RingFirst  log.Seq `json:"ring_first"`
	Queued     int    `json:"proposals_queued"`
	Proposals  uint64 `json:"proposals_total"` // taken by this server as the leader
	Batches    uint64 `json:"batches_total"`
	Forwarded  uint64 `json:"forwarded_total"` // sent on to the leader
	Overloaded uint64 `json:"overloaded_total"`
	Duplicates uint64 `json:"duplicates_total"` // changes answered from the window of ids
	Refused    uint64 `json:"refused_total"`
	Dedupe     int    `json:"dedupe_window"`
	Persisted  uint64 `json:"persister_transactions_total"`
	Snapshots  uint64 `json:"snapshots_sent_total"`
	Restores   uint64 `json:"snapshots_restored_total"`
}

// MemberStatus is a member as raft's configuration has it.
type MemberStatus struct {
	Member
	Voter  bool `json:"voter"`
	Leader bool `json:"leader"`
}
