package raftstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

// rememberedRow is what the window and its row in changes.db know of a change, in
// bytes that are the row's value:
//
//	result bytes                                                  before log.FeatureContained
//	| 0x82 | applied (8) | asker (16) | content (16) | result bytes |   from then on
//
// Result bytes begin with log.FormatVersion.
type rememberedRow struct {
	applied log.Time
	asker   log.Asker
	content log.Content
	result  []byte // shares the value's memory
}

const (
	rememberedVersion = 0x82
	rememberedHeader  = 1 + 8 + 16 + 16
)

func (r *rememberedRow) encode() []byte {
	b := make([]byte, 1, rememberedHeader+len(r.result))
	b[0] = rememberedVersion
	b = binary.BigEndian.AppendUint64(b, uint64(r.applied))
	b = append(append(b, r.asker[:]...), r.content[:]...)
	return append(b, r.result...)
}

// openRemembered reads the value of a row whose checksum was looked at.
func openRemembered(id log.UUID, value []byte) rememberedRow {
	if len(value) <= rememberedHeader || value[0] != rememberedVersion {
		return rememberedRow{applied: timeOfID(id), result: value}
	}
	return rememberedRow{
		applied: log.Time(binary.BigEndian.Uint64(value[1:])), asker: log.Asker(value[9:25]), content: log.Content(value[25:41]), result: value[41:],
	}
}

// timeOfID is the time that an id says it was made at; the last there is, if it says a
// later one.
func timeOfID(id log.UUID) log.Time {
	ms, _ := id.UnixMilli()
	return log.Time(min(ms, math.MaxInt64/int64(time.Millisecond)) * int64(time.Millisecond))
}

// is reports whether a change is the one that the row is of, as far as that is
// known.
func (r *rememberedRow) is(c *log.Change, asker log.Asker) bool {
	if r.asker == (log.Asker{}) {
		return true
	}
	return r.asker == asker && (r.content == c.Content || r.content.IsZero() || c.Content.IsZero())
}

// Names of the window's buckets, and of its row in the bucket of the meta rows.
var (
	bucketChanges = []byte("changes")
	bucketLines   = []byte("lines") // made with the first one
	keyLeaps      = []byte("leaps")
)

const changeRowHeader = 4

// changeRow returns the stored form of what is remembered of a change.
func changeRow(id log.UUID, value []byte) []byte {
	row := make([]byte, changeRowHeader, changeRowHeader+len(value))
	row = append(row, value...)
	binary.BigEndian.PutUint32(row, disk.Checksum(id[:], value))
	return row
}

// readChangeRow checks a dedupe row and returns its value, copied.
func readChangeRow(key, row []byte) (log.UUID, []byte, error) {
	if len(key) != 16 || len(row) <= changeRowHeader || binary.BigEndian.Uint32(row) != disk.Checksum(key, row[4:]) {
		return log.UUID{}, nil, fmt.Errorf("changes.db: row of change %x: checksum does not fit: %w", key, log.ErrCorrupt)
	}
	return log.UUID(key), bytes.Clone(row[changeRowHeader:]), nil
}

// lineRow is the stored form of an author's line, in bucket lines under the author.
//
//	| crc (4) | id (16) |
func lineRow(key log.Asker, line log.UUID) []byte {
	row := append(make([]byte, 4, 20), line[:]...)
	binary.BigEndian.PutUint32(row, disk.Checksum(bucketLines, key[:], line[:]))
	return row
}

func readLineRow(key, row []byte) (author log.Asker, line log.UUID, err error) {
	if len(key) != len(author) || len(row) != 4+len(line) || binary.BigEndian.Uint32(row) != disk.Checksum(bucketLines, key, row[4:]) {
		return author, line, fmt.Errorf("changes.db: line of change ids of author %x: checksum does not fit: %w", key, log.ErrCorrupt)
	}
	return log.Asker(key), log.UUID(row[4:]), nil
}

// The row of the leaps: for each | time after it (8) | trimmed (16) |.
const leapBytes = 8 + 16

func encodeLeaps(leaps []leap) []byte {
	b := newMeta(len(leaps) * leapBytes)
	for _, l := range leaps {
		b = append(binary.BigEndian.AppendUint64(b, uint64(l.to)), l.trimmed[:]...)
	}
	return sealMeta(keyLeaps, b)
}

// decodeLeaps reads the row of the leaps; none is that there are none.
func decodeLeaps(row []byte) (leaps []leap, err error) {
	if row == nil {
		return nil, nil
	}
	r, err := openMeta(keyLeaps, row)
	if err != nil {
		return nil, err
	}
	if len(r.b)%leapBytes != 0 {
		return nil, fmt.Errorf("changes.db: leaps of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	for len(r.b) > 0 {
		leaps = append(leaps, leap{log.Time(r.u64()), log.UUID(r.take(16))})
	}
	return leaps, nil
}

// leapsHash is their part of window.sum; zero if there are none.
func leapsHash(leaps []leap) sum {
	if len(leaps) == 0 {
		return sum{}
	}
	return hashOf(encodeLeaps(leaps))
}
