package offline

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/window"
	"rutter/raftstore/skipped"
)

// Skips returns the skips in a data folder that no server has open.
func Skips(dir string) ([]skipped.Planted, error) {
	var k skipped.List
	err := withChanges(dir, true, func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		k = h.Skips
		return err
	})
	return k, err
}

// withChanges runs fn in a transaction of the changes.db of a folder that no server has
// open; if reads is false, a synced write transaction.
func withChanges(dir string, reads bool, fn func(tx *bbolt.Tx) error) error {
	path := filepath.Join(dir, changesdb.Name)
	if err := disk.CheckRegular(path); err != nil {
		return fmt.Errorf("%s is no server's data folder: %w", dir, err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: boltfile.LockWait, ReadOnly: reads, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return fmt.Errorf("%s: %w (does a server have it open? stop it first)", path, err)
	}
	err = boltfile.Guard(func() error {
		if reads {
			return db.View(fn)
		}
		return db.Update(fn)
	})
	return errors.Join(err, db.Close())
}

// NewSkip makes the skip of an entry that waits in a stopped server's folder: of the
// whole entry, or of some of its changes. It plants nothing. Errors: Err.
func NewSkip(dir string, index uint64, changes []log.UUID, actor, reason string, now time.Time) (skipped.Skip, error) {
	k := skipped.Skip{Index: index, ID: window.NewID(now), Actor: actor, Reason: reason}
	k.Planted = log.TimeOf(now.Truncate(time.Millisecond)) // with the precision of its text
	slices.SortFunc(changes, func(a, b log.UUID) int { return slices.Compare(a[:], b[:]) })
	k.Changes = slices.Compact(changes)
	view, err := ViewEntry(dir, index)
	if err != nil {
		return k, err
	}
	k.Cluster, k.Entry = view.Cluster, view.Entry
	if err := view.skippable(); err != nil {
		return k, err
	}
	for _, id := range k.Changes {
		if !slices.ContainsFunc(view.Changes, func(c ChangeView) bool { return c.ID == id.String() }) {
			return k, fmt.Errorf("%w: the entry at raft index %d has no change %s", skipped.Err, index, id)
		}
	}
	return k, k.Check()
}

// PlantSkip plants a skip in the folder of a stopped server. It first checks that the
// folder is of the same cluster, has not applied the entry, and has the same entry. A log
// that ends before the entry will get it from another server; then missing is true.
// Planting the same skip again has no effect. Errors: Err.
func PlantSkip(dir string, k skipped.Skip) (missing bool, err error) {
	if err := k.Check(); err != nil {
		return false, err
	}
	planted, err := Skips(dir)
	if err != nil {
		return false, err
	}
	if at := slices.IndexFunc(planted, func(p skipped.Planted) bool { return p.Index == k.Index }); at >= 0 {
		if planted[at].Sum() == k.Sum() {
			return false, nil
		}
		return false, fmt.Errorf("%w: another skip of raft index %d is %s here: take it back first, with --undo %d", skipped.Err, k.Index, planted[at].State, k.Index)
	}
	if len(planted) >= skipped.Most {
		return false, fmt.Errorf("%w: %d skips are planted, the most there can be", skipped.Err, len(planted))
	}
	view, err := ViewEntry(dir, k.Index)
	switch {
	case errors.Is(err, errBeyondLog):
		missing, err = true, nil
	case err != nil:
		return false, err
	case view.Entry != k.Entry:
		return false, fmt.Errorf("%w: at raft index %d this folder has another entry, of term %d: %s, and the skip is of %s; the end of its log is not the cluster's: let this server join again with an empty folder", skipped.Err, k.Index, view.Term, view.Entry, k.Entry)
	default:
		err = view.skippable()
	}
	if err != nil {
		return false, err
	}
	return missing, withChanges(dir, false, func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		switch {
		case err != nil:
			return err
		case h.Cluster != k.Cluster:
			return fmt.Errorf("%w: %s is of cluster %s, and the skip is of %s", skipped.Err, dir, h.Cluster, k.Cluster)
		case h.Applied >= k.Index:
			return fmt.Errorf("%w: this server has applied raft index %d already, and is at %d", skipped.Err, k.Index, h.Applied)
		}
		return changesdb.PutSkips(tx.Bucket(changesdb.BucketMeta), h.Skips.With(k))
	})
}

// TakeBackSkip removes a skip whose entry the stopped server has not yet reached. Errors:
// Err.
func TakeBackSkip(dir string, index uint64) error {
	return withChanges(dir, false, func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		if err != nil {
			return err
		}
		at := h.Skips.PendingAt(index)
		if at < 0 {
			return fmt.Errorf("%w: no skip of raft index %d waits here; what was passed is part of the log, and stays", skipped.Err, index)
		}
		return changesdb.PutSkips(tx.Bucket(changesdb.BucketMeta), slices.Delete(slices.Clone(h.Skips), at, at+1))
	})
}

// skippable returns an error for entries of raft itself, and for applied entries.
func (v *EntryView) skippable() error {
	switch {
	case v.Applied:
		return fmt.Errorf("%w: this server has applied raft index %d already, and is at %d: what is in the log is undone by another change", skipped.Err, v.Index, v.AppliedIndex)
	case v.raftType != raft.LogCommand:
		return fmt.Errorf("%w: raft index %d is %s, which raft itself acts on: apply does not stop there", skipped.Err, v.Index, v.Command)
	case v.Cluster.IsZero() || v.command == command.Genesis:
		return fmt.Errorf("%w: raft index %d founds the cluster: nothing is lost if it begins anew with empty folders", skipped.Err, v.Index)
	}
	return nil
}
