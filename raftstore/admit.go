package raftstore

import (
	"github.com/hashicorp/raft"

	"rutter/log"
)

// grows reports whether a change adds to the state: all but deletes.
func grows(c *log.Change) bool {
	for i := range c.Ops {
		if c.Ops[i].Action != log.Delete {
			return true
		}
	}
	return false
}

// roomFor says why the leader does not take a change, or nil.
func (d *diskWatch) roomFor(c *log.Change) error {
	err := errorIn(&d.room.log)
	if err == nil {
		err = errorIn(&d.room.file)
	}
	if err == nil && grows(c) {
		err = d.store.NoRoom()
	}
	if err != nil {
		d.room.refused.Add(1)
	}
	return err
}

// lagLimit is how many times Config.MaxLagEvents or MaxLagBytes a follower may be
// behind before it takes no more: what it takes, it must keep in memory until its
// changes.db has it. The leader sends it again.
const lagLimit = 2

// behindOthers says that this server's changes.db is too far behind to be ready, or
// nil. A leader refuses writes instead, and gives the leadership away (checkDisk).
func (d *diskWatch) behindOthers() error {
	if d.store.lead.leading() {
		return nil
	}
	return d.store.persister.Lagging(1)
}

// admit says why entries are not stored now, or nil; nothing is written then. Raft
// tells the leader so, which sends them again; a leader that cannot store its own
// entry is none any more.
//
// What is no command is little, and keeps the cluster together: it may use what is
// kept of the reserve.
func (d *diskWatch) admit(entries []*raft.Log) error {
	if err := errorIn(&d.room.last); err != nil {
		return err
	}
	commands := false
	for _, entry := range entries {
		commands = commands || entry.Type == raft.LogCommand
	}
	if !commands || d.store.appends() {
		return nil // a leader's commands were let in by roomFor, and are few
	}
	if err := errorIn(&d.room.log); err != nil {
		return err
	}
	if err := errorIn(&d.room.file); err != nil {
		return err
	}
	return d.store.persister.Lagging(lagLimit)
}
