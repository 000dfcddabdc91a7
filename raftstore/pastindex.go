package raftstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

// The index of the past says which entries may concern an object, or mention a
// UUID. It is made of blocks, one for each segment of segmentEvents entries,
// which never change once their segment is full: they are written by upkeep in
// one go, off the path of the log, so that an event costs no row of its own. A
// block that is not there (the tail, a file of before the index) is computed
// from the events, so an answer never depends on whether one was written.
//
//	index  key: "e" | segment (8)
//	       | crc (4) | version (1) | fanout (4096 x 4) | entries (6 each) |
//
// An entry is the hash of a key (4) and the place in its segment (2), sorted;
// fanout says for the upper 12 bits of a hash where those entries end. A hash
// may be that of two keys, so whoever finds an entry looks at its event.
var bucketIndex = []byte("index")

const (
	segmentEvents = 1 << 14
	// indexVersion is of the blocks that are written. Those of indexFirst lack
	// the UUIDs that stand in old values: upkeep replaces them.
	indexVersion = 2
	indexFirst   = 1
	fanoutBits   = 12
	fanoutBytes  = 4 << fanoutBits
	blockHeader  = 4 + 1
	blockEntry   = 6
	// maxBlocks bounds the computed blocks that are kept in memory: those of a
	// log of 10 million entries.
	maxBlocks = 640
)

// What a key of the index is of, which is hashed with it.
const (
	indexObject  = 'o' // kind and id
	indexMention = 'm' // a UUID in an event: its object's fields, and the old values of those
	indexKind    = 'k' // a kind of which there are few, or serverNICs
)

// serverNICs names the NICs of servers in place of a kind.
const serverNICs = log.Kind(255)

// serverText is how the encoded form of such a NIC says it.
var serverText = []byte("\xa6server")

func objectHash(kind log.Kind, id []byte) uint32 {
	return disk.Checksum([]byte{indexObject, byte(kind)}, id)
}

func mentionHash(uuid []byte) uint32 { return disk.Checksum([]byte{indexMention}, uuid) }

func kindHash(kind log.Kind) uint32 { return disk.Checksum([]byte{indexKind, byte(kind)}) }

func segmentOf(seq log.Seq) uint64 { return uint64(seq-1) / segmentEvents }

func segmentKey(segment uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'e'}, segment) }

// many reports whether a kind has no key of its own.
func many(kind log.Kind) bool {
	return kind == log.KindNIC || kind == log.KindVM || kind == log.KindVMM
}

// token reads one msgpack element's head from the front of b: the length of the
// head, of the payload after it, and whether that is binary. What an array
// holds follows as tokens of its own.
func token(b []byte) (head, payload int, bin bool, err error) {
	size := func(n int) (int, int, bool, error) {
		if len(b) < 1+n {
			return 0, 0, false, log.ErrCorrupt
		}
		for _, c := range b[1 : 1+n] {
			payload = payload<<8 | int(c)
		}
		return 1 + n, payload, false, nil
	}
	switch c := b[0]; {
	case c < 0xa0 || c >= 0xe0: // small numbers, small maps and arrays
		return 1, 0, false, nil
	case c < 0xc0:
		return 1, int(c & 0x1f), false, nil
	case c <= 0xc3:
		return 1, 0, false, nil
	case c <= 0xc6:
		head, payload, _, err = size(1 << (c - 0xc4))
		return head, payload, true, err
	case c == 0xca, c == 0xce, c == 0xd2:
		return 1, 4, false, nil
	case c == 0xcb, c == 0xcf, c == 0xd3:
		return 1, 8, false, nil
	case c == 0xcc, c == 0xd0:
		return 1, 1, false, nil
	case c == 0xcd, c == 0xd1:
		return 1, 2, false, nil
	case c >= 0xd9 && c <= 0xdb:
		return size(1 << (c - 0xd9))
	case c == 0xdc, c == 0xde:
		return 3, 0, false, nil
	case c == 0xdd, c == 0xdf:
		return 5, 0, false, nil
	}
	return 0, 0, false, fmt.Errorf("msgpack type %x: %w", b[0], log.ErrFormat)
}

// changeIDToken is the place of the change id among an event's tokens, after
// that of its array: a UUID that nobody looks for here.
const changeIDToken = 7

// scanEvent calls add with the hash of each key of an encoded event.
func scanEvent(version byte, b []byte, add func(hash uint32)) error {
	kind, id, err := eventObject(b)
	if err != nil {
		return err
	}
	add(objectHash(kind, id))
	if !many(kind) {
		add(kindHash(kind))
	} else if kind == log.KindNIC && bytes.Contains(b, serverText) {
		add(kindHash(serverNICs))
	}
	return mentions(b[1:], changeIDToken, func(value []byte, bin bool) {
		if bin {
			add(mentionHash(value))
		} else if uuid, err := log.ParseUUID(string(value)); err == nil && version != indexFirst {
			add(mentionHash(uuid[:]))
		}
	})
}

// fixedSize has the bytes of a msgpack element by its first, where those say it
// all and nothing of 16 bytes is in it; 0 elsewhere.
var fixedSize = func() (sizes [256]uint8) {
	for c := range sizes {
		switch {
		case c >= 0xa0 && c < 0xc0:
			sizes[c] = 1 + uint8(c&0x1f)
		case c < 0xa0, c >= 0xe0, c >= 0xc0 && c <= 0xc3 && c != 0xc1:
			sizes[c] = 1
		case c == 0xcc, c == 0xd0:
			sizes[c] = 2
		case c == 0xcd, c == 0xd1:
			sizes[c] = 3
		case c == 0xca, c == 0xce, c == 0xd2:
			sizes[c] = 5
		case c == 0xcb, c == 0xcf, c == 0xd3:
			sizes[c] = 9
		}
	}
	return sizes
}()

// uuidText is the length of a UUID as text, which is how old values have it.
const uuidText = 36

// mentions calls fn with each value that may be a UUID: binary ones of 16 bytes,
// but the token skip, and texts of 36.
func mentions(b []byte, skip int, fn func(value []byte, bin bool)) error {
	for n := 0; len(b) > 0; n++ {
		if size := int(fixedSize[b[0]]); size > 0 && size <= len(b) {
			b = b[size:]
			continue
		}
		head, payload, bin, err := token(b)
		if err != nil {
			return err
		}
		if head+payload > len(b) {
			return log.ErrCorrupt
		}
		if bin && payload == 16 && n != skip || payload == uuidText && !bin && b[0] == str8 {
			fn(b[head:head+payload], bin)
		}
		b = b[head+payload:]
	}
	return nil
}

// str8 begins a text of 32 to 255 bytes.
const str8 = 0xd9

var errEventHead = fmt.Errorf("the head of an event: %w", log.ErrCorrupt)

// eventObject reads the kind and the id of an encoded event, which share its memory.
func eventObject(b []byte) (kind log.Kind, id []byte, err error) {
	if len(b) < 5 || b[0] != log.FormatVersion {
		return 0, nil, errEventHead
	}
	for n := range 4 {
		if n == 0 {
			b = b[1:]
		}
		if len(b) == 0 {
			return 0, nil, errEventHead
		}
		head, payload, _, err := token(b)
		if err != nil || head+payload > len(b) {
			return 0, nil, errEventHead
		}
		switch n {
		case 1:
			if kind = log.Kind(b[0]); payload == 1 {
				kind = log.Kind(b[1])
			}
		case 3:
			id = b[head : head+payload]
		}
		b = b[head+payload:]
	}
	return kind, id, nil
}

// block is the index of one segment, in its stored form.
type block []byte

// makeBlock computes the block of the events first to last, of one segment.
func makeBlock(tx *bbolt.Tx, version byte, first, last log.Seq) (block, error) {
	entries := make([]uint64, 0, 8*int(last-first+1))
	cursor := tx.Bucket(bucketEvents).Cursor()
	want := first
	for key, row := cursor.Seek(seqKey(first)); want <= last; key, row = cursor.Next() {
		s, err := readEventRow(want, key, row)
		if err != nil {
			return nil, err
		}
		place := uint64(want-1) % segmentEvents
		if err := scanEvent(version, s.Bytes, func(hash uint32) { entries = append(entries, uint64(hash)<<16|place) }); err != nil {
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

// checkBlock says whether a stored block is whole.
func checkBlock(key []byte, b block) error {
	if len(b) < blockHeader+fanoutBytes || (len(b)-blockHeader-fanoutBytes)%blockEntry != 0 ||
		binary.BigEndian.Uint32(b) != disk.Checksum(key, b[4:]) {
		return fmt.Errorf("changes.db: index of segment %x: checksum does not fit: %w", key[1:], log.ErrCorrupt)
	}
	return nil
}

// find appends the seqs in [low, high] that a hash has in segment, in order.
func (b block) find(segment uint64, hash uint32, low, high log.Seq, to []log.Seq) []log.Seq {
	place := 0
	return b.findNext(&place, segment, hash, low, high, to)
}

// findNext is find for hashes that come in order: place, at first 0, is where the
// one before was, so that a block is read from its front to its end.
func (b block) findNext(place *int, segment uint64, hash uint32, low, high log.Seq, to []log.Seq) []log.Seq {
	fan := b[blockHeader:]
	upper := int(hash >> (32 - fanoutBits))
	at, end := *place, int(binary.BigEndian.Uint32(fan[4*upper:]))
	if upper > 0 {
		at = max(at, int(binary.BigEndian.Uint32(fan[4*(upper-1):])))
	}
	entries := b[blockHeader+fanoutBytes:]
	for ; at < end && binary.BigEndian.Uint32(entries[blockEntry*at:]) < hash; at++ {
	}
	*place = at // the same hash may be asked for again
	for ; at < end; at++ {
		e := entries[blockEntry*at:]
		if binary.BigEndian.Uint32(e) != hash {
			break
		}
		if seq := log.Seq(segment*segmentEvents) + 1 + log.Seq(binary.BigEndian.Uint16(e[4:])); seq >= low && seq <= high {
			to = append(to, seq)
		}
	}
	return to
}

// blocks remembers, for one open file, which stored blocks are whole and the
// computed ones of full segments. It may be used concurrently.
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
	first = max(first, log.Seq(segment*segmentEvents)+1)
	end := log.Seq((segment + 1) * segmentEvents)
	b, err := makeBlock(tx, indexVersion, first, min(last, end))
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

// known says what is remembered of a segment.
func (c *blocks) known(tx *bbolt.Tx, segment uint64) (checked bool, made block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != tx.DB() {
		c.db, c.checked, c.made = tx.DB(), map[uint64]bool{}, map[uint64]block{}
	}
	return c.checked[segment], c.made[segment]
}

// storedBlock returns the stored block of a segment, nil if there is none that
// this program knows. checked: it was found to be whole before.
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
