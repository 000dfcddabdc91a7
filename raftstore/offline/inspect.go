package offline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog"
	"rutter/raftstore/internal/window"
)

// Member is one server of the cluster.
type Member struct {
	ID      string `json:"id"`      // the server's name, as its Config.ID
	Address string `json:"address"` // host:port of its peer port, as the others dial it
}

// MemberStatus is a member as raft's configuration has it.
type MemberStatus struct {
	Member
	Voter  bool `json:"voter"`
	Leader bool `json:"leader"`
}

// Content describes a snapshot file or a data folder that no server has open,
// after every checksum in it was verified.
type Content struct {
	Cluster log.UUID       `json:"cluster"`
	Head    log.Cursor     `json:"head"`
	Chain   log.Hash       `json:"chain"` // the whole chain hash at the head
	Time    log.Time       `json:"time"`  // of the last change
	Floor   log.Seq        `json:"floor"`
	Feature uint32         `json:"feature_version"`
	Index   uint64         `json:"raft_index"`
	Term    uint64         `json:"raft_term"`
	Members []MemberStatus `json:"members"` // of its cluster
	Objects map[string]int `json:"objects"` // by kind
	Events  uint64         `json:"events"`
	Changes int            `json:"changes"` // ids in the dedupe window
	Bytes   int64          `json:"bytes"`   // of changes.db

	// Waiting is the number of entries in raft.db with changes that changes.db does not
	// have yet. A server that starts applies them, if the cluster committed them. 0 for a
	// snapshot file.
	Waiting int `json:"waiting_entries"`
	// LastIndex and LastTerm are the end of raft.db, 0 for a snapshot file.
	LastIndex uint64 `json:"last_index,omitempty"`
	LastTerm  uint64 `json:"last_term,omitempty"`
}

// InspectFolder verifies a data folder and describes its content. It changes nothing, and
// fails if a server has the folder open.
func InspectFolder(dir string, progress changesdb.Progress) (*Content, error) {
	c, err := inspectFile(filepath.Join(dir, changesdb.Name), progress)
	if err != nil {
		return nil, err
	}
	return c, c.readTail(filepath.Join(dir, raftlog.FileName))
}

// readTail counts the entries that raft's log has beyond the content.
func (c *Content) readTail(path string) (err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	logs, done, err := raftlog.OpenToRead(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if c.LastIndex, err = logs.LastIndex(); err != nil {
		return fmt.Errorf("%s: %w: %w", path, disk.ErrTrouble, err)
	}
	for i := c.Index + 1; i <= c.LastIndex; i++ {
		var entry raft.Log
		if err := logs.GetLog(i, &entry); err != nil {
			return fmt.Errorf("%s: entry %d: %w: %w", path, i, disk.ErrTrouble, err)
		}
		c.LastTerm = entry.Term
		if entry.Type == raft.LogCommand {
			c.Waiting++
		}
	}
	return nil
}

// inspectFile verifies a changes.db that no process writes: every row's checksum, the
// chain from the floor to the head, and that the objects make a state.
func inspectFile(path string, progress changesdb.Progress) (c *Content, err error) {
	if err := disk.CheckRegular(path); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// A damaged page can make bbolt panic.
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%s: %v: %w", path, p, log.ErrCorrupt)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: boltfile.LockWait, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("%s: %w (does a server have it open?)", path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	c = &Content{Bytes: info.Size(), Objects: make(map[string]int)}
	loaded, err := changesdb.Load(db, window.DefaultAge, window.DefaultCount)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h := &loaded.Head
	c.Cluster, c.Head, c.Chain, c.Time, c.Floor, c.Feature = h.Cluster, h.Cursor(), h.Hash, h.Time, h.Floor, h.Feature
	c.Index, c.Term, c.Changes = h.Applied, h.Term, loaded.Window.Len()
	for _, m := range h.Conf.Servers {
		c.Members = append(c.Members, MemberStatus{Member: Member{string(m.ID), string(m.Address)}, Voter: m.Suffrage == raft.Voter})
	}
	for kind := range log.Kind(math.MaxUint8) {
		if n := loaded.State.Count(kind); n > 0 {
			c.Objects[kind.String()] = n
		}
	}
	err = db.View(func(tx *bbolt.Tx) error { return c.walk(tx, h, progress) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// walk verifies the events: no gap, each with its checksum, chained to the head.
func (c *Content) walk(tx *bbolt.Tx, h *changesdb.Head, progress changesdb.Progress) error {
	cursor := tx.Bucket(changesdb.BucketEvents).Cursor()
	hash, want := h.FloorHash, h.Floor+1
	key, row := cursor.Seek(changesdb.SeqKey(want))
	for ; want <= h.Seq; key, row = cursor.Next() {
		s, err := changesdb.ReadEvent(want, key, row)
		if err != nil {
			return err
		}
		if hash = hash.Next(want, s.Bytes); hash != s.Hash {
			return fmt.Errorf("changes.db: the chain breaks at seq %d: %w", want, log.ErrCorrupt)
		}
		if c.Events++; c.Events%changesdb.ProgressEvery == 0 {
			progress.Report(int64(c.Events), int64(h.Seq-h.Floor))
		}
		want++
	}
	progress.Report(int64(c.Events), int64(h.Seq-h.Floor))
	if hash != h.Hash {
		return fmt.Errorf("changes.db: the events end in chain hash %s, and the head says %s: %w", hash, h.Hash, log.ErrCorrupt)
	}
	if key != nil {
		return fmt.Errorf("changes.db: an event row %d beyond the head's %d: %w", binary.BigEndian.Uint64(key), h.Seq, log.ErrCorrupt)
	}
	return nil
}

// BackupFolder writes a snapshot of a data folder that no server has open, and describes
// its content. Everything is verified before the first byte is written.
func BackupFolder(dir string, w io.Writer, progress changesdb.Progress) (*Content, error) {
	c, err := InspectFolder(dir, progress)
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(filepath.Join(dir, changesdb.Name), 0o600, &bbolt.Options{Timeout: boltfile.LockWait, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, disk.ErrTrouble, err)
	}
	err = db.View(func(tx *bbolt.Tx) error { return changesdb.WriteImage(w, tx) })
	return c, errors.Join(err, db.Close())
}

// extract writes the file of a snapshot to path, synced, and inspects it.
func extract(snapshot, path string, progress changesdb.Progress) (c *Content, err error) {
	in, err := disk.OpenRegular(snapshot)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", disk.ErrTrouble, err)
	}
	err = changesdb.ReadImage(in, out, progress)
	if err != nil {
		err = fmt.Errorf("%s: %w", snapshot, err)
	} else if err = out.Sync(); err != nil {
		err = fmt.Errorf("%s: %w: %w", path, disk.ErrTrouble, err)
	}
	if err = errors.Join(err, out.Close()); err == nil {
		c, err = inspectFile(path, progress)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return c, nil
}

// InspectSnapshot verifies a snapshot file and describes its content. It needs space for
// the data in the folder for temporary files.
func InspectSnapshot(snapshot string, progress changesdb.Progress) (*Content, error) {
	dir, err := os.MkdirTemp("", "rutter-inspect-")
	if err != nil {
		return nil, err
	}
	c, err := extract(snapshot, filepath.Join(dir, changesdb.Name), progress)
	return c, errors.Join(err, os.RemoveAll(dir))
}
