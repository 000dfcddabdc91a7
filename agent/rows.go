package agent

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"math"

	"rutter/log"
	"rutter/projections"
)

// The cache file, cache.db (bbolt), big endian:
//
//	bucket          key                 value
//	meta            head                see headRow
//	meta            numbers             crc32c (4), JSON of link.Numbers
//	meta            hold                crc32c (4), JSON of Hold; only while one is held, of the view in held.db
//	released        kind (1), id        crc32c (4); only while one is held
//	scopes          scope (binary)      as-of seq (8), complete (1), crc32c (4)
//	gone            position (8)        see goneSize
//	objects/<kind>  the object's id     revision (8), seq (8), crc32c (4), object as log encodes it
//
// A crc32c covers the bucket's name, the key and the rest of the value. The head has
// the count of all other rows and the sum of their checksums, so a lost row, or an old
// page in place of a newer one, is found as well as a flipped bit.
const (
	cacheFormat = 1

	bucketMeta     = "meta"
	bucketScopes   = "scopes"
	bucketGone     = "gone"
	bucketReleased = "released"
	objectsPrefix  = "objects/"
	keyHead        = "head"
	keyNumbers     = "numbers"
	keyHold        = "hold"
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	ecma       = crc64.MakeTable(crc64.ECMA)
)

// head is the one row that describes all others. It is written in each transaction.
type head struct {
	CN          log.UUID
	Cursor      log.Cursor
	Incarnation uint64
	// Complete: since it was made, the cache has at least once held all that the CN
	// must know (architecture rule 8).
	Complete bool
	// Rows and Sum are over all rows but this one.
	Rows, Sum uint64
}

// headSize is the size in bytes of a head row:
//
//	0      1    17      33    41     49           57     58    66   74
//	| vers | cn | clust | seq | chain | incarnation | flags | rows | sum | crc32c
const headSize = 78

// headComplete is a bit of the flags.
const headComplete = 1 << 1

func (h *head) encode() []byte {
	b := make([]byte, 0, headSize)
	b = append(b, cacheFormat)
	b = append(b, h.CN[:]...)
	b = append(b, h.Cursor.Cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Cursor.Seq))
	b = append(b, h.Cursor.Chain[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Incarnation)
	var flags byte
	if h.Complete {
		flags |= headComplete
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint64(b, h.Rows)
	b = binary.BigEndian.AppendUint64(b, h.Sum)
	return binary.BigEndian.AppendUint32(b, rowCRC(bucketMeta, []byte(keyHead), b))
}

func decodeHead(b []byte) (head, error) {
	if len(b) > 0 && b[0] != cacheFormat {
		return head{}, fmt.Errorf("%w: format %d, this program knows %d", errFile, b[0], cacheFormat)
	}
	if len(b) != headSize {
		return head{}, fmt.Errorf("%w: head of %d bytes", errFile, len(b))
	}
	body, crc := b[:headSize-4], binary.BigEndian.Uint32(b[headSize-4:])
	if crc != rowCRC(bucketMeta, []byte(keyHead), body) {
		return head{}, fmt.Errorf("%w: checksum of the head", errFile)
	}
	h := head{
		CN: log.UUID(b[1:17]),
		Cursor: log.Cursor{
			Cluster: log.UUID(b[17:33]), Seq: log.Seq(binary.BigEndian.Uint64(b[33:])), Chain: log.ChainPrefix(b[41:49]),
		},
		Incarnation: binary.BigEndian.Uint64(b[49:]),
		Complete:    b[57]&headComplete != 0,
		Rows:        binary.BigEndian.Uint64(b[58:]),
		Sum:         binary.BigEndian.Uint64(b[66:]),
	}
	return h, nil
}

// rowCRC is the checksum within a row; parts are the value without the checksum.
func rowCRC(bucket string, key []byte, parts ...[]byte) uint32 {
	crc := crc32.Update(0, castagnoli, []byte(bucket))
	crc = crc32.Update(crc, castagnoli, key)
	for _, part := range parts {
		crc = crc32.Update(crc, castagnoli, part)
	}
	return crc
}

// rowSum is what a row adds to the head's Sum.
func rowSum(bucket string, key, value []byte) uint64 {
	sum := crc64.Update(0, ecma, []byte(bucket))
	sum = crc64.Update(sum, ecma, key)
	return crc64.Update(sum, ecma, value)
}

func objectBucket(kind log.Kind) string { return objectsPrefix + kind.String() }

const objectRowHeader = 20

func encodeObject(enc *log.Encoder, bucket string, key []byte, r kept) ([]byte, error) {
	body := r.Body
	if body == nil {
		object, err := enc.Object(r.Object)
		if err != nil {
			return nil, err
		}
		body = object[1:]
	}
	b := make([]byte, objectRowHeader+1+len(body))
	binary.BigEndian.PutUint64(b, uint64(r.Revision))
	binary.BigEndian.PutUint64(b[8:], uint64(r.Seq))
	object := b[objectRowHeader:]
	object[0] = log.FormatVersion
	copy(object[1:], body)
	binary.BigEndian.PutUint32(b[16:], rowCRC(bucket, key, b[:16], object))
	return b, nil
}

func decodeObject(bucket string, kind log.Kind, key, value []byte) (projections.Record, error) {
	if len(value) < objectRowHeader || len(value) > math.MaxInt32 {
		return projections.Record{}, fmt.Errorf("%w: %s %q has %d bytes", errFile, kind, key, len(value))
	}
	object := value[objectRowHeader:]
	if binary.BigEndian.Uint32(value[16:]) != rowCRC(bucket, key, value[:16], object) {
		return projections.Record{}, fmt.Errorf("%w: checksum of %s %q", errFile, kind, key)
	}
	o, err := log.DecodeObject(kind, string(key), object)
	if err != nil {
		return projections.Record{}, fmt.Errorf("%w: %s %q: %w", errFile, kind, key, err)
	}
	return projections.Record{
		Object:   o,
		Revision: log.Revision(binary.BigEndian.Uint64(value)),
		Seq:      log.Seq(binary.BigEndian.Uint64(value[8:])),
	}, nil
}

// heldScope is what is known of a held scope.
type heldScope struct {
	AsOf log.Seq
	// Complete: its end has come. Before that, its objects may be any part of it.
	Complete bool
}

func encodeScope(key []byte, s heldScope) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.AsOf))
	complete := byte(0)
	if s.Complete {
		complete = 1
	}
	b = append(b, complete)
	return binary.BigEndian.AppendUint32(b, rowCRC(bucketScopes, key, b))
}

func decodeScope(key, value []byte) (log.Scope, heldScope, error) {
	if len(value) != 13 || binary.BigEndian.Uint32(value[9:]) != rowCRC(bucketScopes, key, value[:9]) {
		return log.Scope{}, heldScope{}, fmt.Errorf("%w: checksum of scope %x", errFile, key)
	}
	var scope log.Scope
	if err := scope.UnmarshalBinary(key); err != nil {
		return log.Scope{}, heldScope{}, fmt.Errorf("%w: %w", errFile, err)
	}
	return scope, heldScope{AsOf: log.Seq(binary.BigEndian.Uint64(value)), Complete: value[8] != 0}, nil
}

// encodeMeta is a row of bucket meta with JSON.
func encodeMeta(key string, json []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, rowCRC(bucketMeta, []byte(key), json))
	return append(b, json...)
}

func decodeMeta(key string, value []byte) ([]byte, error) {
	if len(value) < 4 || binary.BigEndian.Uint32(value) != rowCRC(bucketMeta, []byte(key), value[4:]) {
		return nil, fmt.Errorf("%w: checksum of the %s", errFile, key)
	}
	return value[4:], nil
}

func releasedRow(o objectKey) (key, value []byte) {
	key = append([]byte{byte(o.Kind)}, o.ID...)
	return key, binary.BigEndian.AppendUint32(nil, rowCRC(bucketReleased, key))
}

func decodeReleased(key, value []byte) (objectKey, error) {
	if len(key) < 2 || len(value) != 4 || binary.BigEndian.Uint32(value) != rowCRC(bucketReleased, key) {
		return objectKey{}, fmt.Errorf("%w: checksum of the released object %q", errFile, key)
	}
	return objectKey{log.Kind(key[0]), string(key[1:])}, nil
}
