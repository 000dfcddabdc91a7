package backup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"rutter/log"
)

// Defaults and bounds of the settings.
const (
	// DefaultKeep is a week of daily backups.
	DefaultKeep = 7
	// MaxKeep bounds how many are kept: each listing names all of them.
	MaxKeep = 10_000
	// LeastEvery is the shortest time between two backups. Each one writes the whole
	// store twice.
	LeastEvery = time.Minute
	// LeastRate lets no step take longer than patience because of the pace.
	LeastRate = 1 << 20
	// DefaultRate is bytes per second that are read of the store for a backup. A disk
	// has several times that, so writes of the server are hardly slower meanwhile.
	DefaultRate = 64 << 20
	// patience is how long the folder may take for one step: 32 MiB written, or so many
	// entries checked. It is twice the time after which Linux repeats or fails a command
	// to a disk, and longer than the pause of a network file system that fails over.
	patience = 2 * time.Minute
	// tick is the time between two looks at the clock.
	tick = time.Second
	// maxRetry bounds the time until a backup that failed is tried again.
	maxRetry = 15 * time.Minute
	// maxGrace bounds the time between the start of a server and a backup that was
	// missed, for each of the servers that begin before it.
	maxGrace = time.Minute
	// maxLine bounds a line of a worker, in bytes: a listing names MaxKeep files.
	maxLine = 8 << 20
)

// ErrHangs: the folder's disk does not answer.
var ErrHangs = errors.New("the folder does not answer: its disk, or the network to it, hangs")

// Image is a snapshot that is being read.
type Image struct {
	io.ReadCloser
	Cluster log.UUID
	Seq     log.Seq
	Size    int64 // bytes
}

// Settings are what an operator chooses.
type Settings struct {
	Every  time.Duration // 0: no backups
	Keep   int           // the newest that are kept
	Folder string        // must be there
	Rate   int64         // bytes read of the store in a second
}

// Config is what a Schedule works with. All fields without a default are required.
type Config struct {
	Settings
	Server   string // id
	Data     string // data folder of the server
	Launcher *Launcher
	// Source begins a snapshot of what the server has applied.
	Source func(context.Context) (Image, error)
	// Confirm returns nil if the server's log has a place.
	Confirm func(log.Cursor) error
	// Head returns where the server's log ends.
	Head func() log.Cursor
	// Ready returns nil if the server has a state that is worth a backup.
	Ready    func() error
	LowWater func() int64 // bytes that must stay free in the file system of Data
	// Rank returns which of how many servers this one is: backups of one cluster are
	// spread over the interval.
	Rank     func() (i, n int)
	Logger   *slog.Logger
	Now      func() time.Time // time.Now
	Patience time.Duration    // patience
}

// Status is what a schedule has done, and will do.
type Status struct {
	On       bool      `json:"on"`
	Folder   string    `json:"folder,omitempty"`
	Every    string    `json:"every,omitempty"` // as in 24h0m0s
	Keep     int       `json:"keep,omitempty"`
	Running  bool      `json:"running,omitempty"`
	Next     time.Time `json:"next,omitzero"`     // when the next one is due
	Last     *File     `json:"last,omitempty"`    // the newest of the server's log; it was verified before it got its name
	Verified time.Time `json:"verified,omitzero"` // when the restored copy of it was found good
	Age      float64   `json:"age_seconds,omitempty"`
	Took     float64   `json:"took_seconds,omitempty"` // the last one that this process made
	Kept     int       `json:"kept"`
	Others   int       `json:"other_files,omitempty"` // in the folder, which the schedule leaves alone
	// OldLogs are the backups in the folder, of any server, of logs that are no more: no server
	// deletes them.
	OldLogs  int       `json:"old_log_files,omitempty"`
	Damaged  []Damaged `json:"damaged,omitempty"` // kept ones that a later check found so
	Rechecks uint64    `json:"rechecks_total"`    // checks of kept backups
	// OldestCheck is when that kept backup was restored whose last check is the oldest.
	OldestCheck time.Time `json:"oldest_check,omitzero"`
	SameDisk    bool      `json:"same_disk,omitempty"` // the folder is on the file system of the data folder
	Made        uint64    `json:"made_total"`
	Failures    uint64    `json:"failures_total"`
	Error       string    `json:"error,omitempty"` // of the last try, if it failed
	FailedAt    time.Time `json:"failed,omitzero"`
	Alarms      []string  `json:"alarms,omitempty"`
}

// Damaged is a kept backup that has changed since it was made.
type Damaged struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Schedule makes a server's backups. All methods may be called concurrently, and on nil.
type Schedule struct {
	cfg    Config
	asked  chan struct{}
	opened time.Time // monotonic

	mu     sync.Mutex // protects what follows
	st     Status
	listed bool      // st has what the folder has
	seen   time.Time // when st.Last was found, if its time is in the future; zero: it is not
	tried  time.Time // the last try

	files     []File            // the newest first
	damaged   map[string]string // why, by name
	rechecked time.Time         // when a kept one was checked last
}

// New returns a schedule; nil if cfg.Every is 0.
func New(cfg Config) *Schedule {
	if cfg.Every == 0 {
		return nil
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	s := &Schedule{cfg: cfg, asked: make(chan struct{}, 1), opened: time.Now(), damaged: make(map[string]string)}
	s.st = Status{On: true, Folder: cfg.Folder, Every: cfg.Every.String(), Keep: cfg.Keep}
	return s
}

// Run makes backups until ctx ends.
func (s *Schedule) Run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.cfg.Logger.Info("backups are scheduled", "folder", s.cfg.Folder, "every", s.cfg.Every, "keep", s.cfg.Keep)
	ticker := time.NewTicker(min(tick, s.cfg.Every/4))
	defer ticker.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-s.asked:
			asked = true
		case <-ticker.C:
		}
		s.step(ctx, asked)
	}
}

// step lists the folder once, and makes a backup if one is due or was asked for.
func (s *Schedule) step(ctx context.Context, asked bool) {
	now := s.cfg.Now()
	s.mu.Lock()
	listed, waits := s.listed, !s.tried.IsZero() && s.st.Error != "" && now.Sub(s.tried) < s.retry() && !now.Before(s.tried)
	s.mu.Unlock()
	if waits && !asked || !asked && s.cfg.Ready() != nil {
		return
	}
	if listed && !asked && now.Before(s.due(now)) {
		if f, due := s.toCheck(now); due {
			s.recheck(ctx, now, f)
		}
		return
	}
	if err := s.cfg.Ready(); err != nil {
		s.failed(now, fmt.Errorf("no backup now: %w", err))
		return
	}
	begun := time.Now()
	s.running(true)
	defer s.running(false)
	err := s.run(ctx, s.order(), nil)
	if err == nil && (asked || !now.Before(s.due(now))) {
		err = s.backUp(ctx, now)
		if err == nil {
			s.mu.Lock()
			s.st.Took, s.st.Made = time.Since(begun).Seconds(), s.st.Made+1
			last := s.st.Last
			s.mu.Unlock()
			s.cfg.Logger.Info("backup made and verified", "folder", s.cfg.Folder, "file", last.Name, "bytes", last.Bytes, "took", time.Since(begun).Round(time.Millisecond))
		}
	}
	if err != nil && ctx.Err() == nil {
		s.failed(now, err)
	}
}

// retry is the time after which a backup that failed is tried again.
func (s *Schedule) retry() time.Duration { return min(s.cfg.Every/8, maxRetry) }

func (s *Schedule) failed(now time.Time, err error) {
	s.mu.Lock()
	again := s.st.Error == err.Error()
	s.st.Error, s.st.FailedAt, s.tried = err.Error(), now, now
	s.st.Failures++
	s.mu.Unlock()
	level := slog.LevelWarn
	if again {
		level = slog.LevelDebug
	}
	s.cfg.Logger.Log(context.Background(), level, "no backup", "folder", s.cfg.Folder, "error", err)
}

// backUp makes one backup.
func (s *Schedule) backUp(ctx context.Context, now time.Time) error {
	image, err := s.cfg.Source(ctx)
	if err != nil {
		return err
	}
	defer image.Close()
	o := s.order()
	o.Make, o.LowWater, o.Keep, o.Size = true, s.cfg.LowWater(), s.cfg.Keep, image.Size
	o.File = File{Cluster: image.Cluster, Seq: image.Seq, At: now}
	o.Head = log.Cursor{Cluster: image.Cluster, Seq: image.Seq}
	return s.run(ctx, o, image)
}

// order is what all jobs are told; as it is, a job only lists the folder.
func (s *Schedule) order() order {
	return order{Folder: s.cfg.Folder, Server: s.cfg.Server, Data: s.cfg.Data, Head: s.cfg.Head()}
}

// run has a worker do a job, and takes over what it reports. Each step of the worker may
// take Config.Patience.
func (s *Schedule) run(ctx context.Context, o order, image io.Reader) error {
	conn, err := s.cfg.Launcher.start()
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	w := &pacedWriter{conn: conn, patience: s.cfg.Patience, rate: s.cfg.Rate, begun: time.Now()}
	_, sent := w.Write(append(line, '\n'))
	copied := make(chan error, 1)
	go func() { // it ends when the connection is closed, or the snapshot ends
		if image != nil && sent == nil {
			_, sent = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{image}, make([]byte, copyBuffer))
		}
		copied <- sent
	}()
	l, err := s.follow(conn, o)
	_ = conn.Close()
	sent = <-copied
	switch {
	case err == nil:
		s.take(o, l)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("the backup's process ended before it was done (another one waits for the disk still, or it was killed): %w", errors.Join(err, sent))
	}
	return err
}

// follow reads what a worker reports, to its end.
func (s *Schedule) follow(conn net.Conn, o order) (listing, error) {
	in := bufio.NewReaderSize(conn, 64<<10)
	var refused error
	for {
		// While the snapshot is sent, the writer notices a worker that does not read.
		_ = conn.SetReadDeadline(time.Now().Add(s.cfg.Patience))
		line, err := readLine(in)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return listing{}, fmt.Errorf("--backup-folder %s: nothing for %v: %w", o.Folder, s.cfg.Patience, ErrHangs)
		}
		if err != nil {
			return listing{}, err
		}
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			return listing{}, fmt.Errorf("the report of a backup's process: %w", err)
		}
		switch {
		case refused != nil && (r.Error != "" || r.Listing != nil):
			return listing{}, refused
		case r.Error != "":
			return listing{}, errors.New(r.Error)
		case r.Listing != nil:
			return *r.Listing, nil
		case r.Verified != nil:
			word := "ok\n"
			if refused = s.confirm(o, *r.Verified); refused != nil {
				word = "no\n" // it deletes what it made, and reports an error
			}
			_ = conn.SetWriteDeadline(time.Now().Add(s.cfg.Patience))
			if _, err := conn.Write([]byte(word)); err != nil {
				return listing{}, errors.Join(refused, err)
			}
		}
	}
}

// readLine reads a line of at most maxLine bytes.
func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("the report of a backup's process has more than %d bytes", maxLine)
		}
	}
}

// confirm returns nil if what a worker restored is this server's log.
func (s *Schedule) confirm(o order, at log.Cursor) error {
	if at.Cluster != o.File.Cluster || at.Seq != o.File.Seq {
		return fmt.Errorf("the restored backup ends at %s, and the snapshot at seq %d of %s: it is not kept", at, o.File.Seq, o.File.Cluster)
	}
	if err := s.cfg.Confirm(at); err != nil {
		return fmt.Errorf("the restored backup ends at %s, which this server's log does not have: it is not kept: %w", at, err)
	}
	return nil
}

func (s *Schedule) running(is bool) {
	s.mu.Lock()
	s.st.Running = is
	s.mu.Unlock()
}

// take takes over what there is in the folder after a job.
func (s *Schedule) take(o order, l listing) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.st.Last
	s.listed, s.st.Error, s.st.FailedAt = true, "", time.Time{}
	s.st.Kept, s.st.Others, s.st.OldLogs, s.st.SameDisk = len(l.Files), l.Others, l.OldLogs, l.SameDisk
	s.takeCheck(o, l)
	s.takeFiles(l.Files)
	s.st.Last, s.st.Verified = newest(o, l.Files, now, nil), time.Time{}
	if f := newest(o, l.Files, now, s.damaged); f != nil {
		s.st.Verified = f.At
	}
	if before == nil || s.st.Last == nil || before.Name != s.st.Last.Name {
		s.seen = time.Time{}
	}
}

// newest returns the backup that was just made, else the newest of the server's log, but for
// those that are damaged; nil if there is none. One with a time in the future is it only if
// there is no other: its time, or its name, is false.
func newest(o order, files []File, now time.Time, damaged map[string]string) (newest *File) {
	for i := range files {
		f := &files[i]
		if f.Cluster != o.Head.Cluster || o.Make && f.Name != fileName(o.Server, o.File) || damaged[f.Name] != "" {
			continue
		}
		future := f.At.After(now)
		if newest == nil || !future {
			newest = f
		}
		if !future {
			break
		}
	}
	return newest
}

// lastAt is when the newest backup was made, which there must be. If that is in the future,
// because a clock went back or the file was put there, it is when it was found. The caller
// holds the lock.
func (s *Schedule) lastAt(now time.Time) time.Time {
	if at := s.st.Last.At; !at.After(now) {
		return at
	}
	if s.seen.IsZero() || s.seen.After(now) {
		s.seen = now
	}
	return s.seen
}

// pacedWriter writes to a worker, at most rate bytes in a second. Each write may take as
// long as patience.
type pacedWriter struct {
	conn     net.Conn
	patience time.Duration
	rate     int64
	begun    time.Time
	done     int64
}

// Write implements io.Writer.
func (w *pacedWriter) Write(p []byte) (int, error) {
	_ = w.conn.SetWriteDeadline(time.Now().Add(w.patience))
	n, err := w.conn.Write(p)
	if w.done += int64(n); w.rate > 0 {
		time.Sleep(time.Duration(float64(w.done)/float64(w.rate)*float64(time.Second)) - time.Since(w.begun))
	}
	return n, err
}
