package raftlog

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// ErrReplaced is the error of Restored when it has removed the log.
var ErrReplaced = errors.New("raft's log contradicted the leader's snapshot, which has taken its place: the log was removed, start the server again")

// Restored must be called when an image that ends with the entry index of term has become
// the state, before raft goes on. Entries that follow it stay: this server may have
// acknowledged them. If the log has another entry in its place, then all of the log is
// another leader's that was never committed: it is removed, the error is ErrReplaced, and
// the server must end, because raft still assumes that it has these entries.
func (l *Log) Restored(index, term uint64) error {
	first, err := l.FirstIndex()
	if err != nil {
		return l.note("read the begin", err)
	}
	last, err := l.LastIndex()
	if err != nil || last < index || first > index { // what begins later follows this server's own marker
		return l.note("read the end", err)
	}
	var entry raft.Log
	if err := l.Log.GetLog(index, &entry); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return l.note(fmt.Sprintf("read entry %d", index), err)
	}
	if entry.Term == term {
		return nil
	}
	if err := l.Log.DeleteRange(first, last); err != nil {
		return l.note("remove the log", err)
	}
	return fmt.Errorf("%s: %w", l.path, ErrReplaced)
}
