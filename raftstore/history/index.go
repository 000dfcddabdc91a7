package history

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/makeway"
	"rutter/raftstore/internal/readahead"
)

// The index of the past says which entries may concern an object, or mention a UUID. It
// consists of blocks, one for each segment of SegmentEvents entries. Upkeep writes a
// block in one step when its segment is full, off the path of the log, and never changes
// it, so an event costs no row of its own. A missing block (the newest entries, a file
// from before the index) is computed from the events, so an answer never depends on
// whether a block was written.
//
//	index  key: "e" | segment (8)
//	       | crc (4) | version (1) | fanout (4096 x 4) | entries (6 each) |
//
// An entry is the hash of a key (4) and the position in its segment (2), sorted. fanout
// has, for the upper 12 bits of a hash, the end of their entries. Two keys may have the
// same hash, so a caller that finds an entry must check its event.
var bucketIndex = []byte("index")

const (
	SegmentEvents = 1 << 14
	// indexVersion is the version of the blocks that are written. Blocks of version
	// indexFirst lack the UUIDs in old values: upkeep replaces them.
	indexVersion = 2
	indexFirst   = 1
	fanoutBits   = 12
	fanoutBytes  = 4 << fanoutBits
	blockHeader  = 4 + 1
	blockEntry   = 6
	// maxBlocks bounds the computed blocks that are kept in memory: enough for a log of
	// 10 million entries.
	maxBlocks = 640
)

// Types of keys of the index. The type is hashed with the key.
const (
	indexObject  = 'o' // kind and id
	indexMention = 'm' // a UUID in an event: its object's fields, and the old values of those
	indexKind    = 'k' // a kind of which there are few, or serverNICs
)

// serverNICs stands for the NICs of servers where a kind is expected.
const serverNICs = log.Kind(255)

// serverText is the part of the encoded form by which such a NIC is known.
var serverText = []byte("\xa6server")

func objectHash(kind log.Kind, id []byte) uint32 {
	return disk.Checksum([]byte{indexObject, byte(kind)}, id)
}

func mentionHash(uuid []byte) uint32 { return disk.Checksum([]byte{indexMention}, uuid) }

func kindHash(kind log.Kind) uint32 { return disk.Checksum([]byte{indexKind, byte(kind)}) }

func segmentOf(seq log.Seq) uint64 { return uint64(seq-1) / SegmentEvents }

func segmentKey(segment uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'e'}, segment) }

// many reports whether a kind has no key of its own.
func many(kind log.Kind) bool {
	return kind == log.KindNIC || kind == log.KindVM || kind == log.KindVMM
}

// changeIDToken is the number of the change id among an event's tokens, after that of its
// array. The index leaves out this UUID.
const changeIDToken = 7

// scanEvent calls add with the hash of each key of an encoded event.
func scanEvent(version byte, b []byte, add func(hash uint32)) error {
	kind, id, err := changesdb.EventObject(b)
	if err != nil {
		return err
	}
	add(objectHash(kind, id))
	if !many(kind) {
		add(kindHash(kind))
	} else if kind == log.KindNIC && bytes.Contains(b, serverText) {
		add(kindHash(serverNICs))
	}
	return changesdb.Mentions(b[1:], changeIDToken, func(value []byte, bin bool) {
		if bin {
			add(mentionHash(value))
		} else if uuid, err := log.ParseUUID(string(value)); err == nil && version != indexFirst {
			add(mentionHash(uuid[:]))
		}
	})
}

// block is the index of one segment, in its stored form.
type block []byte

// makeBlock computes the block of the events first to last, of one segment.
func makeBlock(tx *bbolt.Tx, version byte, first, last log.Seq, rests *makeway.Work) (block, error) {
	entries := make([]uint64, 0, 8*int(last-first+1))
	cursor := tx.Bucket(changesdb.BucketEvents).Cursor()
	want := first
	for key, row := cursor.Seek(changesdb.SeqKey(first)); want <= last; key, row = cursor.Next() {
		rests.Step()
		s, err := changesdb.ReadEvent(want, key, row)
		if err != nil {
			return nil, err
		}
		position := uint64(want-1) % SegmentEvents
		if err := scanEvent(version, s.Bytes, func(hash uint32) { entries = append(entries, uint64(hash)<<16|position) }); err != nil {
			return nil, fmt.Errorf("changes.db: event row %d: %w", want, err)
		}
		want++
	}
	slices.Sort(entries)
	return encodeBlock(version, slices.Compact(entries)), nil
}

func encodeBlock(version byte, entries []uint64) block {
	b := make(block, blockHeader+fanoutBytes, blockHeader+fanoutBytes+blockEntry*len(entries))
	b[4] = version
	next := 0
	for i, e := range entries {
		for upper := int(e >> (48 - fanoutBits)); next < upper; next++ {
			binary.BigEndian.PutUint32(b[blockHeader+4*next:], uint32(i))
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(e>>16)), byte(e>>8), byte(e))
	}
	for ; next < 1<<fanoutBits; next++ {
		binary.BigEndian.PutUint32(b[blockHeader+4*next:], uint32(len(entries)))
	}
	return b
}

// seal puts the checksum in, which covers the block's key.
func (b block) seal(key []byte) block {
	binary.BigEndian.PutUint32(b, disk.Checksum(key, b[4:]))
	return b
}

// checkBlock returns an error unless a stored block is whole.
func checkBlock(key []byte, b block) error {
	if len(b) < blockHeader+fanoutBytes || (len(b)-blockHeader-fanoutBytes)%blockEntry != 0 ||
		binary.BigEndian.Uint32(b) != disk.Checksum(key, b[4:]) {
		return fmt.Errorf("changes.db: index of segment %x: checksum does not fit: %w", key[1:], log.ErrCorrupt)
	}
	return nil
}

// find appends to to the seqs in [low, high] that a hash has in segment, in order.
func (b block) find(segment uint64, hash uint32, low, high log.Seq, to []log.Seq) []log.Seq {
	position := 0
	return b.findNext(&position, segment, hash, low, high, to)
}

// findNext is find for sorted hashes: place, at first 0, is the index of the previous
// hash, so that a block is read from its front to its end.
func (b block) findNext(position *int, segment uint64, hash uint32, low, high log.Seq, to []log.Seq) []log.Seq {
	fan := b[blockHeader:]
	upper := int(hash >> (32 - fanoutBits))
	at, end := *position, int(binary.BigEndian.Uint32(fan[4*upper:]))
	if upper > 0 {
		at = max(at, int(binary.BigEndian.Uint32(fan[4*(upper-1):])))
	}
	entries := b[blockHeader+fanoutBytes:]
	for ; at < end && binary.BigEndian.Uint32(entries[blockEntry*at:]) < hash; at++ {
	}
	*position = at // the same hash may come again
	for ; at < end; at++ {
		e := entries[blockEntry*at:]
		if binary.BigEndian.Uint32(e) != hash {
			break
		}
		if seq := log.Seq(segment*SegmentEvents) + 1 + log.Seq(binary.BigEndian.Uint16(e[4:])); seq >= low && seq <= high {
			to = append(to, seq)
		}
	}
	return to
}

// aheadBlocks is how many blocks of the index are requested from the kernel before they
// are read.
const aheadBlocks = 16

// blocks is a cache for one open file: which stored blocks are whole, and the computed
// blocks of full segments. It may be used concurrently.
type blocks struct {
	mu      sync.Mutex
	db      *bbolt.DB // of which it is
	checked map[uint64]bool
	made    map[uint64]block
}

// get returns the block of a segment whose entries first to last are in the file.
func (c *blocks) get(tx *bbolt.Tx, segment uint64, first, last log.Seq) (block, error) {
	checked, made := c.known(tx, segment)
	if made != nil {
		return made, nil
	}
	if b, err := c.storedBlock(tx, segment, checked); b != nil || err != nil {
		return b, err
	}
	first = max(first, log.Seq(segment*SegmentEvents)+1)
	end := log.Seq((segment + 1) * SegmentEvents)
	b, err := makeBlock(tx, indexVersion, first, min(last, end), nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if last >= end && len(c.made) < maxBlocks && c.db == tx.DB() {
		c.made[segment] = b
	}
	c.mu.Unlock()
	return b, nil
}

// known returns what is cached for a segment.
func (c *blocks) known(tx *bbolt.Tx, segment uint64) (checked bool, made block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != tx.DB() {
		c.db, c.checked, c.made = tx.DB(), map[uint64]bool{}, map[uint64]block{}
	}
	return c.checked[segment], c.made[segment]
}

// storedBlock returns the stored block of a segment; nil if there is none that this
// program knows. checked means that the block was already found to be whole.
func (c *blocks) storedBlock(tx *bbolt.Tx, segment uint64, checked bool) (block, error) {
	index := tx.Bucket(bucketIndex)
	if index == nil {
		return nil, nil
	}
	key := segmentKey(segment)
	b := block(index.Get(key))
	if len(b) <= blockHeader || b[4] != indexVersion && b[4] != indexFirst {
		return nil, nil
	}
	if !checked {
		if err := checkBlock(key, b); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.checked[segment] = c.db == tx.DB()
		c.mu.Unlock()
	}
	return b, nil
}

// ask requests the stored block of a segment from the kernel, unless it was read before.
func (c *blocks) ask(tx *bbolt.Tx, segment uint64) {
	c.mu.Lock()
	held := c.db == tx.DB() && (c.checked[segment] || c.made[segment] != nil)
	c.mu.Unlock()
	index := tx.Bucket(bucketIndex)
	if held || index == nil {
		return
	}
	if b := index.Get(segmentKey(segment)); len(b) > 0 {
		readahead.AskFor(b)
	}
}
