// Package skipped has the records by which operators take a cluster past a raft entry
// that stops every server: what such a record says, how a server keeps those that it
// has, and how two servers' records are compared. It neither reads an entry nor
// applies one.
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
	Most       = 64  // an operator's last resort, not a habit
	maxChanges = 64  // named in one skip; more are the whole entry
	maxReason  = 512 // bytes
)

// State is what became of a skip that was planted.
type State string

// The states of a skip. It is pending until apply comes to its index.
const (
	Pending State = "pending"
	Passed  State = "passed" // the entry was skipped, and the log says so
	Void    State = "void"   // another entry came to stand at the index, and was applied
)

// Planted is a skip with what became of it.
type Planted struct {
	Skip
	State State `json:"state"`
}

// Err: a skip does not fit the folder, or cannot be planted or taken back.
var Err = errors.New("raftstore: skip refused")

// EntryHash identifies an entry: the same at the same index on two servers is
// the same entry.
func EntryHash(entry *raft.Log) string {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, entry.Term))
	h.Write([]byte{byte(entry.Type)})
	h.Write(entry.Data)
	return hex.EncodeToString(h.Sum(nil))
}

// Check refuses what no skip can be.
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

// Sum identifies a skip.
func (k *Skip) Sum() digest.Sum {
	var changes []byte
	for _, id := range k.Changes {
		changes = append(changes, id[:]...)
	}
	numbers := binary.BigEndian.AppendUint64(nil, k.Index)
	numbers = binary.BigEndian.AppendUint64(numbers, uint64(k.Planted))
	return digest.Of(k.Cluster[:], numbers, []byte(k.Entry), k.ID[:], changes, []byte(k.Actor), []byte(k.Reason))
}

// List are those of one server, by index. A slice is never changed in place:
// heads share it.
type List []Planted

// at returns the place of the skip that waits for an index, or -1.
func (k List) PendingAt(index uint64) int {
	return slices.IndexFunc(k, func(p Planted) bool { return p.Index == index && p.State == Pending })
}

// With returns the skips with another one; there is none for its index.
func (k List) With(skip Skip) List {
	all := append(slices.Clone(k), Planted{skip, Pending})
	slices.SortFunc(all, func(a, b Planted) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// Become returns the skips with the one at a place in another state.
func (k List) Become(at int, state State) List {
	all := slices.Clone(k)
	all[at].State = state
	return all
}

// Settled returns the skips that wait for nothing.
func (k List) Settled() List {
	return slices.DeleteFunc(slices.Clone(k), func(p Planted) bool { return p.State == Pending })
}

// Digest is what was skipped, as part of a head's digest: nil if nothing was.
func (k List) Digest() []byte {
	var b []byte
	for i := range k {
		if k[i].State == Passed {
			b = append(b, k[i].Sum().Bytes()...)
		}
	}
	return b
}

// Plain are the skips without what became of them, which is no matter of agreement:
// a server may not have come to an entry yet.
func (k List) Plain() []Skip {
	var all []Skip
	for i := range k {
		all = append(all, k[i].Skip)
	}
	return all
}

// Differ says how the skips of another server differ, or "". It names the lowest
// raft index at which they do.
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

// Key is the row of the skips in meta; there is none if nothing was ever
// planted.
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

// Decode reads the row; none is no skips.
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

// Parse reads what a skip was written as.
func Parse(text []byte) (Skip, error) {
	var k Skip
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return k, fmt.Errorf("%w: it is not what rutter cluster skip wrote: %s", Err, plainJSON(err))
	}
	return k, k.Check()
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

// Refusal is what the changes of a skip get. Servers compare it: its text stays
// as it is.
func (k *Skip) Refusal(id log.UUID) *log.Refusal {
	what := fmt.Sprintf("was skipped by an operator, with raft entry %d: it was not applied, and will not be", k.Index)
	return &log.Refusal{
		Code: log.CodeSkipped, Message: fmt.Sprintf("change id %s %s", id, what),
		Errors: []log.FieldError{{Field: "id", Code: log.ElementInvalid, Message: what, Remedy: "the setting " + k.Setting() + " says who did it and why; do not send the same again under a new id, since the change may be what stopped the servers"}},
	}
}

// Setting names the object that records a skip: one for each entry there can be.
func (k *Skip) Setting() string { return fmt.Sprintf("raft.skip.%d.%.8s", k.Index, k.Entry) }

// record is the value of that object, as JSON. Servers hash it: fields are only
// added behind omitempty.
type record struct {
	Index   uint64     `json:"raft_index"`
	Entry   string     `json:"entry"`
	Changes []log.UUID `json:"changes,omitempty"`
	Reason  string     `json:"reason"`
	Planted log.Time   `json:"planted"`
}

// Record is the value of the setting that records the skip.
func (k *Skip) Record() (string, error) {
	value, err := json.Marshal(record{k.Index, k.Entry, k.Changes, k.Reason, k.Planted})
	return string(value), err
}
