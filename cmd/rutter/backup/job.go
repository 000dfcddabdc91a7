package backup

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/confine"
	"rutter/log"
)

const (
	// syncEvery is how many bytes of a backup are written between two syncs. The disk
	// then never has much to write at once, and progress is that of the disk.
	syncEvery = 32 << 20
	// copyBuffer is how much of a snapshot is handed on at once, in bytes.
	copyBuffer = 256 << 10
	// slack is the room for what a restored folder has beside the snapshot's own bytes.
	slack = 64 << 20
	// maxOrder bounds the line with which a job begins, in bytes.
	maxOrder = 16 << 10
	// progressEvery is the least time between two reports of progress.
	progressEvery = time.Second
	// niceness is the priority of a job among processes (19: the lowest), and ioPriority
	// among users of a disk: best effort, the lowest of it (ioprio_set(2)). It is not the
	// idle class, because a backup on a busy disk must end too.
	niceness   = 19
	ioPriority = 2<<13 | 7
)

// order is what a job is to do: the first line that it reads. The bytes of a snapshot
// follow it if Make is set.
type order struct {
	Make     bool   `json:"make"`
	Check    bool   `json:"check"` // File, which is kept; neither: it only lists the folder
	Folder   string `json:"folder"`
	Server   string `json:"server"`
	Data     string `json:"data"`      // the server's data folder
	LowWater int64  `json:"low_water"` // of the data folder's file system
	Keep     int    `json:"keep"`
	Size     int64  `json:"size"` // bytes of the snapshot
	File     File   `json:"file"`
	// Head is where the server's log ends: backups of other logs are counted.
	Head log.Cursor `json:"head"`
	Now  time.Time  `json:"now"` // by the server's clock
}

// report is a line of a job's answer.
type report struct {
	Bytes    int64       `json:"bytes,omitempty"` // done; for progress only
	Verified *log.Cursor `json:"verified,omitempty"`
	Listing  *listing    `json:"listing,omitempty"` // the last line, if all went well
	Error    string      `json:"error,omitempty"`   // the last line, if not
}

// listing is what there is in the folder.
type listing struct {
	Files    []File `json:"files"` // of this server, the newest first
	Others   int    `json:"others"`
	OldLogs  int    `json:"old_logs"`  // backups of any server, of other logs than the server's
	SameDisk bool   `json:"same_disk"` // as the data folder
	Damage   string `json:"damage"`    // what a check found
}

// work does one job for the server at the other end of a connection.
func work(conn *os.File) error {
	go endWith(conn)
	lower()
	in := bufio.NewReaderSize(conn, copyBuffer)
	line, err := in.ReadSlice('\n')
	if err != nil || len(line) > maxOrder {
		return fmt.Errorf("the order of a backup: %w", err)
	}
	j := job{in: in, out: json.NewEncoder(conn)}
	if err := json.Unmarshal(line, &j.order); err != nil {
		return fmt.Errorf("the order of a backup: %w", err)
	}
	j.folder = folder{j.order.Folder, j.order.Server, j.order.Head}
	last, err := j.run()
	if err != nil {
		last = report{Error: err.Error()}
	}
	return j.out.Encode(last)
}

// endWith ends the process when the server hangs up: it waits no longer for this job.
// What was written stays under its hidden name, and the next job deletes it.
func endWith(conn *os.File) {
	for {
		fds := []unix.PollFd{{Fd: int32(conn.Fd()), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(fds, -1); err == nil && n > 0 {
			os.Exit(1)
		}
	}
}

// lower gives all threads of the process, which is a process group of its own, the
// lowest priority. A kernel that refuses it only makes the backup faster.
func lower() {
	_ = syscall.Setpriority(syscall.PRIO_PGRP, 0, niceness)
	const group = 2 // IOPRIO_WHO_PGRP
	_, _, _ = syscall.Syscall(unix.SYS_IOPRIO_SET, group, 0, ioPriority)
}

// job is one run of a worker.
type job struct {
	order  order
	folder folder
	in     *bufio.Reader
	out    *json.Encoder
	said   time.Time // the last report of progress
}

func (j *job) run() (last report, err error) {
	info, err := os.Stat(j.order.Folder)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no folder")
	}
	if err != nil {
		return last, fmt.Errorf("--backup-folder %s: %w: mount its disk, or make the folder for the user of the server", j.order.Folder, err)
	}
	quiet := slog.New(slog.DiscardHandler)
	if _, err := confine.Files([]string{j.order.Folder}, nil); err != nil {
		return last, err
	}
	confine.DropLogged(0, []string{j.order.Folder}, quiet)
	same, err := sameDisk(j.order.Folder, j.order.Data)
	if err != nil {
		return last, err
	}
	least, damage := int64(0), ""
	if same {
		least = j.order.LowWater
	}
	switch {
	case j.order.Make:
		err = j.make(least)
	case j.order.Check:
		damage, err = j.check(least)
	}
	if err != nil {
		return last, err
	}
	l, err := j.folder.list()
	l.SameDisk, l.Damage = same, damage
	return report{Listing: &l}, err
}

// make writes, verifies and names a backup, and deletes those beyond the number to keep.
// At least so many bytes of the file system stay free.
func (j *job) make(least int64) (err error) {
	if err := j.folder.clean(j.order.File.Cluster); err != nil {
		return err
	}
	if err := j.folder.room(2*j.order.Size+slack, least); err != nil {
		return err
	}
	part := filepath.Join(j.order.Folder, pendingName(j.order.Server, j.order.File.Cluster, partEnd))
	scratch := filepath.Join(j.order.Folder, pendingName(j.order.Server, j.order.File.Cluster, scratchEnd))
	defer func() {
		err = errors.Join(err, os.RemoveAll(scratch))
		if err != nil {
			_ = os.Remove(part) // the error is about more than this
		}
	}()
	if err := j.write(part, least); err != nil {
		return err
	}
	if err := j.folder.room(j.order.Size+slack, least); err != nil {
		return err
	}
	content, err := j.restore(part, scratch)
	if err != nil {
		return err
	}
	if err := j.confirm(log.Cursor{Cluster: j.order.File.Cluster, Seq: content.Head.Seq, Chain: content.Head.Chain}); err != nil {
		return err
	}
	if err := os.Rename(part, filepath.Join(j.order.Folder, fileName(j.order.Server, j.order.File))); err != nil {
		return err
	}
	if err := syncFolder(j.order.Folder); err != nil {
		return err
	}
	return j.folder.prune(j.order.File, j.order.Keep)
}

// write writes the snapshot to a file, and syncs it. What the kernel holds of it in memory
// is dropped: the restore then reads what the disk has, and the server's own files keep
// their place in memory.
func (j *job) write(path string, least int64) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for done := int64(0); done < j.order.Size; {
		n, err := io.CopyN(file, j.in, min(syncEvery, j.order.Size-done))
		done += n
		if err != nil {
			return fmt.Errorf("write %s after %d of %d bytes: %w", path, done, j.order.Size, err)
		}
		if err := file.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", path, err)
		}
		j.progress(done)
		if err := j.folder.room(0, least); err != nil {
			return err
		}
	}
	return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// confirm asks the server whether its log has the end of what was restored.
func (j *job) confirm(at log.Cursor) error {
	if err := j.out.Encode(report{Verified: &at}); err != nil {
		return err
	}
	answer, err := j.in.ReadString('\n')
	if err != nil || answer != "ok\n" {
		return fmt.Errorf("the server does not confirm %s: %w", at, err)
	}
	return nil
}

// progress reports that the job gets on.
func (j *job) progress(done int64) {
	if time.Since(j.said) < progressEvery {
		return
	}
	j.said = time.Now()
	_ = j.out.Encode(report{Bytes: done}) // if the server is gone, endWith ends the process
}
