package backup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"rutter/log"
	"rutter/raftstore/offline"
)

// maxFiles bounds the names that are read of the folder. A folder with more is not one
// for backups.
const maxFiles = 100_000

// folder is the folder of the backups, for the process that may wait for it.
type folder struct {
	path   string
	server string
	head   log.Cursor // of the server's log
}

// list returns the backups of this server, the newest first, how many other files there are,
// and how many backups of other logs than the server's. A file is a backup if it has the name
// of one and begins and ends as a snapshot does. One of the server's own log from beyond its
// head is none of its backups: it was put there, or its log was set back.
func (d folder) list() (l listing, err error) {
	dir, err := os.Open(d.path)
	if err != nil {
		return l, fmt.Errorf("--backup-folder: %w: mount its disk, or make the folder for the user of the server", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxFiles)
	if err != nil && len(names) > 0 || len(names) == maxFiles {
		return l, errors.Join(fmt.Errorf("--backup-folder %s: it has %d files or more: give the backups a folder of their own", d.path, maxFiles), err)
	}
	for _, name := range names {
		if of, is := logOf(name); is && of != d.head.Cluster && !d.head.Cluster.IsZero() {
			l.OldLogs++
		}
		f, ok := parseName(d.server, name)
		if ok {
			f, ok = d.recognize(f)
		}
		if !ok || f.Cluster == d.head.Cluster && f.Seq > d.head.Seq {
			l.Others++
			continue
		}
		l.Files = append(l.Files, f)
	}
	slices.SortFunc(l.Files, func(a, b File) int { return -compare(a, b) })
	return l, nil
}

// recognize adds what the file itself says to what its name says.
func (d folder) recognize(f File) (File, bool) {
	path := filepath.Join(d.path, f.Name)
	info, err := os.Stat(path)
	if err != nil {
		return f, false
	}
	var whole bool
	_, whole, f.Bytes = offline.Recognize(path)
	f.Checked = info.ModTime()
	return f, whole
}

// compare orders backups of one log by what they hold, and then by their times. Clocks
// may go back, and a log does not.
func compare(a, b File) int {
	if a.Cluster != b.Cluster {
		return a.At.Compare(b.At)
	}
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), a.At.Compare(b.At))
}

// prune deletes the backups of the log of the one that was just made, beyond the newest
// keep; the one that was just made is always one of these. Those of another log stay: after
// a cluster was recovered they may be all that is left of what it was.
func (d folder) prune(made File, keep int) error {
	l, err := d.list()
	if err != nil {
		return err
	}
	kept := 1 // made
	var errs []error
	for _, f := range l.Files {
		if f.Cluster != made.Cluster || f.Name == fileName(d.server, made) {
			continue
		}
		if kept++; kept > max(keep, 1) {
			errs = append(errs, os.Remove(filepath.Join(d.path, f.Name)))
		}
	}
	return errors.Join(append(errs, syncFolder(d.path))...)
}

// clean deletes what an earlier backup of this server and log left when it was stopped.
func (d folder) clean(cluster log.UUID) error {
	part := filepath.Join(d.path, pendingName(d.server, cluster, partEnd))
	var err error
	if _, missing := os.Lstat(part); !errors.Is(missing, fs.ErrNotExist) {
		if begins, _, _ := offline.Recognize(part); !begins {
			return fmt.Errorf("%s is not the beginning of a snapshot, and stays: move it away", part)
		}
		err = os.Remove(part)
	}
	scratch := filepath.Join(d.path, pendingName(d.server, cluster, scratchEnd))
	return errors.Join(err, os.RemoveAll(scratch))
}

// room refuses to write so many bytes more if the file system of the folder then has less
// than least bytes free.
func (d folder) room(bytes, least int64) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.path, &st); err != nil {
		return fmt.Errorf("--backup-folder %s: %w", d.path, err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free-bytes < least {
		return fmt.Errorf("--backup-folder %s: %w: it has %d bytes free, a backup and its restored copy need %d, and %d must stay free: free some, keep fewer, or use a larger disk", d.path, log.ErrNoRoom, free, bytes, least)
	}
	return nil
}

// sameDisk reports whether two folders are of one file system.
func sameDisk(a, b string) (bool, error) {
	var one, two syscall.Stat_t
	if err := errors.Join(syscall.Stat(a, &one), syscall.Stat(b, &two)); err != nil {
		return false, err
	}
	return one.Dev == two.Dev, nil
}

// syncFolder makes names in a folder durable.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
