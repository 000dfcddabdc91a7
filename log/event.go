package log

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Event is one object created, updated or deleted. It holds the object's full
// state afterwards and the old values of what changed, so it explains itself,
// can be folded forwards without a history, and backwards with Revert.
type Event struct {
	Kind     Kind
	Action   Action
	ID       string   // the object's id
	Revision Revision // of the object, after the event
	Time     Time     // the servers' agreed clock; goes back along the log only where an operator set it
	Actor    string   // who asked, as the server authenticated them
	ChangeID UUID
	// More counts the events of the same change that follow this one: 0 is the
	// last. A stream never stops between two events of a change.
	More uint32
	// Scopes are those of the object before and after the event, sorted: who
	// is interested in either must hear of it (SAFETY F1).
	Scopes []Scope
	// Object is the state after; on delete the last state.
	Object Object
	// Changed are the fields of an update with their old values, in codec
	// order; empty on create and delete.
	Changed []FieldChange
	// Reverts are the entries that the change of the event takes back; from FeatureDeclared on.
	Reverts Reverts
	extra
}

// Hash is the chain hash at a seq: SHA-256 over the previous hash, the seq (8
// bytes, big endian) and the encoded event. It identifies the log up to there.
type Hash [sha256.Size]byte

// Next returns the hash of the entry that follows one with hash h.
func (h Hash) Next(seq Seq, event []byte) Hash {
	var room [1024]byte // most events fit: one call, and nothing on the heap
	b := append(room[:0], h[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(seq))
	return sha256.Sum256(append(b, event...))
}

// String returns 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// Prefix returns the first 8 bytes, as a Cursor carries them.
func (h Hash) Prefix() ChainPrefix { return ChainPrefix(h[:8]) }

// ChainPrefix is the first 8 bytes of a chain hash.
type ChainPrefix [8]byte

// String returns 16 hexadecimal digits.
func (p ChainPrefix) String() string { return hex.EncodeToString(p[:]) }

// ParseChainPrefix accepts exactly what ChainPrefix.String prints.
func ParseChainPrefix(text string) (ChainPrefix, error) {
	var p ChainPrefix
	if n, err := hex.Decode(p[:], []byte(text[:min(len(text), 16)])); err != nil || n != 8 || p.String() != text {
		return ChainPrefix{}, fmt.Errorf("chain prefix %q: want 16 lower-case hexadecimal digits", text)
	}
	return p, nil
}

// Entry is an event at its place in the log.
type Entry struct {
	Seq Seq
	// Hash is the chain hash at Seq. A filtered stream carries only its prefix;
	// then the rest is zero.
	Hash Hash
	// Bytes are the event as it was encoded, once, when it was applied. They
	// are what is stored, sent and hashed, and are never made again.
	Bytes []byte
}

// Event decodes the entry's event.
func (e Entry) Event() (*Event, error) {
	event, err := DecodeEvent(e.Bytes)
	if err != nil {
		return nil, fmt.Errorf("seq %d: %w", e.Seq, err)
	}
	return event, nil
}

// Cursor says which log, how far, and that it was this log. The zero value is
// "before the first entry of any log".
type Cursor struct {
	Cluster UUID
	Seq     Seq
	Chain   ChainPrefix // of the chain hash at Seq; zero at seq 0
}

// String returns cluster.seq.chain, as ParseCursor accepts it.
func (c Cursor) String() string {
	return c.Cluster.String() + "." + c.Seq.String() + "." + c.Chain.String()
}

// ParseCursor accepts exactly what Cursor.String prints.
func ParseCursor(text string) (Cursor, error) {
	bad := func(why error) (Cursor, error) {
		return Cursor{}, fmt.Errorf("cursor %q: %w; want CLUSTER-UUID.SEQ.CHAIN as a server printed it", text, why)
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return bad(fmt.Errorf("it has %d parts parted by dots", len(parts)))
	}
	cluster, err := ParseUUID(parts[0])
	if err != nil {
		return bad(err)
	}
	seq, err := ParseSeq(parts[1])
	if err != nil {
		return bad(err)
	}
	chain, err := ParseChainPrefix(parts[2])
	if err != nil {
		return bad(err)
	}
	c := Cursor{cluster, seq, chain}
	if c.String() != text {
		return bad(fmt.Errorf("it is not in the usual form"))
	}
	return c, nil
}

// MarshalText implements encoding.TextMarshaler.
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Cursor) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCursor(string(text))
	return err
}

// ETag returns the entity tag of an object (RFC 9110 section 8.8.3): revision and
// seq of its last event, in quotes, as in "3-1207". It is the same in every header
// Etag and in every item of the change feed. An object that was deleted and made
// again begins with revision 1 anew; the seq is never the same.
func ETag(revision Revision, seq Seq) string { return `"` + tagOf(revision, seq) + `"` }

func tagOf(revision Revision, seq Seq) string { return revision.String() + "-" + seq.String() }

// ParseETag reads what ETag returns; the quotes may be missing, as old clients
// leave them out.
func ParseETag(text string) (Revision, Seq, error) {
	bare := text
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		bare = text[1 : len(text)-1]
	}
	before, after, _ := strings.Cut(bare, "-")
	revision, err := strconv.ParseUint(before, 10, 64)
	if err == nil {
		var seq Seq
		if seq, err = ParseSeq(after); err == nil && revision > 0 && seq > 0 && tagOf(Revision(revision), seq) == bare {
			return Revision(revision), seq, nil
		}
	}
	return 0, 0, fmt.Errorf("etag %s: want one as an answer's header Etag has it, as in %s", text, ETag(3, 1207))
}

// Condition is what the operation asks of its object, as ETag has it without the
// quotes, or the revision alone if it gives no seq.
func (op *Op) Condition(revision Revision, seq Seq) (want, got string, met bool) {
	met = (op.IfMatch == 0 || op.IfMatch == revision) && (op.IfSeq == 0 || op.IfSeq == seq)
	if op.IfSeq == 0 {
		return op.IfMatch.String(), revision.String(), met
	}
	return tagOf(op.IfMatch, op.IfSeq), tagOf(revision, seq), met
}
