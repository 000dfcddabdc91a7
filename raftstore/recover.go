package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/raftlog"
	"rutter/raftstore/offline"

	"github.com/hashicorp/raft"
)

// Recover turns the data folder of a surviving server into a cluster of one with a new
// identity. No server may have the folder open. It is for a cluster that lost its quorum
// for good. Everything that this server has is kept, also entries of raft's log that the
// cluster had not committed yet. Entries that the other servers acknowledged and that
// never reached this server are lost, and it cannot be known here what they were.
//
// raft's own RecoverCluster is not used, because it would trust the index of a snapshot
// that is not a copy (SAFETY S1). Instead the entries are applied as at a start. Then one
// transaction of changes.db writes the new identity, the new configuration and a marker
// at the end of raft's log. From then on the marker counts: the entries in raft.db are
// behind it, and are removed afterwards.
//
// The identity is new although the log is continued. If the lost servers come back, they
// belong to another cluster and are refused on each connection. Cursors beyond the
// remaining log begin anew (SAFETY S8).
func Recover(r offline.Rebirth, logger *slog.Logger) (*offline.Content, error) {
	c, err := offline.InspectFolder(r.Dir, r.Progress)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(c.Members, func(m MemberStatus) bool { return m.ID == r.Member.ID })
	if at < 0 {
		return nil, fmt.Errorf("raftstore: %s is of a cluster with the members %s, and %q is not among them: name the server that the folder belonged to", r.Dir, names(c.Members), r.Member.ID)
	}
	if r.Member.Address == "" {
		r.Member.Address = c.Members[at].Address
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	if c.Cluster.IsZero() {
		return nil, fmt.Errorf("raftstore: the cluster of %s was never founded: nothing is lost if it begins anew", r.Dir)
	}
	if r.DryRun {
		return c, nil
	}
	if err := takeOver(&r, c, logger); err != nil {
		return nil, err
	}
	return c, nil
}

func names(members []MemberStatus) string {
	text := ""
	for i, m := range members {
		if i > 0 {
			text += ", "
		}
		text += m.ID
	}
	return text
}

// takeOver applies the entries of raft's log beyond changes.db, and gives the result to the
// new cluster.
func takeOver(r *offline.Rebirth, c *offline.Content, logger *slog.Logger) (err error) {
	cfg, err := Config{ID: r.Member.ID, Dir: r.Dir, Logger: logger}.withDefaults()
	if err != nil {
		return err
	}
	s := newStore(cfg)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.openFiles(); err != nil {
		return err
	}
	index, term, err := s.applier.applyAll(r.Progress)
	if err != nil {
		return err
	}
	h := s.files.Acquire()
	if err := errors.Join(r.Found(h.DB, c, index, term), s.files.Release(h)); err != nil {
		return err
	}
	c.Waiting, c.LastIndex, c.LastTerm = 0, 0, 0
	first, err := s.raftLog.FirstIndex()
	if err == nil && first > 0 {
		err = s.raftLog.DeleteRange(first, index)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", filepath.Join(r.Dir, raftlog.FileName), ErrDisk, err)
	}
	return nil
}

// flushEvery is how many raft entries a recovery applies between two transactions. It has
// no running persister.
const flushEvery = 512

// applyAll applies every entry of raft's log, committed or not, writes the result, and
// returns index and term of the last entry.
func (a *applier) applyAll(progress changesdb.Progress) (index, term uint64, err error) {
	index, term = a.head.Applied, a.head.Term
	last, err := a.store.raftLog.LastIndex()
	if err != nil {
		return 0, 0, err
	}
	for i := index + 1; i <= last; i++ {
		var entry raft.Log
		if err := a.store.raftLog.GetLog(i, &entry); err != nil {
			return 0, 0, err
		}
		if entry.Type == raft.LogCommand || entry.Type == raft.LogConfiguration {
			a.applyEntry(&entry)
		}
		if err := a.store.failure(); err != nil {
			return 0, 0, err
		}
		if i%flushEvery == 0 {
			if err := a.store.persister.Flush(); err != nil {
				return 0, 0, err
			}
			progress.Report(int64(i), int64(last))
		}
		index, term = i, entry.Term
	}
	return index, term, a.store.persister.Flush()
}
