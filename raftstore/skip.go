package raftstore

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

// Skip is an operator's word that a cluster goes past a raft entry, or past some
// of its changes. It is planted in the folder of every server, while all are
// down (PlantSkip), and each server makes the same event of it when it comes to
// the entry, so that the log says what was done. Two servers whose skips differ
// do not talk raft to each other.
type Skip struct {
	Cluster log.UUID `json:"cluster"`
	Index   uint64   `json:"raft_index"`
	// Entry is SHA-256 over term, type and bytes of the entry, in hexadecimal. An
	// entry that was never committed may give its place to another one: then
	// the skip is void.
	Entry string `json:"entry"`
	// ID is the change id of the event that records the skip.
	ID log.UUID `json:"id"`
	// Changes are the changes of the entry that are skipped; none means all of it.
	Changes []log.UUID `json:"changes,omitempty"`
	Actor   string     `json:"actor"`
	Reason  string     `json:"reason"`
	Planted log.Time   `json:"planted"` // by the clock of the operator's machine
}

// Limits of a skip. All skips of a server stand in one row and in the greeting
// of each of its connections.
const (
	maxSkips       = 64  // an operator's last resort, not a habit
	maxSkipChanges = 64  // named in one skip; more are the whole entry
	maxSkipReason  = 512 // bytes
)

// SkipState is what became of a skip that was planted.
type SkipState string

// The states of a skip. It is pending until apply comes to its index.
const (
	SkipPending SkipState = "pending"
	SkipPassed  SkipState = "passed" // the entry was skipped, and the log says so
	SkipVoid    SkipState = "void"   // another entry came to stand at the index, and was applied
)

// PlantedSkip is a skip with what became of it.
type PlantedSkip struct {
	Skip
	State SkipState `json:"state"`
}

// ErrSkip: a skip does not fit the folder, or cannot be planted or taken back.
var ErrSkip = errors.New("raftstore: skip refused")

// entryHash identifies an entry: the same at the same index on two servers is
// the same entry.
func entryHash(entry *raft.Log) string {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, entry.Term))
	h.Write([]byte{byte(entry.Type)})
	h.Write(entry.Data)
	return hex.EncodeToString(h.Sum(nil))
}

// check refuses what no skip can be.
func (k *Skip) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrSkip}, args...)...)
	}
	raw, err := hex.DecodeString(k.Entry)
	switch {
	case k.Cluster.IsZero() || k.ID.IsZero() || k.Index == 0 || err != nil || len(raw) != sha256.Size:
		return bad("it names no cluster, id, raft index or entry: take the file that rutter cluster skip wrote")
	case k.Actor == "" || len(k.Actor) > log.MaxActorBytes:
		return bad("who skips is named by 1 to %d bytes, not %d: use --actor", log.MaxActorBytes, len(k.Actor))
	case strings.TrimSpace(k.Reason) == "" || len(k.Reason) > maxSkipReason:
		return bad("the reason has 1 to %d bytes, not %d: use --reason", maxSkipReason, len(k.Reason))
	case len(k.Changes) > maxSkipChanges:
		return bad("%d changes are named, and %d is the most: skip the whole entry", len(k.Changes), maxSkipChanges)
	}
	return nil
}

// sum identifies a skip.
func (k *Skip) sum() sum {
	var changes []byte
	for _, id := range k.Changes {
		changes = append(changes, id[:]...)
	}
	numbers := binary.BigEndian.AppendUint64(nil, k.Index)
	numbers = binary.BigEndian.AppendUint64(numbers, uint64(k.Planted))
	return hashOf(k.Cluster[:], numbers, []byte(k.Entry), k.ID[:], changes, []byte(k.Actor), []byte(k.Reason))
}

// skips are those of one server, by index. A slice is never changed in place:
// heads share it.
type skips []PlantedSkip

// at returns the place of the skip that waits for an index, or -1.
func (k skips) pendingAt(index uint64) int {
	return slices.IndexFunc(k, func(p PlantedSkip) bool { return p.Index == index && p.State == SkipPending })
}

// with returns the skips with another one; there is none for its index.
func (k skips) with(skip Skip) skips {
	all := append(slices.Clone(k), PlantedSkip{skip, SkipPending})
	slices.SortFunc(all, func(a, b PlantedSkip) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// become returns the skips with the one at a place in another state.
func (k skips) become(at int, state SkipState) skips {
	all := slices.Clone(k)
	all[at].State = state
	return all
}

// settled returns the skips that wait for nothing.
func (k skips) settled() skips {
	return slices.DeleteFunc(slices.Clone(k), func(p PlantedSkip) bool { return p.State == SkipPending })
}

// digest is what was skipped, as part of a head's digest: nil if nothing was.
func (k skips) digest() []byte {
	var b []byte
	for i := range k {
		if k[i].State == SkipPassed {
			b = append(b, k[i].sum().bytes()...)
		}
	}
	return b
}

// plain are the skips without what became of them, which is no matter of agreement:
// a server may not have come to an entry yet.
func (k skips) plain() []Skip {
	var all []Skip
	for i := range k {
		all = append(all, k[i].Skip)
	}
	return all
}

// differ says how the skips of another server differ, or "". It names the lowest
// raft index at which they do.
func (k skips) differ(theirs []Skip) string {
	ours := k.plain()
	for len(ours) > 0 || len(theirs) > 0 {
		switch {
		case len(theirs) == 0 || len(ours) > 0 && ours[0].Index < theirs[0].Index:
			return fmt.Sprintf("it has not planted the skip of raft index %d that this server has: with it stopped, run there: rutter cluster skip --data DIR --from FILE, with the file that was made here (rutter cluster skip --data DIR --list has it too)", ours[0].Index)
		case len(ours) == 0 || theirs[0].Index < ours[0].Index:
			return fmt.Sprintf("it has planted a skip of raft index %d, and this server has not: stop this one, and run: rutter cluster skip --data DIR --from FILE, with the file that was made there (rutter cluster skip --data DIR --list has it too)", theirs[0].Index)
		case ours[0].sum() != theirs[0].sum():
			return fmt.Sprintf("its skip of raft index %d is another one than this server's: take one of the two back (rutter cluster skip --data DIR --undo %d), and plant the other there, from its file", ours[0].Index, ours[0].Index)
		}
		ours, theirs = ours[1:], theirs[1:]
	}
	return ""
}

// keySkips is the row of the skips in meta; there is none if nothing was ever
// planted.
//
//	| crc (4) | version (1) | JSON of the skips |
var keySkips = []byte("skips")

func (k skips) row() ([]byte, error) {
	text, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	row := append(append(make([]byte, 4, 5+len(text)), metaVersion), text...)
	binary.BigEndian.PutUint32(row, disk.Checksum(keySkips, row[4:]))
	return row, nil
}

// decodeSkips reads the row; none is no skips.
func decodeSkips(row []byte) (skips, error) {
	if row == nil {
		return nil, nil
	}
	r, err := openMeta(keySkips, row)
	if err != nil {
		return nil, err
	}
	var k skips
	if err := json.Unmarshal(r.b, &k); err != nil {
		return nil, fmt.Errorf("changes.db: skips: %w: %w", log.ErrCorrupt, err)
	}
	return k, nil
}

// ParseSkip reads what a skip was written as.
func ParseSkip(text []byte) (Skip, error) {
	var k Skip
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return k, fmt.Errorf("%w: it is not what rutter cluster skip wrote: %s", ErrSkip, plainJSON(err))
	}
	return k, k.check()
}

// plainJSON says where JSON is wrong, without quoting it: it may be any file.
func plainJSON(err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("no JSON at byte %d", syntax.Offset)
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Sprintf("the field %s has another type", kind.Field)
	}
	return "it does not have the fields of a skip"
}
