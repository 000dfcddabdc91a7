package history

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog"
	"rutter/raftstore/internal/window"
)

// FolderWriter makes the changes.db of a new data folder from the entries of a log. It
// keeps their bytes and chain hashes. The file is the same, byte for byte, for the same
// entries and start. OpenFolder can read the folder, and offline.BackupFolder and
// offline.Restore can make a server of it. Nothing of it is durable, or even readable,
// before Close. It is not safe for concurrent use.
type FolderWriter struct {
	db         *bbolt.DB
	path       string
	head       changesdb.Head
	state      *projections.State
	slots      []changesdb.Slot
	rows       []folderRow
	bytes      int     // of both
	checkpoint log.Seq // of the newest
	every      log.Seq // entries between two checkpoints at least
	err        error
}

// folderRow is an object row to be written; a nil row deletes it.
type folderRow struct {
	changesdb.ObjectKey
	row []byte
}

// FolderStart is where the log of a new folder begins.
type FolderStart struct {
	Cluster log.UUID
	Feature uint32 // 0 is this program's
	// Floor, Hash and State are the seq, chain hash and state before the first entry, for
	// a log whose first entries are not kept. The writer owns State from then on; nil
	// means the state before any entry.
	Floor log.Seq
	Hash  log.Hash
	State *projections.State
}

// defaultCheckpointEvents is the default of Config.CheckpointEvents.
const defaultCheckpointEvents = 250_000

// writeFill is the size in bytes at which the writer ends a transaction.
const writeFill = 64 << 20

// CreateFolder makes a data folder, which must have no changes.db yet.
func CreateFolder(dir string, start FolderStart) (*FolderWriter, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, name := range [...]string{changesdb.Name, raftlog.FileName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil, fmt.Errorf("%s has a %s already: name a new folder, or remove that one", dir, name)
		}
	}
	w := &FolderWriter{path: filepath.Join(dir, changesdb.Name), state: start.State, every: defaultCheckpointEvents}
	if w.state == nil {
		w.state = projections.NewState()
	}
	w.head = changesdb.Head{
		Seq: start.Floor, Hash: start.Hash, Floor: start.Floor, FloorHash: start.Hash,
		Cluster: start.Cluster, Feature: start.Feature, Time: w.state.Time(), Applied: 1, Term: 1,
	}
	w.head.Feature = cmp.Or(start.Feature, log.FeatureVersion)
	var err error
	if w.db, err = bbolt.Open(w.path, 0o600, &bbolt.Options{
		Timeout: boltfile.LockWait, NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistArrayType,
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", w.path, err)
	}
	err = w.update(func(tx *bbolt.Tx) error {
		for _, name := range [...][]byte{changesdb.BucketMeta, changesdb.BucketEvents, changesdb.BucketObjects, window.BucketChanges, changesdb.BucketCheckpoints, bucketIndex} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return w.putHead(tx.Bucket(changesdb.BucketMeta))
	})
	if err == nil && start.State != nil {
		err = w.startObjects()
	}
	if err != nil {
		return nil, errors.Join(err, w.db.Close())
	}
	return w, nil
}

// startObjects writes the objects of the state before the first entry, and their
// checkpoint.
func (w *FolderWriter) startObjects() error {
	encoder := log.NewEncoder()
	for kind := log.Kind(1); kind < serverNICs; kind++ {
		for r := range w.state.List(kind) {
			raw, err := encoder.Object(r.Object)
			if err != nil {
				return err
			}
			key := changesdb.ObjectKey{Kind: kind, ID: r.Object.ID()}
			if err := w.add(folderRow{key, changesdb.ObjectRow(kind, key.ID, r.Revision, r.Seq, raw[1:])}, len(raw)); err != nil {
				return err
			}
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.makeCheckpoint()
}

func (w *FolderWriter) add(row folderRow, size int) error {
	w.rows = append(w.rows, row)
	if w.bytes += size; w.bytes >= writeFill {
		return w.flush()
	}
	return nil
}

// State returns the fold of what was appended. The caller must not change it.
func (w *FolderWriter) State() *projections.State { return w.state }

// Head returns the position of the last entry.
func (w *FolderWriter) Head() log.Cursor { return w.head.Cursor() }

// Append adds the entry after the last one. It refuses an entry of another seq, one whose
// chain hash does not follow, and one whose event does not fit the state. If an entry has
// only the prefix of its hash, only that is compared.
func (w *FolderWriter) Append(e log.Entry) error {
	if w.err != nil {
		return w.err
	}
	if e.Seq != w.head.Seq+1 {
		return fmt.Errorf("entry %d after %d: %w", e.Seq, w.head.Seq, log.ErrCorrupt)
	}
	hash := w.head.Hash.Next(e.Seq, e.Bytes)
	if hash != e.Hash && (hash.Prefix() != e.Hash.Prefix() || e.Hash != prefixed(e.Hash.Prefix())) {
		return fmt.Errorf("entry %d: its chain hash is %s, and it says %s: %w", e.Seq, hash.Prefix(), e.Hash.Prefix(), log.ErrCorrupt)
	}
	own := bytes.Clone(e.Bytes)
	event, body, err := log.DecodeEventAndBody(own)
	if err != nil {
		return fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	if _, err := w.state.ApplyEncoded(e.Seq, event, body); err != nil {
		return err
	}
	row := folderRow{ObjectKey: changesdb.ObjectKey{Kind: event.Kind, ID: event.ID}}
	if event.Action != log.Delete {
		if body == nil {
			raw, err := log.NewEncoder().Object(event.Object)
			if err != nil {
				return fmt.Errorf("entry %d: %w", e.Seq, err)
			}
			body = raw[1:]
		}
		row.row = changesdb.ObjectRow(event.Kind, event.ID, event.Revision, e.Seq, body)
	}
	w.head.Seq, w.head.Hash, w.head.Time = e.Seq, hash, w.state.Time()
	w.slots = append(w.slots, changesdb.Slot{Entry: log.Entry{Seq: e.Seq, Hash: hash, Bytes: own}, More: event.More})
	if err := w.add(row, len(own)+len(row.row)); err != nil {
		return err
	}
	due := w.every
	if due >= defaultCheckpointEvents {
		due = max(due, log.Seq(w.state.Len()*changesdb.EntriesPerObject))
	}
	if event.More == 0 && e.Seq-max(w.checkpoint, w.head.Floor) >= due {
		return errors.Join(w.flush(), w.makeCheckpoint())
	}
	if e.Seq%SegmentEvents == 0 {
		return w.flush()
	}
	return nil
}

// prefixed returns a hash of which only the prefix is known.
func prefixed(p log.ChainPrefix) (h log.Hash) {
	copy(h[:], p[:])
	return h
}

// update runs one transaction. After a failed one, it runs no other.
func (w *FolderWriter) update(fn func(tx *bbolt.Tx) error) error {
	if w.err == nil {
		if err := w.db.Update(fn); err != nil {
			w.err = fmt.Errorf("%s: %w: %w", w.path, disk.ErrTrouble, err)
		}
	}
	return w.err
}

// flush writes what was gathered, and the index of a full segment. Each transaction
// writes one bucket, because bbolt orders the pages of several buckets at random, and the
// same entries must make the same file.
func (w *FolderWriter) flush() error {
	err := w.update(func(tx *bbolt.Tx) error {
		events := tx.Bucket(changesdb.BucketEvents)
		events.FillPercent = 1
		for i := range w.slots {
			key := changesdb.SeqKey(w.slots[i].Seq)
			if err := events.Put(key, changesdb.EventRow(key, &w.slots[i])); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = w.putRows()
	}
	clear(w.slots)
	clear(w.rows)
	w.slots, w.rows, w.bytes = w.slots[:0], w.rows[:0], 0
	if err == nil {
		err = w.update(func(tx *bbolt.Tx) error { return w.putHead(tx.Bucket(changesdb.BucketMeta)) })
	}
	if err != nil {
		return err
	}
	return w.update(func(tx *bbolt.Tx) error {
		key, b, err := nextBlock(tx, nil)
		if err != nil || b == nil {
			return err
		}
		return putBlock(tx, key, b)
	})
}

// putRows writes and deletes object rows, sorted; of each object only the last row.
func (w *FolderWriter) putRows() error {
	slices.SortStableFunc(w.rows, func(a, b folderRow) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
	})
	for left := w.rows; len(left) > 0; {
		n := 1
		for n < len(left) && left[n].Kind == left[0].Kind {
			n++
		}
		if err := w.update(func(tx *bbolt.Tx) error { return putRowsOf(tx, left[:n]) }); err != nil {
			return err
		}
		left = left[n:]
	}
	return nil
}

// putRowsOf writes the sorted rows of one kind.
func putRowsOf(tx *bbolt.Tx, rows []folderRow) error {
	bucket, err := tx.Bucket(changesdb.BucketObjects).CreateBucketIfNotExists([]byte(rows[0].Kind.String()))
	if err != nil {
		return err
	}
	for i, r := range rows {
		if i+1 < len(rows) && rows[i+1].ObjectKey == r.ObjectKey {
			continue // a later row of the object follows
		}
		if r.row == nil {
			err = bucket.Delete([]byte(r.ID))
		} else {
			err = bucket.Put([]byte(r.ID), r.row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// putHead writes the head with its sums. The object rows are those of this head.
func (w *FolderWriter) putHead(meta *bbolt.Bucket) error {
	w.head.Rows = w.head.Seq
	w.head.StateSum, w.head.Summed, w.head.Command = changesdb.StateSum(w.state), true, w.head.Applied
	return changesdb.PutHead(meta, &w.head)
}

// makeCheckpoint copies the object rows, which only this writer changes.
func (w *FolderWriter) makeCheckpoint() error {
	name := changesdb.SeqKey(w.head.Seq)
	var kinds [][]byte
	err := w.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(changesdb.BucketObjects).ForEachBucket(func(kind []byte) error {
			kinds = append(kinds, bytes.Clone(kind))
			return nil
		})
	})
	for _, kind := range kinds {
		for next, more := []byte(nil), true; more && err == nil; {
			err = w.update(func(tx *bbolt.Tx) error {
				to, err := tx.Bucket(changesdb.BucketCheckpoints).CreateBucketIfNotExists(name)
				if err == nil {
					to, err = to.CreateBucketIfNotExists(kind)
				}
				if err != nil {
					return err
				}
				next, err = copySome(to, tx.Bucket(changesdb.BucketObjects).Bucket(kind), next)
				more = next != nil
				return err
			})
		}
	}
	if err == nil {
		err = w.update(func(tx *bbolt.Tx) error {
			b, err := tx.Bucket(changesdb.BucketCheckpoints).CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			return w.putHead(b)
		})
	}
	w.checkpoint = w.head.Seq
	return err
}

// copySome copies rows from a key on, and returns the next key; nil at the end.
func copySome(to, from *bbolt.Bucket, next []byte) ([]byte, error) {
	to.FillPercent = 1
	c := from.Cursor()
	key, row := c.Seek(next)
	for size := 0; key != nil; key, row = c.Next() {
		if size >= writeFill {
			return bytes.Clone(key), nil
		}
		if err := to.Put(bytes.Clone(key), bytes.Clone(row)); err != nil {
			return nil, err
		}
		size += len(key) + len(row)
	}
	return nil, nil
}

// Abandon closes the writer and removes what it has written.
func (w *FolderWriter) Abandon() error { return errors.Join(w.db.Close(), os.Remove(w.path)) }

// Close writes the rest and makes it durable. If any method has returned an error, Close
// removes the file instead.
func (w *FolderWriter) Close() error {
	err := w.err
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = w.db.Sync()
	}
	err = errors.Join(err, w.db.Close())
	if err != nil {
		return errors.Join(err, os.Remove(w.path))
	}
	return disk.SyncDir(filepath.Dir(w.path))
}
