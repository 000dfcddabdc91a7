// Package history says what happens to a simulated cluster: how large it is, and which faults
// come when. A history is made from one seed, is kept as a file, and can be replayed from it.
// It knows nothing of the servers and agents to which it happens (package world).
//
// Generate makes a history, Validate says what is wrong with one, Read and Write are its file,
// and Shrink looks for the smallest part of it that fails in the same way. Nothing here runs
// anything, has a clock or a goroutine: the same seed gives the same history until
// Generate is changed.
package history

import "time"

// History is one run of the simulator. Everything that the simulator decides comes from it.
type History struct {
	Seed    uint64 `json:"seed"`
	Servers int    `json:"servers"` // 3 to 5, named s1, s2, ...
	Agents  int    `json:"agents"`  // 5 to 50, named cn1, cn2, ...
	// Replicas is how many servers without a vote there are beside them, 0 to 2, named n1 and n2.
	// They are of a zone, and every second compute node is of it too.
	Replicas int           `json:"replicas,omitempty"`
	Clients  int           `json:"clients"`  // writers and readers, named c1, c2, ...
	Duration time.Duration `json:"duration"` // simulated; faults end within it
	TLS      bool          `json:"tls"`      // with certificates, which expire and are rotated
	WAL      bool          `json:"wal"`      // raft's log is raft-wal instead of raft-boltdb
	// Busy: clients write and read three times as often.
	Busy bool `json:"busy,omitempty"`
	// Window is how many change ids servers remember, for WindowAge; 0: as many and as long as
	// servers do by default, which no history reaches. Clients then send old changes again.
	Window int `json:"window,omitempty"`
	// VMs is how many VMs, which no client changes, the first compute node has at the beginning on two
	// networks, so that two scopes are long.
	VMs    int     `json:"vms,omitempty"`
	Faults []Fault `json:"faults"` // in the order of At
}

// WindowAge is how long servers remember change ids in a history with a Window.
const WindowAge = 10 * time.Second

// Fault is one thing that goes wrong, or that an operator does.
type Fault struct {
	At   time.Duration `json:"at"`            // since the cluster served first
	For  time.Duration `json:"for,omitempty"` // until it is over; 0: it is an instant
	Kind Kind          `json:"kind"`
	On   string        `json:"on"`             // server, replica, agent or client
	To   string        `json:"to,omitempty"`   // the other end, of faults of the network
	N    int64         `json:"n,omitempty"`    // what Kind says
	Seed uint64        `json:"seed,omitempty"` // of what the fault draws itself
}

// Kind is a kind of fault.
type Kind string

// Faults of processes.
const (
	Kill  Kind = "kill"  // the process ends at once and starts again after For; the disk has what the kernel had
	Power Kind = "power" // the power fails at the N-th operation on the disk after At; of what was not synced, some is lost; it starts again after For
	Pause Kind = "pause" // the process does nothing for For: what comes and goes waits, and so does its disk
	Stop  Kind = "stop"  // a clean stop, and a start after For
	Older Kind = "older" // it stops, and starts as a program that knows feature version N only, for For
)

// Faults of the network. Without To they are between On and all others.
const (
	Cut      Kind = "cut"      // nothing goes either way
	OneWay   Kind = "oneway"   // nothing goes from On to To
	Slow     Kind = "slow"     // N milliseconds of delay each way
	Lossy    Kind = "lossy"    // N percent of the segments are sent again, after TCP's timeout, in order
	Reset    Kind = "reset"    // connections that exist are reset
	HalfOpen Kind = "halfopen" // connections that exist carry nothing more, and neither end is told
)

// Faults of a disk.
const (
	Hang     Kind = "hang"     // operations that begin wait until For is over
	SlowSync Kind = "slowsync" // each operation takes N milliseconds
	Full     Kind = "full"     // N bytes can still be written
	Rot      Kind = "rot"      // the process is killed; N bits of its files are flipped before the start
	Lose     Kind = "lose"     // the process is killed, and starts with an empty folder: of an agent a lost cache
	Old      Kind = "old"      // an agent is killed, and starts with the cache that it had at the beginning
)

// Faults of clocks.
const (
	Skew  Kind = "skew"  // the wall clock is N milliseconds off for For
	Drift Kind = "drift" // the wall clock gains N parts per million for For
)

// What operators do.
const (
	Transfer Kind = "transfer" // the leadership is given to On
	Remove   Kind = "remove"   // On leaves the cluster, and joins again with an empty folder after For
	Promote  Kind = "promote"  // the replica On is given a vote; after For it leaves, and joins again as a replica with an empty folder
	Snapshot Kind = "snapshot" // a backup is taken through On
	Restore  Kind = "restore"  // the cluster is restored from the last backup
	Retain   Kind = "retain"   // the log keeps N entries
	Rotate   Kind = "rotate"   // the authority is rotated
	Spoil    Kind = "spoil"    // a file of On's folder of certificates is damaged: N says which, and how; after For an operator issues others if On cannot use the folder
	Revoke   Kind = "revoke"   // the certificate of On is revoked; it gets another after For
)

// What compute nodes suffer and do.
const (
	Meddle Kind = "meddle" // another program changes N objects in the kernel of On
	Refuse Kind = "refuse" // the kernel of On refuses N of a hundred operations for For
	Lie    Kind = "lie"    // the agent of On reports, and asks for, what is not its own
)
