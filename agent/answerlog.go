package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"rutter/log"
)

// What lookups tell may be newer than what the disk holds. If the process is
// killed then, and the servers go on with a list in which it is no more, nobody
// would know what its clients still believe. So while the disk is behind, each
// mapping that is told is noted in a file first, and counts as gone at the next
// start. It is not synced: it is the process that may end, and clients on the
// node end with the node.
const (
	answerLogName = "told.db"
	// maxAnswers bounds the mappings that were told between two transactions of the
	// cache. More are told and not noted.
	maxAnswers = 1 << 13
	// answerSlot is a position (8) and a row as of bucket gone; the first slot has
	// the position up to which nothing of the file counts any more.
	answerSlot = 8 + goneSize
)

// answerLogFile is what tellings need of an *os.File.
type answerLogFile interface {
	io.WriterAt
	io.Closer
}

// answerLog is that file. A nil one notes nothing.
type answerLog struct {
	logger *slog.Logger
	kept   atomic.Uint64 // the cache holds what came up to this position

	// inUse is held by who has it in hand what follows: also by a write that a disk
	// which hangs does not end, for which nobody waits longer than diskPatience.
	inUse  chan struct{}
	hangs  atomic.Bool // somebody gave up waiting, and the write has not ended since
	file   answerLogFile
	slots  map[answerKey]int
	at     []uint64 // the position of each slot
	free   []int    // among them
	missed bool     // it was said that a mapping could not be noted
}

type answerKey struct {
	vnet uint32
	mac  log.MAC
	ip   netip.Addr
}

// openAnswerLog opens or makes the file in folder, and returns the mappings in it.
func openAnswerLog(folder string, logger *slog.Logger) (*answerLog, []Change, error) {
	f, err := os.OpenFile(filepath.Join(folder, answerLogName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("agent: %w", err)
	}
	b := make([]byte, (1+maxAnswers)*answerSlot)
	n, _ := f.ReadAt(b, 0) // a short one is new, or was cut: what is there counts
	old := readAnswers(b[:n])
	t := &answerLog{logger: logger, inUse: make(chan struct{}, 1), file: f, slots: make(map[answerKey]int)}
	return t, old, nil
}

// readAnswers passes over what is not whole: it was being written.
func readAnswers(b []byte) (changes []Change) {
	if len(b) < answerSlot {
		return nil
	}
	kept := binary.BigEndian.Uint64(b)
	for b = b[answerSlot:]; len(b) >= answerSlot; b = b[answerSlot:] {
		if c, err := decodeGone(b[:8], b[8:answerSlot]); err == nil && c.Pos > kept {
			changes = append(changes, c)
		}
	}
	return changes
}

// note puts a mapping that is told at a position into the file, if the cache is
// behind that. It returns when a killed process has it, or the disk hangs.
func (t *answerLog) note(pos uint64, vnet uint32, mac log.MAC, ip netip.Addr) {
	if t == nil || t.kept.Load() >= pos || t.hangs.Load() {
		return
	}
	patience := time.NewTimer(diskPatience)
	defer patience.Stop()
	select {
	case t.inUse <- struct{}{}:
	case <-patience.C:
		return
	}
	row, at := t.row(pos, vnet, mac, ip)
	if row == nil {
		<-t.inUse
		return
	}
	written := make(chan struct{})
	go func() {
		if _, err := t.file.WriteAt(row, at); err != nil {
			t.noteMissed(err.Error())
		}
		close(written)
		t.hangs.Store(false) // after the other, which cancelDial looks at
		<-t.inUse
	}()
	select {
	case <-written:
	case <-patience.C:
		t.giveUp(written)
	}
}

// cancelDial has nobody wait until the disk has taken a write.
func (t *answerLog) giveUp(written <-chan struct{}) {
	t.logger.Warn("what SVP tells cannot be noted: the disk hangs")
	t.hangs.Store(true)
	select {
	case <-written: // just now
		t.hangs.Store(false)
	default:
	}
}

// row returns what is to be written for a mapping and where, nil if nothing is.
func (t *answerLog) row(pos uint64, vnet uint32, mac log.MAC, ip netip.Addr) (row []byte, at int64) {
	key := answerKey{vnet, mac, ip}
	slot, again := t.slots[key]
	if again && t.at[slot] == pos {
		return nil, 0
	}
	if !again {
		if slot = t.freeSlot(); slot < 0 {
			t.noteMissed("there is no room in the file")
			return nil, 0
		}
		t.slots[key] = slot
	}
	t.at[slot] = pos
	place := Place{VNet: vnet, MAC: mac, IP: ip}
	row = goneKey(pos)
	return append(row, encodeGone(row, &place)...), int64(1+slot) * answerSlot
}

// freeSlot returns a slot that is free, or -1.
func (t *answerLog) freeSlot() int {
	if len(t.free) == 0 && len(t.at) == maxAnswers {
		kept := t.kept.Load()
		for key, slot := range t.slots {
			if t.at[slot] <= kept {
				delete(t.slots, key)
				t.free = append(t.free, slot)
			}
		}
	}
	switch n := len(t.free); {
	case n > 0:
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		return slot
	case len(t.at) < maxAnswers:
		t.at = append(t.at, 0)
		return len(t.at) - 1
	}
	return -1
}

func (t *answerLog) noteMissed(reason string) {
	if !t.missed {
		t.missed = true
		t.logger.Warn("what SVP tells before the cache holds it cannot be noted: if this process is killed, a client may go on believing it", "reason", reason)
	}
}

// begin says where a process begins: what its cache held came before.
func (t *answerLog) begin(pos uint64) {
	if t != nil {
		t.kept.Store(pos)
	}
}

// keep notes that the cache holds what came up to a position.
func (t *answerLog) keep(pos uint64) {
	if t == nil || pos <= t.kept.Load() {
		return
	}
	t.inUse <- struct{}{}
	defer func() { <-t.inUse }()
	if _, err := t.file.WriteAt(goneKey(pos), 0); err != nil {
		t.noteMissed(err.Error()) // too much counts as gone at the next start
	}
	t.kept.Store(pos)
}

func (t *answerLog) close() error {
	if t == nil {
		return nil
	}
	t.inUse <- struct{}{}
	defer func() { <-t.inUse }()
	if err := t.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
