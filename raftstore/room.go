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

// A disk that is full stops what grows, and nothing else (SAFETY P6). Each server
// looks how much room its data folder has, the free pages of its files included, and
// tells the others. Below the low water it has none for what grows: if that leaves
// less than a quorum of the voters, the leader refuses creates and updates, and
// takes them again when there is room. What lies below the low water is kept for
// deletes, and for retention and checkpoints, which make room. Below a quarter of it,
// the reserve, a server begins no write that could fail half-way: it takes no entries
// and leaves changes.db as it is; raft's log has what is missing there.

const (
	// roomLook is the time between two looks at the data folder's file system. At
	// 100 MB/s 5 MB are written meanwhile.
	roomLook = 50 * time.Millisecond
	// roomAsk is the time between two rounds in which the others are asked.
	roomAsk = 500 * time.Millisecond
	// lowWaterBytes is the default low water, and a tenth of the file system if that
	// is less: some ten seconds of the 100 MB/s that a server writes at full load,
	// and a checkpoint of half a million objects.
	lowWaterBytes = 1 << 30
	lowWaterShare = 10
	// walRoom is added to it for raft-wal, which makes each file of its log in full
	// in advance, 64 MiB.
	walRoom = 64 << 20
	// Below lowWater/reserveShare is the reserve; a server leaves it when it has a
	// quarter more, and so the low water.
	reserveShare = 4
	roomSlack    = 4
	// leastShare of the reserve is kept for what is small and keeps the cluster
	// together: terms, votes, entries that are no changes; and for deletions of rows.
	leastShare = 4
	// roomHandOver is the least time between two tries to give the leadership to a
	// server that has room.
	roomHandOver = 5 * time.Second
	// earlyUpkeep is the least time between two rounds of upkeep that begin early
	// because there is no room.
	earlyUpkeep = 10 * time.Second
)

// Errors of the room on disk. In either case nothing was written.
var (
	// ErrNoRoom: too few servers have room on their disks for what grows. Deletes
	// are taken as long as there is a reserve for them.
	ErrNoRoom = log.ErrNoRoom
)

// Room is what a server's data folder has room for.
type Room struct {
	Free     int64 `json:"free_bytes"`      // of the file system, for us
	Usable   int64 `json:"usable_bytes"`    // that, and the free pages of changes.db
	LowWater int64 `json:"low_water_bytes"` // below it nothing that grows is taken
	Low      bool  `json:"low"`             // below the low water
	Full     bool  `json:"full"`            // below the reserve: takes no entries
}

// roomWatch is what a store knows of room, its own and the others'.
type roomWatch struct {
	own   atomic.Pointer[Room]  // nil before the first look
	alarm atomic.Pointer[error] // why the cluster refuses what grows; nil if it does not
	// file is why changes.db is not written, spare why not even rows are deleted
	// there, log why raft's log is not, and last why not even little is written to
	// it; nil if they are.
	file, spare, log, last atomic.Pointer[error]
	size                   atomic.Int64 // of the file system
	lowWaterNow            atomic.Int64 // in the place of Config.DiskLowWater; 0: that one; tests move it
	refused                atomic.Uint64
	upkeep                 chan struct{} // has one when upkeep should come early

	mu     sync.Mutex
	others []other // the last round's answers
	asked  bool    // there was one
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

// lowWater is the store's, for a file system of a size.
func (c *Config) lowWater(size int64) int64 {
	if c.DiskLowWater > 0 {
		return c.DiskLowWater
	}
	low := int64(lowWaterBytes)
	if c.RaftLog == raftlog.WAL {
		low += walRoom
	}
	return min(low, size/lowWaterShare)
}

// diskWatch is what a store knows of its disk: whether it has room, and whether it hangs.
type diskWatch struct {
	store *Store
	ops   *disk.Ops
	room  roomWatch
	stall stall
}

// lookForRoom looks at the data folder once.
func (d *diskWatch) lookForRoom() {
	free, size := disk.Space(d.store.cfg.Dir)
	if size == 0 {
		return // it does not say
	}
	d.judgeRoom(free, size, d.store.files.FreeBytes(), d.store.raftLog.FreeBytes(), int64(d.store.persister.Progress().LagBytes))
}

// judgeRoom says what there is room for, given bytes that are free on the file
// system, in changes.db and in raft's log, and those that wait for changes.db.
func (d *diskWatch) judgeRoom(free, size, inFile, inLog, waiting int64) {
	w := &d.room
	low := cmp.Or(w.lowWaterNow.Load(), d.store.cfg.lowWater(size))
	reserve := low / reserveShare
	before := w.own.Load()
	if before == nil {
		before = new(Room)
	}
	// What is below a bound stays so until there is a quarter more.
	below := func(have, bound int64, was bool) bool {
		if was {
			bound += bound / roomSlack
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

// Room returns what this server's data folder had room for at the last look.
func (s *Store) Room() Room {
	if r := s.disks.room.own.Load(); r != nil {
		return *r
	}
	return Room{}
}

// NoRoom says why the cluster takes nothing that grows, or nil. All servers say the
// same, within a second.
func (s *Store) NoRoom() error { return errorIn(&s.disks.room.alarm) }

// runRoom looks at this server's disk and asks the others about theirs, until ctx
// is done.
func (d *diskWatch) runRoom(ctx context.Context, r *raft.Raft) {
	look, ask := time.NewTicker(roomLook), time.NewTicker(roomAsk)
	defer look.Stop()
	defer ask.Stop()
	asking := make(chan struct{}, 1)
	var early time.Time
	for {
		select {
		case <-look.C:
			d.lookForRoom()
			if d.store.Room().Low && time.Since(early) > earlyUpkeep {
				early = time.Now()
				notify.Send(d.room.upkeep)
			}
			d.judgeCluster(r)
		case <-ask.C:
			select {
			case asking <- struct{}{}:
				if !d.store.tasks.Start(func() {
					defer func() { <-asking }()
					d.askForRoom(ctx, r)
				}) {
					return
				}
			default: // the last round is still under way
			}
		case <-ctx.Done():
			return
		}
	}
}

// askForRoom asks the others once, and gives the leadership to one with room if
// this server has none and the cluster has.
func (d *diskWatch) askForRoom(ctx context.Context, r *raft.Raft) {
	others := d.store.members.othersOf(ctx, r)
	d.room.mu.Lock()
	d.room.others, d.room.asked = others, true
	d.room.mu.Unlock()
	d.judgeCluster(r)
	if !d.store.Room().Low || d.store.NoRoom() != nil || !d.store.lead.leading() || time.Since(d.room.gave) < roomHandOver {
		return
	}
	d.room.gave = time.Now()
	for _, o := range others {
		if !o.voter || o.troubled() || d.store.times.clocks.Agreement.Load().Wrong(o.ID) {
			continue
		}
		d.store.logger.Warn("no room on disk: giving the leadership to a server that has", "server", o.ID)
		err := d.store.lead.handTo(ctx, r, Member{ID: o.ID, Address: o.address})
		if err == nil {
			return
		}
		d.store.logger.Warn("it did not take the leadership", "error", err)
	}
}

// troubled reports whether a server's disk hangs or has no room.
func (i *identity) troubled() bool { return i.Stalled || i.Room != nil && i.Room.Low }

// judgeCluster says whether enough voters have room for what grows. One that does
// not answer is not counted on; one of an older program, which does not tell, is.
func (d *diskWatch) judgeCluster(r *raft.Raft) {
	d.room.mu.Lock()
	others, asked := d.room.others, d.room.asked
	d.room.mu.Unlock()
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
		if d.room.alarm.Swap(nil) != nil {
			d.store.logger.Info("enough servers have room on disk again: creates and updates are taken")
		}
		return
	}
	err := fmt.Errorf("%w: %sand %d of %d servers have room: creates and updates are refused until a majority has; delete what is not needed, shorten the retention, compact the files (rutter snapshot compact), or give the disks more room", ErrNoRoom, low, able, voters)
	if d.room.alarm.Swap(&err) == nil {
		d.store.logger.Error("the cluster has no room on disk", "error", err)
	}
}

// grows reports whether a change adds to the state: all but deletes.
func grows(c *log.Change) bool {
	for i := range c.Ops {
		if c.Ops[i].Action != log.Delete {
			return true
		}
	}
	return false
}

// roomFor says why the leader does not take a change, or nil.
func (d *diskWatch) roomFor(c *log.Change) error {
	err := errorIn(&d.room.log)
	if err == nil {
		err = errorIn(&d.room.file)
	}
	if err == nil && grows(c) {
		err = d.store.NoRoom()
	}
	if err != nil {
		d.room.refused.Add(1)
	}
	return err
}

// lagLimit is how many times Config.MaxLagEvents or MaxLagBytes a follower may be
// behind before it takes no more: what it takes, it must keep in memory until its
// changes.db has it. The leader sends it again.
const lagLimit = 2

// behindOthers says that this server's changes.db is too far behind to be ready, or
// nil. A leader refuses writes instead, and gives the leadership away (checkDisk).
func (d *diskWatch) behindOthers() error {
	if d.store.lead.leading() {
		return nil
	}
	return d.store.persister.Lagging(1)
}

// admit says why entries are not stored now, or nil; nothing is written then. Raft
// tells the leader so, which sends them again; a leader that cannot store its own
// entry is none any more.
//
// What is no command is little, and keeps the cluster together: it may use what is
// kept of the reserve.
func (d *diskWatch) admit(entries []*raft.Log) error {
	if err := errorIn(&d.room.last); err != nil {
		return err
	}
	commands := false
	for _, entry := range entries {
		commands = commands || entry.Type == raft.LogCommand
	}
	if !commands || d.store.appends() {
		return nil // a leader's commands were let in by roomFor, and are few
	}
	if err := errorIn(&d.room.log); err != nil {
		return err
	}
	if err := errorIn(&d.room.file); err != nil {
		return err
	}
	return d.store.persister.Lagging(lagLimit)
}
