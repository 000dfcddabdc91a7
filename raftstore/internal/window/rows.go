package window

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/metarow"
)

// Row is what the window and its row in changes.db have of a change. The value of the
// row:
//
//	result bytes                                                  before log.FeatureContained
//	| 0x82 | applied (8) | asker (16) | content (16) | result bytes |   from then on
//
// Result bytes begin with log.FormatVersion.
type Row struct {
	Applied log.Time
	Asker   log.Asker
	Content log.Content
	Result  []byte // shares the value's memory
}

const (
	rememberedVersion = 0x82
	rememberedHeader  = 1 + 8 + 16 + 16
)

// Encode returns the value that OpenRow reads.
func (r *Row) Encode() []byte {
	return append(r.AppendHeader(make([]byte, 0, rememberedHeader+len(r.Result))), r.Result...)
}

// AppendHeader appends the value that OpenRow reads to b, up to the result's bytes.
func (r *Row) AppendHeader(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, rememberedVersion), uint64(r.Applied))
	return append(append(b, r.Asker[:]...), r.Content[:]...)
}

// OpenRow reads the value of a row whose checksum was checked.
func OpenRow(id log.UUID, value []byte) Row {
	if len(value) <= rememberedHeader || value[0] != rememberedVersion {
		return Row{Applied: TimeOf(id), Result: value}
	}
	return Row{
		Applied: log.Time(binary.BigEndian.Uint64(value[1:])), Asker: log.Asker(value[9:25]), Content: log.Content(value[25:41]), Result: value[41:],
	}
}

// TimeOf returns the time in an id, or the greatest log.Time if that of the id is later.
func TimeOf(id log.UUID) log.Time {
	ms, _ := id.UnixMilli()
	return log.Time(min(ms, math.MaxInt64/int64(time.Millisecond)) * int64(time.Millisecond))
}

// Is reports whether the row is that of a change, as far as that is known.
func (r *Row) Is(c *log.Change, asker log.Asker) bool {
	if r.Asker == (log.Asker{}) {
		return true
	}
	return r.Asker == asker && (r.Content == c.Content || r.Content.IsZero() || c.Content.IsZero())
}

// Names of the window's buckets, and of its row in the bucket of the meta rows.
var (
	BucketChanges  = []byte("changes")
	BucketLowMarks = []byte("lines") // made with the first low-water mark
	KeyLeaps       = []byte("leaps")
)

const changeRowHeader = 4

// ChangeRow returns the stored row of a change.
func ChangeRow(id log.UUID, value []byte) []byte {
	return changeRow(new(log.Room), id, value)
}

// changeRow is ChangeRow in given room.
func changeRow(room *log.Room, id log.UUID, value []byte) []byte {
	row := room.Take(changeRowHeader + len(value))
	return append(binary.BigEndian.AppendUint32(row, disk.Checksum(id[:], value)), value...)
}

// ReadChangeRow checks the stored row of a change and returns a copy of its value.
func ReadChangeRow(key, row []byte) (log.UUID, []byte, error) {
	if len(key) != 16 || len(row) <= changeRowHeader || binary.BigEndian.Uint32(row) != disk.Checksum(key, row[4:]) {
		return log.UUID{}, nil, fmt.Errorf("changes.db: row of change %x: checksum does not fit: %w", key, log.ErrCorrupt)
	}
	return log.UUID(key), bytes.Clone(row[changeRowHeader:]), nil
}

// lowMarkRow returns the stored form of an author's low-water mark, in bucket lines under
// the author.
//
//	| crc (4) | id (16) |
func lowMarkRow(key log.Asker, mark log.UUID) []byte {
	row := append(make([]byte, 4, 20), mark[:]...)
	binary.BigEndian.PutUint32(row, disk.Checksum(BucketLowMarks, key[:], mark[:]))
	return row
}

func readLowMarkRow(key, row []byte) (author log.Asker, mark log.UUID, err error) {
	if len(key) != len(author) || len(row) != 4+len(mark) || binary.BigEndian.Uint32(row) != disk.Checksum(BucketLowMarks, key, row[4:]) {
		return author, mark, fmt.Errorf("changes.db: line of change ids of author %x: checksum does not fit: %w", key, log.ErrCorrupt)
	}
	return log.Asker(key), log.UUID(row[4:]), nil
}

// The row of the leaps: for each | time after it (8) | trimmed (16) |.
const leapBytes = 8 + 16

// EncodeLeaps returns the row of the leaps.
func EncodeLeaps(leaps []Leap) []byte {
	b := metarow.New(len(leaps) * leapBytes)
	for _, l := range leaps {
		b = append(binary.BigEndian.AppendUint64(b, uint64(l.to)), l.trimmed[:]...)
	}
	return metarow.Seal(KeyLeaps, b)
}

// DecodeLeaps reads the row of the leaps. Without a row there are none.
func DecodeLeaps(row []byte) (leaps []Leap, err error) {
	if row == nil {
		return nil, nil
	}
	r, err := metarow.Open(KeyLeaps, row)
	if err != nil {
		return nil, err
	}
	if len(r.Rest)%leapBytes != 0 {
		return nil, fmt.Errorf("changes.db: leaps of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	for len(r.Rest) > 0 {
		leaps = append(leaps, Leap{log.Time(r.U64()), log.UUID(r.Take(16))})
	}
	return leaps, nil
}

// leapsHash returns the part of Window.sum for leaps; zero if there are none.
func leapsHash(leaps []Leap) digest.Sum {
	if len(leaps) == 0 {
		return digest.Sum{}
	}
	return digest.Of(EncodeLeaps(leaps))
}
