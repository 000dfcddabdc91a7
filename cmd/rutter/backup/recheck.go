package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rutter/log"
	"rutter/raftstore/offline"
)

// recheckEvery is the least time between two checks of kept backups, and how long a backup is
// not checked again. With a backup a day and seven kept, each is checked about once a week. A
// check reads one file and writes its restored copy, at the lowest priority.
const recheckEvery = 24 * time.Hour

// toCheck returns the kept backup whose last check is the oldest, if one is due.
func (s *Schedule) toCheck(now time.Time) (oldest File, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := now.Sub(s.rechecked); since >= 0 && since < recheckEvery {
		return oldest, false
	}
	for _, f := range s.files {
		if now.Sub(f.Checked) >= recheckEvery && s.damaged[f.Name] == "" && (!due || f.Checked.Before(oldest.Checked)) {
			oldest, due = f, true
		}
	}
	return oldest, due
}

// recheck restores a kept backup again. One that has changed since it was made is an alarm, and
// stays.
func (s *Schedule) recheck(ctx context.Context, now time.Time, f File) {
	s.mu.Lock()
	s.rechecked = now
	s.mu.Unlock()
	begun := time.Now()
	o := s.order()
	o.Check, o.File, o.Size, o.LowWater, o.Now = true, f, f.Bytes, s.cfg.LowWater(), now
	err := s.run(ctx, o, nil)
	s.mu.Lock()
	reason := s.damaged[f.Name]
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.failed(now, fmt.Errorf("the kept backup %s cannot be checked: %w", f.Name, err))
	case reason != "":
		s.cfg.Logger.Error("a kept backup is damaged", "folder", s.cfg.Folder, "file", f.Name, "error", reason)
	default:
		s.cfg.Logger.Info("kept backup checked", "folder", s.cfg.Folder, "file", f.Name, "took", time.Since(begun).Round(time.Millisecond))
	}
}

// takeCheck takes over the outcome of a check. s.mu is held.
func (s *Schedule) takeCheck(o order, l listing) {
	if !o.Check {
		return
	}
	s.st.Rechecks++
	if l.Damage != "" {
		s.damaged[o.File.Name] = l.Damage
	}
}

// takeFiles takes over which backups there are. s.mu is held.
func (s *Schedule) takeFiles(files []File) {
	s.files = files
	there := make(map[string]bool)
	s.st.Damaged, s.st.OldestCheck = nil, time.Time{}
	for _, f := range files {
		there[f.Name] = true
		if reason := s.damaged[f.Name]; reason != "" {
			s.st.Damaged = append(s.st.Damaged, Damaged{f.Name, reason})
			continue
		}
		if s.st.OldestCheck.IsZero() || f.Checked.Before(s.st.OldestCheck) {
			s.st.OldestCheck = f.Checked
		}
	}
	for name := range s.damaged {
		if !there[name] {
			delete(s.damaged, name)
		}
	}
}

// check restores a kept backup, and reports what is wrong with it. When it was checked is the
// time of the file's last change: so a server that starts again knows it. At least so many
// bytes of the file system stay free.
func (j *job) check(least int64) (damage string, err error) {
	path := filepath.Join(j.order.Folder, j.order.File.Name)
	if err := j.folder.clean(j.order.File.Cluster); err != nil {
		return "", err
	}
	if err := j.folder.room(j.order.Size+slack, least); err != nil {
		return "", err
	}
	if err := forgetCached(path); err != nil {
		return "", err
	}
	scratch := filepath.Join(j.order.Folder, pendingName(j.order.Server, j.order.File.Cluster, scratchEnd))
	content, err := j.restore(path, scratch)
	if errors.Is(err, log.ErrCorrupt) || errors.Is(err, unix.EIO) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	if content.Head.Seq != j.order.File.Seq {
		return fmt.Sprintf("it ends at seq %d, and its name says %d", content.Head.Seq, j.order.File.Seq), nil
	}
	return "", os.Chtimes(path, time.Time{}, j.order.Now)
}

// forgetCached drops what the kernel holds of a file in memory: what is read next is what the
// disk has.
func forgetCached(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED), file.Close())
}

// restore restores a backup into a scratch folder, and deletes that.
func (j *job) restore(path, scratch string) (*offline.Content, error) {
	content, err := offline.Restore(path, offline.Rebirth{
		Dir: scratch, Member: offline.Member{ID: j.order.Server, Address: "127.0.0.1:1"}, // nothing runs there
		Progress: func(done, _ int64) { j.progress(done) },
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the backup does not restore: %w", err), os.RemoveAll(scratch))
	}
	return content, os.RemoveAll(scratch)
}
