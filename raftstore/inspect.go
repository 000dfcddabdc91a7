package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog"
)

// Content describes a snapshot file or a data folder that no server has open,
// after every checksum in it was verified.
type Content struct {
	Cluster log.UUID       `json:"cluster"`
	Head    log.Cursor     `json:"head"`
	Chain   log.Hash       `json:"chain"` // the whole hash at the head
	Time    log.Time       `json:"time"`  // of the last change
	Floor   log.Seq        `json:"floor"`
	Feature uint32         `json:"feature_version"`
	Index   uint64         `json:"raft_index"`
	Term    uint64         `json:"raft_term"`
	Members []MemberStatus `json:"members"` // of the cluster that it is of
	Objects map[string]int `json:"objects"` // by kind
	Events  uint64         `json:"events"`
	Changes int            `json:"changes"` // ids in the dedupe window
	Bytes   int64          `json:"bytes"`   // of changes.db

	// Waiting is how many entries of raft.db have changes that changes.db does
	// not have yet. A server that starts takes them over, if the cluster
	// committed them. 0 for a snapshot file.
	Waiting int `json:"waiting_entries"`
	// LastIndex and LastTerm are the end of raft.db, 0 for a snapshot file.
	LastIndex uint64 `json:"last_index,omitempty"`
	LastTerm  uint64 `json:"last_term,omitempty"`
}

// Progress is told how many of all bytes or entries are done. It must be quick;
// nil is nobody.
type Progress func(done, all int64)

func (p Progress) tell(done, all int64) {
	if p != nil {
		p(done, all)
	}
}

// progressEvery is how many rows pass between two words of progress.
const progressEvery = 1 << 14

// InspectFolder verifies a data folder and says what it holds. It changes
// nothing, and fails if a server has the folder open.
func InspectFolder(dir string, progress Progress) (*Content, error) {
	c, err := inspectFile(filepath.Join(dir, dbName), progress)
	if err != nil {
		return nil, err
	}
	return c, c.readTail(filepath.Join(dir, raftName))
}

// readTail looks at what raft.db has beyond the content.
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
		return fmt.Errorf("%s: %w: %w", path, ErrDisk, err)
	}
	for i := c.Index + 1; i <= c.LastIndex; i++ {
		var entry raft.Log
		if err := logs.GetLog(i, &entry); err != nil {
			return fmt.Errorf("%s: entry %d: %w: %w", path, i, ErrDisk, err)
		}
		c.LastTerm = entry.Term
		if entry.Type == raft.LogCommand {
			c.Waiting++
		}
	}
	return nil
}

// inspectFile verifies a changes.db that nobody writes: every row's checksum,
// the chain from the floor to the head, and that the objects make a state.
func inspectFile(path string, progress Progress) (c *Content, err error) {
	if err := disk.CheckRegular(path); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// A damaged page makes bbolt panic in places.
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
	cfg := Config{ID: "inspect", Dir: filepath.Dir(path)}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	loaded, err := load(db, &cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h := &loaded.head
	c.Cluster, c.Head, c.Chain, c.Time, c.Floor, c.Feature = h.cluster, h.cursor(), h.hash, h.time, h.floor, h.feature
	c.Index, c.Term, c.Changes = h.applied, h.term, len(loaded.window.known)
	for _, m := range h.conf.Servers {
		c.Members = append(c.Members, MemberStatus{Member: Member{string(m.ID), string(m.Address)}, Voter: m.Suffrage == raft.Voter})
	}
	for kind := range log.Kind(math.MaxUint8) {
		if n := loaded.state.Count(kind); n > 0 {
			c.Objects[kind.String()] = n
		}
	}
	err = db.View(func(tx *bbolt.Tx) error { return c.walk(tx, h, progress) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// walk verifies the events: dense, each with its checksum, chained to the head.
func (c *Content) walk(tx *bbolt.Tx, h *head, progress Progress) error {
	cursor := tx.Bucket(bucketEvents).Cursor()
	hash, want := h.floorHash, h.floor+1
	key, row := cursor.Seek(seqKey(want))
	for ; want <= h.seq; key, row = cursor.Next() {
		s, err := readEventRow(want, key, row)
		if err != nil {
			return err
		}
		if hash = hash.Next(want, s.Bytes); hash != s.Hash {
			return fmt.Errorf("changes.db: the chain breaks at seq %d: %w", want, log.ErrCorrupt)
		}
		if c.Events++; c.Events%progressEvery == 0 {
			progress.tell(int64(c.Events), int64(h.seq-h.floor))
		}
		want++
	}
	progress.tell(int64(c.Events), int64(h.seq-h.floor))
	if hash != h.hash {
		return fmt.Errorf("changes.db: the events end in chain hash %s, and the head says %s: %w", hash, h.hash, log.ErrCorrupt)
	}
	if key != nil {
		return fmt.Errorf("changes.db: an event row %d beyond the head's %d: %w", binary.BigEndian.Uint64(key), h.seq, log.ErrCorrupt)
	}
	return nil
}
