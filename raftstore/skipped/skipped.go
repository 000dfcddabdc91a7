// Package skipped has the records by which operators take a cluster past a raft entry
// that stops every server: the content of a record, how a server stores its records, and
// how the records of two servers are compared. It neither reads nor applies entries.
package skipped

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
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/internal/metarow"
)

// Skip is an operator's order that a cluster skips a raft entry, or some of its changes.
// It is planted in the folder of every server, while all are stopped (offline.PlantSkip).
// Each server makes the same event of it when it reaches the entry, so that the log
// records what was done. Two servers whose skips differ refuse each other's raft
// connections.
type Skip struct {
	Cluster log.UUID `json:"cluster"`
	Index   uint64   `json:"raft_index"`
	// Entry is SHA-256 over term, type and bytes of the entry, in hexadecimal. An entry
	// that was never committed may be replaced by another one at its index: then the skip
	// is void.
	Entry string `json:"entry"`
	// ID is the change id of the event that records the skip.
	ID log.UUID `json:"id"`
	// Changes are the changes of the entry that are skipped; empty means the whole entry.
	Changes []log.UUID `json:"changes,omitempty"`
	Actor   string     `json:"actor"`
	Reason  string     `json:"reason"`
	Planted log.Time   `json:"planted"` // time by the clock of the operator's machine
}

// Limits of skips. All skips of a server are in one row, and in the greeting of each of
// its connections.
const (
	Most       = 64  // skips of one server: they are a last resort
	maxChanges = 64  // named in one skip; for more, skip the whole entry
	maxReason  = 512 // bytes
)

// State is the state of a planted skip.
type State string

// The states of a skip. It is pending until apply reaches its index.
const (
	Pending State = "pending"
	Passed  State = "passed" // the entry was skipped, and the log records that
	Void    State = "void"   // another entry was at the index, and was applied
)

// Planted is a skip with its state.
type Planted struct {
	Skip
	State State `json:"state"`
}

// Err: a skip does not fit the folder, or cannot be planted or taken back.
var Err = errors.New("raftstore: skip refused")

// EntryHash identifies an entry: if two servers have the same hash at the same index,
// they have the same entry.
func EntryHash(entry *raft.Log) string {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, entry.Term))
	h.Write([]byte{byte(entry.Type)})
	h.Write(entry.Data)
	return hex.EncodeToString(h.Sum(nil))
}

// Check returns an error unless k is a valid skip.
func (k *Skip) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{Err}, args...)...)
	}
	raw, err := hex.DecodeString(k.Entry)
	switch {
	case k.Cluster.IsZero() || k.ID.IsZero() || k.Index == 0 || err != nil || len(raw) != sha256.Size:
		return bad("it names no cluster, id, raft index or entry: take the file that rutter cluster skip wrote")
	case k.Actor == "" || len(k.Actor) > log.MaxActorBytes:
		return bad("who skips is named by 1 to %d bytes, not %d: use --actor", log.MaxActorBytes, len(k.Actor))
	case strings.TrimSpace(k.Reason) == "" || len(k.Reason) > maxReason:
		return bad("the reason has 1 to %d bytes, not %d: use --reason", maxReason, len(k.Reason))
	case len(k.Changes) > maxChanges:
		return bad("%d changes are named, and %d is the most: skip the whole entry", len(k.Changes), maxChanges)
	}
	return nil
}

// Sum returns a hash that identifies a skip.
func (k *Skip) Sum() digest.Sum {
	var changes []byte
	for _, id := range k.Changes {
		changes = append(changes, id[:]...)
	}
	numbers := binary.BigEndian.AppendUint64(nil, k.Index)
	numbers = binary.BigEndian.AppendUint64(numbers, uint64(k.Planted))
	return digest.Of(k.Cluster[:], numbers, []byte(k.Entry), k.ID[:], changes, []byte(k.Actor), []byte(k.Reason))
}

// List is the skips of one server, by index. A List is never changed in place, because
// heads share it.
type List []Planted

// PendingAt returns the position of the pending skip for a raft index, or -1.
func (k List) PendingAt(index uint64) int {
	return slices.IndexFunc(k, func(p Planted) bool { return p.Index == index && p.State == Pending })
}

// With returns the list with one more skip. There must be none for its raft index.
func (k List) With(skip Skip) List {
	all := append(slices.Clone(k), Planted{skip, Pending})
	slices.SortFunc(all, func(a, b Planted) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// Become returns the list with the skip at a position in another state.
func (k List) Become(at int, state State) List {
	all := slices.Clone(k)
	all[at].State = state
	return all
}

// Settled returns the skips that are not pending.
func (k List) Settled() List {
	return slices.DeleteFunc(slices.Clone(k), func(p Planted) bool { return p.State == Pending })
}

// Digest returns the part of a head's digest for what was skipped; nil if nothing was.
func (k List) Digest() []byte {
	var b []byte
	for i := range k {
		if k[i].State == Passed {
			b = append(b, k[i].Sum().Bytes()...)
		}
	}
	return b
}

// Plain returns the skips without their states. Servers need not agree on the states,
// because one of them may not have reached an entry yet.
func (k List) Plain() []Skip {
	var all []Skip
	for i := range k {
		all = append(all, k[i].Skip)
	}
	return all
}

// Differ describes how the skips of another server differ, or returns "". It names the
// lowest raft index at which they differ.
func (k List) Differ(theirs []Skip) string {
	ours := k.Plain()
	for len(ours) > 0 || len(theirs) > 0 {
		switch {
		case len(theirs) == 0 || len(ours) > 0 && ours[0].Index < theirs[0].Index:
			return fmt.Sprintf("it has not planted the skip of raft index %d that this server has: with it stopped, run there: rutter cluster skip --data DIR --from FILE, with the file that was made here (rutter cluster skip --data DIR --list has it too)", ours[0].Index)
		case len(ours) == 0 || theirs[0].Index < ours[0].Index:
			return fmt.Sprintf("it has planted a skip of raft index %d, and this server has not: stop this one, and run: rutter cluster skip --data DIR --from FILE, with the file that was made there (rutter cluster skip --data DIR --list has it too)", theirs[0].Index)
		case ours[0].Sum() != theirs[0].Sum():
			return fmt.Sprintf("its skip of raft index %d is another one than this server's: take one of the two back (rutter cluster skip --data DIR --undo %d), and plant the other there, from its file", ours[0].Index, ours[0].Index)
		}
		ours, theirs = ours[1:], theirs[1:]
	}
	return ""
}

// Key is the key of the row of the skips in bucket meta. There is no row if no skip was
// ever planted.
//
//	| crc (4) | version (1) | JSON of the skips |
var Key = []byte("skips")

// Row returns the stored form of the list, under Key.
func (k List) Row() ([]byte, error) {
	text, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	row := append(metarow.New(len(text)), text...)
	return metarow.Seal(Key, row), nil
}

// Decode reads the row. Without a row there are no skips.
func Decode(row []byte) (List, error) {
	if row == nil {
		return nil, nil
	}
	r, err := metarow.Open(Key, row)
	if err != nil {
		return nil, err
	}
	var k List
	if err := json.Unmarshal(r.Rest, &k); err != nil {
		return nil, fmt.Errorf("changes.db: skips: %w: %w", log.ErrCorrupt, err)
	}
	return k, nil
}

// Parse reads a skip from its JSON text.
func Parse(text []byte) (Skip, error) {
	var k Skip
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return k, fmt.Errorf("%w: it is not what rutter cluster skip wrote: %s", Err, plainJSON(err))
	}
	return k, k.Check()
}

// plainJSON describes an error of JSON without quoting the text, because it may be any
// file.
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

// Refusal returns the refusal of the changes of a skip. Servers compare it, so its text
// must not change.
func (k *Skip) Refusal(id log.UUID) *log.Refusal {
	what := fmt.Sprintf("was skipped by an operator, with raft entry %d: it was not applied, and will not be", k.Index)
	return &log.Refusal{
		Code: log.CodeSkipped, Message: fmt.Sprintf("change id %s %s", id, what),
		Errors: []log.FieldError{{Field: "id", Code: log.ElementInvalid, Message: what, Remedy: "the setting " + k.Setting() + " says who did it and why; do not send the same again under a new id, since the change may be what stopped the servers"}},
	}
}

// Setting returns the name of the object that records a skip. Each entry has its own
// name.
func (k *Skip) Setting() string { return fmt.Sprintf("raft.skip.%d.%.8s", k.Index, k.Entry) }

// record is the value of that object, as JSON. Servers hash it, so fields may only be
// added with omitempty.
type record struct {
	Index   uint64     `json:"raft_index"`
	Entry   string     `json:"entry"`
	Changes []log.UUID `json:"changes,omitempty"`
	Reason  string     `json:"reason"`
	Planted log.Time   `json:"planted"`
}

// Record returns the value of the setting that records the skip.
func (k *Skip) Record() (string, error) {
	value, err := json.Marshal(record{k.Index, k.Entry, k.Changes, k.Reason, k.Planted})
	return string(value), err
}
