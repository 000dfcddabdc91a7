package offline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog"
	"rutter/raftstore/skipped"
)

// errBeyondLog: raft's log of a folder ends before an index.
var errBeyondLog = fmt.Errorf("%w: the log ends before it", skipped.Err)

// Bounds of what is shown of an entry. Its bytes may be arbitrary.
const (
	maxShownChanges = 64
	maxShownOps     = 16
	maxShownText    = 128  // bytes of an id, actor or error
	maxShownReason  = 1024 // bytes of the reason why the server stopped: more than one stack frame
)

// EntryView is one entry of a stopped server's raft log, as far as it can be read. Texts
// from outside are cut, and escaped as in a quoted Go string.
type EntryView struct {
	Cluster      log.UUID `json:"cluster"`
	Index        uint64   `json:"raft_index"`
	Term         uint64   `json:"raft_term"`
	Entry        string   `json:"entry"` // the hash by which a Skip names it
	Command      string   `json:"command"`
	Bytes        int      `json:"bytes"`
	AppliedIndex uint64   `json:"applied_index"` // of changes.db
	Applied      bool     `json:"applied"`       // the entry is in changes.db
	LastIndex    uint64   `json:"last_index"`    // of raft's log
	// Undecoded is why the entry cannot be split into changes; "" if it can.
	Undecoded string       `json:"undecoded,omitempty"`
	Changes   []ChangeView `json:"changes,omitempty"`
	// Stopped is why the server stopped at the entry, if it did and noted it.
	Stopped *Stop `json:"stopped,omitempty"`

	raftType raft.LogType
	command  byte
}

// ChangeView is one change of an entry.
type ChangeView struct {
	ID        string   `json:"id,omitempty"` // empty if it cannot be read
	Actor     string   `json:"actor,omitempty"`
	Bytes     int      `json:"bytes"`
	Time      log.Time `json:"time,omitempty"` // the leader's stamp
	Undecoded string   `json:"undecoded,omitempty"`
	Ops       []OpView `json:"ops,omitempty"` // the first operations
	OpCount   int      `json:"op_count"`
}

// OpView is one operation of a change.
type OpView struct {
	Action string   `json:"action"`
	Kind   string   `json:"kind"`
	ID     string   `json:"id,omitempty"`
	Set    []string `json:"set,omitempty"`   // names of the set fields
	Bytes  int      `json:"bytes,omitempty"` // of the object, encoded; 0 if there is none
}

// shown returns a text from outside, cut and escaped, without quotes.
func shown(text string) string { return shownUpTo(text, maxShownText) }

func shownUpTo(text string, limit int) string {
	cut := text[:min(len(text), limit)]
	quoted := strconv.QuoteToASCII(cut)
	quoted = quoted[1 : len(quoted)-1]
	if len(cut) < len(text) {
		return fmt.Sprintf("%s... (%d bytes)", quoted, len(text))
	}
	return quoted
}

// ViewEntry shows an entry of the raft log in a folder that no server has open. Errors:
// skipped.Err if the log has no entry at index.
func ViewEntry(dir string, index uint64) (*EntryView, error) {
	v := &EntryView{Index: index}
	err := withChanges(dir, true, func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		v.Cluster, v.AppliedIndex, v.Applied = h.Cluster, h.Applied, index <= h.Applied
		return err
	})
	if err != nil {
		return nil, err
	}
	logs, done, err := raftlog.OpenToRead(filepath.Join(dir, raftlog.FileName))
	if err != nil {
		return nil, err
	}
	defer func() { _ = done() }() // nothing was written
	if v.LastIndex, err = logs.LastIndex(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, disk.ErrTrouble, err)
	}
	var entry raft.Log
	if err := logs.GetLog(index, &entry); err != nil {
		if index > v.LastIndex {
			return nil, fmt.Errorf("%w: raft index %d, and the last is %d", errBeyondLog, index, v.LastIndex)
		}
		if v.Applied {
			return nil, v.skippable()
		}
		return nil, fmt.Errorf("%s: entry %d: %w: %w", dir, index, disk.ErrTrouble, err)
	}
	v.fill(&entry)
	v.Stopped = readStop(dir, index)
	return v, nil
}

// StopFile is the file in the data folder that names the entry that last stopped the
// server. It is for operators; nothing depends on it.
const StopFile = "stopped.json"

// Stop is the content of StopFile: the entry that stopped a server, and why.
type Stop struct {
	Index uint64    `json:"raft_index"`
	Error string    `json:"error"` // cut
	At    time.Time `json:"at"`
}

// readStop returns what the server noted when it stopped at an entry, or nil.
func readStop(dir string, index uint64) *Stop {
	text, err := os.ReadFile(filepath.Join(dir, StopFile))
	var stop Stop
	if err != nil || json.Unmarshal(text, &stop) != nil || stop.Index != index {
		return nil
	}
	stop.Error = shownUpTo(stop.Error, maxShownReason)
	return &stop
}

// fill sets the fields that show the content of the entry.
func (v *EntryView) fill(entry *raft.Log) {
	v.Term, v.Entry, v.Bytes, v.raftType = entry.Term, skipped.EntryHash(entry), len(entry.Data), entry.Type
	if entry.Type != raft.LogCommand {
		v.Command = fmt.Sprintf("an entry of raft's own, %s", entry.Type)
		return
	}
	if len(entry.Data) == 0 {
		v.Command = "nothing"
		return
	}
	names := map[byte]string{command.Batch: "batch of changes", command.Genesis: "the founding of the cluster", command.Floor: "floor", command.Retention: "retention", command.Feature: "feature version"}
	v.command = entry.Data[0]
	v.Command = names[v.command]
	if v.Command == "" {
		v.Command = fmt.Sprintf("command %d, which this program does not know: a newer one may", v.command)
	}
	if v.command != command.Batch {
		return
	}
	changes, err := log.SplitBatch(entry.Data[1:])
	if err != nil {
		v.Undecoded = shown(err.Error())
	}
	for _, raw := range changes {
		v.Changes = append(v.Changes, viewChange(raw, len(v.Changes) < maxShownChanges))
	}
}

// viewChange shows a change, or, unless whole, only its id and size.
func viewChange(raw []byte, whole bool) (view ChangeView) {
	view.Bytes = len(raw)
	if id, ok := log.ChangeID(raw); ok {
		view.ID = id.String()
	}
	if !whole {
		return view
	}
	// Decoding may panic here as it did in the servers.
	defer func() {
		if p := recover(); p != nil {
			view.Undecoded = "panic: " + shown(fmt.Sprint(p))
		}
	}()
	c, err := log.DecodeChange(raw)
	if err != nil {
		view.Undecoded = shown(err.Error())
		return view
	}
	view.Actor, view.Time, view.OpCount = shown(c.Actor), c.Time, len(c.Ops)
	enc := log.NewEncoder()
	for _, op := range c.Ops[:min(len(c.Ops), maxShownOps)] {
		o := OpView{Action: op.Action.String(), Kind: op.Kind.String(), ID: shown(op.ID)}
		for _, name := range op.Set[:min(len(op.Set), maxShownOps)] {
			o.Set = append(o.Set, shown(name))
		}
		if op.Object != nil {
			if o.ID == "" {
				o.ID = shown(op.Object.ID())
			}
			if b, err := enc.Object(op.Object); err == nil {
				o.Bytes = len(b)
			}
		}
		view.Ops = append(view.Ops, o)
	}
	return view
}
