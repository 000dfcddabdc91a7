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

// Lookups may answer from a state that is newer than the disk. If the process is killed
// then, and the servers continue without that mapping, the next process cannot tell its
// clients that the mapping is gone. So while the disk is behind, each mapping is noted
// in a file before it is answered, and counts as gone at the next start. The file is
// not synced: it protects against the end of the process; the clients on the node end
// with the node.
const (
	answerLogName = "told.db"
	// maxAnswers bounds the mappings that are noted between two transactions of the
	// cache. Further mappings are answered and not noted.
	maxAnswers = 1 << 13
	// answerSlot is the size in bytes of a position (8) and a row as in bucket gone.
	// The first slot has the position up to which nothing in the file counts any more.
	answerSlot = 8 + goneSize
)

// answerLogFile is the part of *os.File that answerLog uses.
type answerLogFile interface {
	io.WriterAt
	io.Closer
}

// answerLog is that file. A nil answerLog notes nothing.
type answerLog struct {
	logger *slog.Logger
	kept   atomic.Uint64 // the cache holds everything up to this position

	// inUse is held while the fields below are used. A write to a disk that hangs also
	// keeps it; waiters give up after diskPatience.
	inUse  chan struct{}
	hangs  atomic.Bool // a caller gave up waiting, and the write has not ended since
	file   answerLogFile
	slots  map[answerKey]int
	at     []uint64 // the position of each slot
	free   []int    // among them
	missed bool     // it was logged that a mapping could not be noted
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
	n, _ := f.ReadAt(b, 0) // a short file is new or was cut: what it has counts
	old := readAnswers(b[:n])
	t := &answerLog{logger: logger, inUse: make(chan struct{}, 1), file: f, slots: make(map[answerKey]int)}
	return t, old, nil
}

// readAnswers skips incomplete slots: they were being written.
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

// note writes a mapping that is about to be answered at a position into the file, if
// the cache is behind that position. It returns when the mapping survives a kill of the
// process, or when the disk hangs.
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
		t.hangs.Store(false) // after inUse is free, which cancelDial checks
		<-t.inUse
	}()
	select {
	case <-written:
	case <-patience.C:
		t.giveUp(written)
	}
}

// giveUp ends all waiting until the disk has taken a write.
func (t *answerLog) giveUp(written <-chan struct{}) {
	t.logger.Warn("SVP answers cannot be noted: the disk hangs")
	t.hangs.Store(true)
	select {
	case <-written: // the write has just ended
		t.hangs.Store(false) // after written is closed, which giveUp checks
	default:
	}
}

// row returns what to write for a mapping, and where. It is nil if nothing needs to be
// written.
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

// freeSlot returns a free slot, or -1.
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
		t.logger.Warn("SVP answers that the cache does not have yet cannot be noted: if this process is killed, a client may keep an outdated answer", "reason", reason)
	}
}

// begin sets the position at which a process begins: what its cache held came before
// it.
func (t *answerLog) begin(pos uint64) {
	if t != nil {
		t.kept.Store(pos)
	}
}

// keep records that the cache holds everything up to a position.
func (t *answerLog) keep(pos uint64) {
	if t == nil || pos <= t.kept.Load() {
		return
	}
	t.inUse <- struct{}{}
	defer func() { <-t.inUse }()
	if _, err := t.file.WriteAt(goneKey(pos), 0); err != nil {
		t.noteMissed(err.Error()) // then too many mappings count as gone at the next start
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
