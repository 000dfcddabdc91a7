package raftstore

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/notify"
	"rutter/raftstore/internal/raftlog"
)

// A full disk stops the changes that make the state grow, and nothing else (SAFETY P6).
// Each server measures the free space of its data folder, the free pages of its files
// included, and reports it to the others. A server below its low water has no space for
// growth. If less than a quorum of the voters has such space, the leader refuses creates
// and updates, and takes them again when there is space. The space below the low water is
// kept for deletes, and for retention and checkpoints, which free space. Below a quarter
// of it, the reserve, a server begins no write that could fail half-way: it takes no
// entries, and does not write changes.db. Raft's log has what changes.db lacks.

const (
	// spaceEvery is the time between two measurements of the data folder's file system. At
	// 100 MB/s, 5 MB are written in that time.
	spaceEvery = 50 * time.Millisecond
	// spaceAskEvery is the time between two rounds of requests to the other servers.
	spaceAskEvery = 500 * time.Millisecond
	// lowWaterBytes is the default low water, or a tenth of the file system if that is
	// less. It holds about ten seconds of the 100 MB/s that a server writes at full load,
	// or a checkpoint of half a million objects.
	lowWaterBytes = 1 << 30
	lowWaterShare = 10
	// walSpace is added to the low water for raft-wal, which allocates each file of its
	// log in full in advance.
	walSpace = raftlog.WALSegmentBytes
	// The reserve is lowWater/reserveShare. A server that was below a bound counts as
	// above it only when it has a quarter more (spaceSlack).
	reserveShare = 4
	spaceSlack   = 4
	// reserve/leastShare is kept for small writes that keep the cluster together: terms,
	// votes, and entries that are not changes; and for deletions of rows.
	leastShare = 4
	// spaceHandOverEvery is the least time between two attempts to hand the leadership to a
	// server that has space.
	spaceHandOverEvery = 5 * time.Second
	// earlyUpkeep is the least time between two rounds of upkeep that begin early for
	// lack of space.
	earlyUpkeep = 10 * time.Second
)

// Errors of free space on disk. Nothing was written.
var (
	// ErrNoRoom: too few servers have free space on their disks for growth. Deletes are
	// taken as long as there is a reserve for them.
	ErrNoRoom = log.ErrNoRoom
)

// Room is the free space of a server's data folder.
type Room struct {
	Free     int64 `json:"free_bytes"`      // of the file system, free for this process
	Usable   int64 `json:"usable_bytes"`    // Free, and the free pages of changes.db, less what waits to be written there
	LowWater int64 `json:"low_water_bytes"` // below it no growth is taken
	Low      bool  `json:"low"`             // below the low water
	Full     bool  `json:"full"`            // below the reserve: the server takes no entries
}

// spaceWatch holds what a store knows about free space, its own and the others'.
type spaceWatch struct {
	own   atomic.Pointer[Room]  // nil before the first measurement
	alarm atomic.Pointer[error] // why the cluster refuses growth; nil if it does not
	// Reasons why a file is not written now; nil if it is. file: changes.db. spare: not
	// even deletions of rows in changes.db. log: raft's log. last: not even terms and
	// votes in raft's log.
	file, spare, log, last atomic.Pointer[error]
	size                   atomic.Int64 // of the file system
	lowWaterNow            atomic.Int64 // replaces Config.DiskLowWater, unless 0; set by tests
	refused                atomic.Uint64
	upkeep                 chan struct{} // readable when upkeep should begin early

	mu     sync.Mutex
	others []memberReport // the last round's answers
	asked  bool           // there was a round
	gave   time.Time
}

// errorIn returns the error that p has; p may be nil.
func errorIn(p *atomic.Pointer[error]) error {
	if p == nil {
		return nil
	}
	err := p.Load()
	if err == nil {
		return nil
	}
	return *err
}

// lowWater returns the low water in bytes, for a file system of size bytes.
func (c *Config) lowWater(size int64) int64 {
	if c.DiskLowWater > 0 {
		return c.DiskLowWater
	}
	low := int64(lowWaterBytes)
	if c.RaftLog == raftlog.WAL {
		low += walSpace
	}
	return min(low, size/lowWaterShare)
}

// diskWatch watches the disk: whether it has free space, and whether it hangs.
type diskWatch struct {
	store *Store
	ops   *disk.Ops
	space spaceWatch
	stall stall
}

// measureSpace measures the data folder once.
func (d *diskWatch) measureSpace() {
	free, size := disk.Space(d.store.cfg.Dir)
	if size == 0 {
		return // the file system does not report it
	}
	d.judgeSpace(free, size, d.store.files.FreeBytes(), d.store.raftLog.FreeBytes(), int64(d.store.persister.Progress().LagBytes))
}

// judgeSpace sets what may be written, given the bytes that are free on the file system,
// in changes.db and in raft's log, and the bytes that wait to be written to changes.db.
func (d *diskWatch) judgeSpace(free, size, inFile, inLog, waiting int64) {
	w := &d.space
	low := cmp.Or(w.lowWaterNow.Load(), d.store.cfg.lowWater(size))
	reserve := low / reserveShare
	before := w.own.Load()
	if before == nil {
		before = new(Room)
	}
	// A value that was below a bound stays so until there is a quarter more.
	below := func(have, bound int64, was bool) bool {
		if was {
			bound += bound / spaceSlack
		}
		return have < bound
	}
	now := &Room{Free: free, Usable: free + inFile - waiting, LowWater: low}
	full := func(what string, have, bound int64, cause *atomic.Pointer[error]) bool {
		if !below(have, bound, cause.Load() != nil) {
			cause.Store(nil)
			return false
		}
		if cause.Load() == nil {
			err := fmt.Errorf("%w: %s has %d bytes left to grow by, the file system of %s %d free: free some there", ErrNoRoom, what, have, d.store.cfg.Dir, free)
			cause.Store(&err)
		}
		return true
	}
	inReserve := full("changes.db", free+inFile, reserve, &w.file)
	if full("raft's log", free+inLog, reserve, &w.log) {
		inReserve = true
	}
	full("changes.db", free+inFile, reserve/leastShare, &w.spare)
	full("raft's log", free+inLog, reserve/leastShare, &w.last)
	now.Full = inReserve
	now.Low = inReserve || below(now.Usable, low, before.Low)
	w.size.Store(size)
	w.own.Store(now)
	switch {
	case now.Full && !before.Full:
		d.store.logger.Error("no room on disk: this server takes no entries and leaves changes.db as it is until there is; it goes on to serve what it has", "free", free, "usable", now.Usable, "reserve", reserve, "folder", d.store.cfg.Dir)
	case now.Low && !before.Low:
		d.store.logger.Error("little room on disk: this server has none for what grows", "free", free, "usable", now.Usable, "low_water", low, "folder", d.store.cfg.Dir)
	case !now.Low && before.Low:
		d.store.logger.Info("there is room on disk again", "free", free, "usable", now.Usable)
	}
}

// Room returns the free space of this server's data folder at the last measurement.
func (s *Store) Room() Room {
	if r := s.disks.space.own.Load(); r != nil {
		return *r
	}
	return Room{}
}

// NoRoom returns why the cluster refuses growth, or nil. Within a second all servers
// return the same.
func (s *Store) NoRoom() error { return errorIn(&s.disks.space.alarm) }

// runSpace measures this server's disk and asks the others about theirs, until ctx is
// done.
func (d *diskWatch) runSpace(ctx context.Context, r *raft.Raft) {
	look, ask := time.NewTicker(spaceEvery), time.NewTicker(spaceAskEvery)
	defer look.Stop()
	defer ask.Stop()
	asking := make(chan struct{}, 1)
	var early time.Time
	for {
		select {
		case <-look.C:
			d.measureSpace()
			if d.store.Room().Low && time.Since(early) > earlyUpkeep {
				early = time.Now()
				notify.Send(d.space.upkeep)
			}
			d.judgeCluster(r)
		case <-ask.C:
			select {
			case asking <- struct{}{}:
				if !d.store.tasks.Start(func() {
					defer func() { <-asking }()
					d.askForSpace(ctx, r)
				}) {
					return
				}
			default: // the previous round is still under way
			}
		case <-ctx.Done():
			return
		}
	}
}

// askForSpace asks the others once. If this server leads and lacks space, but the cluster
// has space, it hands the leadership to a server that has.
func (d *diskWatch) askForSpace(ctx context.Context, r *raft.Raft) {
	others := d.store.members.reports(ctx, r)
	d.space.mu.Lock()
	d.space.others, d.space.asked = others, true
	d.space.mu.Unlock()
	d.judgeCluster(r)
	if !d.store.Room().Low || d.store.NoRoom() != nil || !d.store.lead.leading() || time.Since(d.space.gave) < spaceHandOverEvery {
		return
	}
	d.space.gave = time.Now()
	for _, o := range others {
		if !o.voter || o.troubled() || d.store.times.clocks.Agreement.Load().Wrong(o.ID) {
			continue
		}
		d.store.logger.Warn("no room on disk: giving the leadership to a server that has", "server", o.ID)
		err := d.store.lead.handOverTo(ctx, r, Member{ID: o.ID, Address: o.address})
		if err == nil {
			return
		}
		d.store.logger.Warn("it did not take the leadership", "error", err)
	}
}

// troubled reports whether a server's disk hangs or has no room.
func (i *identity) troubled() bool { return i.Stalled || i.Room != nil && i.Room.Low }

// judgeCluster sets whether enough voters have space for growth. A voter that does not
// answer counts as having none. A voter of an older program, which does not report its
// space, counts as having some.
func (d *diskWatch) judgeCluster(r *raft.Raft) {
	d.space.mu.Lock()
	others, asked := d.space.others, d.space.asked
	d.space.mu.Unlock()
	found := make(map[string]*identity)
	for i := range others {
		found[others[i].ID] = &others[i].identity
	}
	own := d.store.Room()
	found[d.store.cfg.ID] = &identity{ID: d.store.cfg.ID, Room: &own}
	voters, able := 0, 0
	low := ""
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if m.Suffrage != raft.Voter {
			continue
		}
		voters++
		i := found[string(m.ID)]
		switch {
		case i == nil:
		case i.Room != nil && i.Room.Low:
			low += fmt.Sprintf("%s has %d bytes left of a low water of %d, ", m.ID, i.Room.Usable, i.Room.LowWater)
		default:
			able++
		}
	}
	if !asked && voters > 1 {
		return
	}
	if low == "" || able > voters/2 {
		if d.space.alarm.Swap(nil) != nil {
			d.store.logger.Info("enough servers have room on disk again: creates and updates are taken")
		}
		return
	}
	err := fmt.Errorf("%w: %sand %d of %d servers have room: creates and updates are refused until a majority has; delete what is not needed, shorten the retention, compact the files (rutter snapshot compact), or give the disks more room", ErrNoRoom, low, able, voters)
	if d.space.alarm.Swap(&err) == nil {
		d.store.logger.Error("the cluster has no room on disk", "error", err)
	}
}

// grows reports whether a change makes the state grow: all except deletes.
func grows(c *log.Change) bool {
	for i := range c.Ops {
		if c.Ops[i].Action != log.Delete {
			return true
		}
	}
	return false
}

// spaceFor returns why the leader does not take a change for lack of space, or nil.
func (d *diskWatch) spaceFor(c *log.Change) error {
	err := errorIn(&d.space.log)
	if err == nil {
		err = errorIn(&d.space.file)
	}
	if err == nil && grows(c) {
		err = d.store.NoRoom()
	}
	if err != nil {
		d.space.refused.Add(1)
	}
	return err
}

// lagLimit is how many times Config.MaxLagEvents or MaxLagBytes a follower's changes.db
// may be behind before it takes no more entries, because it must keep them in memory
// until changes.db has them. The leader sends them again.
const lagLimit = 2

// behindOthers returns an error if this server's changes.db is too far behind for it to
// be ready. A leader refuses writes instead, and hands the leadership on (checkDisk).
func (d *diskWatch) behindOthers() error {
	if d.store.lead.leading() {
		return nil
	}
	return d.store.persister.Lagging(1)
}

// admit returns why entries are not stored now, or nil. If it returns an error, nothing
// is written. Raft reports it to the leader, which sends the entries again. A leader that
// cannot store its own entry loses the leadership.
//
// Entries that are not commands are small and keep the cluster together: they may use the
// part of the reserve that is kept for them.
func (d *diskWatch) admit(entries []*raft.Log) error {
	if err := errorIn(&d.space.last); err != nil {
		return err
	}
	commands := false
	for _, entry := range entries {
		commands = commands || entry.Type == raft.LogCommand
	}
	if !commands || d.store.appends() {
		return nil // spaceFor admitted a leader's commands, and they are few
	}
	if err := errorIn(&d.space.log); err != nil {
		return err
	}
	if err := errorIn(&d.space.file); err != nil {
		return err
	}
	return d.store.persister.Lagging(lagLimit)
}
