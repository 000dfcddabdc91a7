package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog"
	"rutter/raftstore/internal/window"
)

// Rebirth describes the new cluster that a data folder becomes: a cluster of one server,
// which others join later with empty folders.
type Rebirth struct {
	Dir    string
	Member Member           // this server, with the address that the others will dial
	Now    func() time.Time // for the new cluster's id; time.Now
	// DryRun does everything except putting the result into place.
	DryRun   bool
	Progress changesdb.Progress
}

// Check returns an error if no cluster can begin with r, and sets defaults.
func (r *Rebirth) Check() error {
	if r.Dir == "" || r.Member.ID == "" {
		return errors.New("raftstore: a data folder and a server's id are needed")
	}
	host, _, err := net.SplitHostPort(r.Member.Address)
	if err != nil {
		return fmt.Errorf("raftstore: peer address %q: want HOST:PORT, as in 10.0.0.1:7421", r.Member.Address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("raftstore: no other server can dial %q: give this machine's address", r.Member.Address)
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	return nil
}

// Restore makes a data folder of a snapshot file: a cluster of one server with a new
// identity, so that every cursor of the old log is refused and its client begins anew
// (SAFETY S8). The folder must not contain a log. The whole snapshot is verified before
// anything is put into place, and a crash leaves either nothing or all. Restore returns
// what was restored, with the new identity.
func Restore(snapshot string, r Rebirth) (*Content, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if err := checkVacant(r.Dir); err != nil {
		return nil, err
	}
	if err := changesdb.PrepareDir(r.Dir); err != nil {
		return nil, err
	}
	pending := filepath.Join(r.Dir, changesdb.Name+".restore"+boltfile.PendingSuffix)
	c, err := extract(snapshot, pending, r.Progress)
	if err != nil {
		return nil, err
	}
	if err := r.restore(c, pending); err != nil || r.DryRun {
		return c, errors.Join(err, removeIfThere(pending))
	}
	return c, nil
}

func (r *Rebirth) restore(c *Content, pending string) error {
	if c.Cluster.IsZero() || c.Index == 0 {
		return errors.New("raftstore: the snapshot is of a cluster that was never founded: there is nothing to restore")
	}
	if r.DryRun {
		return nil
	}
	db, err := changesdb.Open(pending, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(r.Found(db, c, c.Index, c.Term), db.Close()); err != nil {
		return err
	}
	if err := raftlog.Make(r.Dir, c.Term); err != nil {
		return err
	}
	if err := disk.SyncDir(r.Dir); err != nil {
		return err
	}
	if err := errors.Join(ownAs(r.Dir, pending), ownAs(r.Dir, filepath.Join(r.Dir, raftlog.FileName))); err != nil {
		return err
	}
	if err := os.Rename(pending, filepath.Join(r.Dir, changesdb.Name)); err != nil {
		return fmt.Errorf("%w: %w", disk.ErrTrouble, err)
	}
	return disk.SyncDir(r.Dir)
}

// ownAs gives a file that root made to the owner of the data folder, who runs the server.
func ownAs(dir, path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", disk.ErrTrouble, err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}

// Found makes db the data of a new cluster of one server, at an index and a term of
// raft's log, in one transaction.
func (r *Rebirth) Found(db *bbolt.DB, c *Content, index, term uint64) error {
	conf := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(r.Member.ID), Address: raft.ServerAddress(r.Member.Address)}}}
	cluster := window.NewID(r.Now())
	err := db.Update(func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		if err != nil {
			return err
		}
		h.Applied, h.Term, h.Conf, h.ConfIndex, h.Cluster = index, term, conf, index, cluster
		h.Skips = h.Skips.Settled() // pending skips would wait for entries that no longer exist
		c.Cluster, c.Head, c.Index, c.Term = cluster, h.Cursor(), index, term
		m := changesdb.Marker{Index: index, Term: term, ConfIndex: index, Conf: conf}
		meta := tx.Bucket(changesdb.BucketMeta)
		return errors.Join(changesdb.PutHead(meta, &h), meta.Put(changesdb.KeyMarker, m.Encode()))
	})
	if err != nil {
		return fmt.Errorf("%s: found the new cluster: %w: %w", r.Dir, disk.ErrTrouble, err)
	}
	c.Members = []MemberStatus{{Member: r.Member, Voter: true}}
	return nil
}

// checkVacant returns an error if the folder contains a log. A raft.db of a log without
// entries is allowed alone, because an interrupted restore leaves one.
func checkVacant(dir string) error {
	taken := fmt.Errorf("%s holds a server's data already: move it away first, or give another folder", dir)
	if _, err := os.Stat(filepath.Join(dir, changesdb.Name)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(taken, err)
	}
	path := filepath.Join(dir, raftlog.FileName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, raftlog.WALName)); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(taken, err)
		}
		return nil
	}
	if empty, err := raftlog.IsEmpty(path); err != nil || !empty {
		return errors.Join(taken, err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
