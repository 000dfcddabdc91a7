package raftstore

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"rutter/log"
)

// boltLog is raft's log and stable store in raft.db, in the format of raft-boltdb,
// which can read and go on with the file at any time. It writes less.
//
// A leaf of bbolt has two keys at least and is split when it has five, whatever
// their size, and the last leaf is written again with each entry that comes after
// its own. Raft-boltdb so writes an entry of a whole batch four and a half times. Here
// such an entry is followed by a few empty rows, which fill up the leaf that is
// written again: the entry itself goes into a leaf that stays. Their keys are the
// entry's with one more byte, which raft-boltdb takes for the entry's index where it
// looks for the first and the last one, and deletes with the entry.
type boltLog struct {
	db *bbolt.DB
	// buffer holds the entries of a transaction; bbolt has one at a time.
	buffer []byte
}

const (
	// spacedFrom is how large an entry is that is followed by spacers. They cost
	// three pages.
	spacedFrom = 8 << 10
	// spacers is the least number: of the entry and four of them bbolt leaves the
	// entry and one behind, and writes three again with the next entry.
	spacers = 4
	// keptLogBuffer is what a boltLog keeps of its buffer at most.
	keptLogBuffer = 4 << 20
	// entryRoom is more than an entry takes beside its data and extensions.
	entryRoom = 256
)

// Buckets of raft-boltdb.
var (
	bucketLogs = []byte("logs")
	bucketConf = []byte("conf")
)

func openBoltLog(path string, options *bbolt.Options) (*boltLog, error) {
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [...][]byte{bucketLogs, bucketConf} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	return &boltLog{db: db}, nil
}

// Close closes the file.
func (b *boltLog) Close() error { return b.db.Close() }

func indexKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// indexOf returns the index that a key is of, an entry's or a spacer's; 0 of none.
func indexOf(key []byte) (uint64, error) {
	switch {
	case key == nil:
		return 0, nil
	case len(key) < 8:
		return 0, fmt.Errorf("key of %d bytes: %w", len(key), log.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(key), nil
}

// FirstIndex implements raft.LogStore.
func (b *boltLog) FirstIndex() (index uint64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) (err error) {
		key, _ := tx.Bucket(bucketLogs).Cursor().First()
		index, err = indexOf(key)
		return err
	})
	return index, err
}

// LastIndex implements raft.LogStore.
func (b *boltLog) LastIndex() (index uint64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) (err error) {
		key, _ := tx.Bucket(bucketLogs).Cursor().Last()
		index, err = indexOf(key)
		return err
	})
	return index, err
}

// GetLog implements raft.LogStore.
func (b *boltLog) GetLog(index uint64, entry *raft.Log) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(bucketLogs).Get(indexKey(index))
		if value == nil {
			return raft.ErrLogNotFound
		}
		return codec.NewDecoder(bytes.NewReader(value), new(codec.MsgpackHandle)).Decode(entry)
	})
}

// StoreLog implements raft.LogStore.
func (b *boltLog) StoreLog(entry *raft.Log) error { return b.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (b *boltLog) StoreLogs(entries []*raft.Log) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		size := 0
		for _, entry := range entries {
			size += entryRoom + len(entry.Data) + len(entry.Extensions)
		}
		if cap(b.buffer) < size {
			b.buffer = make([]byte, size)
		}
		room := b.buffer[:cap(b.buffer)]
		if cap(b.buffer) > keptLogBuffer {
			b.buffer = nil
		}
		logs := tx.Bucket(bucketLogs)
		for _, entry := range entries {
			need := entryRoom + len(entry.Data) + len(entry.Extensions)
			value := room[:0:need]
			room = room[need:]
			if err := encodeEntry(&value, entry); err != nil {
				return err
			}
			if err := putEntry(logs, entry.Index, value); err != nil {
				return err
			}
		}
		return nil
	})
}

// encodeEntry writes an entry as raft-boltdb does.
func encodeEntry(to *[]byte, entry *raft.Log) error {
	var handle codec.MsgpackHandle
	handle.TimeNotBuiltin = true
	return codec.NewEncoderBytes(to, &handle).Encode(entry)
}

// putEntry puts an encoded entry, which bbolt refers to until the transaction ends,
// and its spacers.
func putEntry(logs *bbolt.Bucket, index uint64, value []byte) error {
	key := indexKey(index)
	if err := logs.Put(key, value); err != nil || len(value) < spacedFrom {
		return err
	}
	for i := range byte(spacers) {
		if err := logs.Put(append(key, i), nil); err != nil {
			return err
		}
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (b *boltLog) DeleteRange(lo, hi uint64) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		logs := tx.Bucket(bucketLogs)
		var keys [][]byte
		cursor := logs.Cursor()
		for key, _ := cursor.Seek(indexKey(lo)); key != nil; key, _ = cursor.Next() {
			index, err := indexOf(key)
			if err != nil {
				return err
			}
			if index > hi {
				break
			}
			keys = append(keys, bytes.Clone(key))
		}
		for _, key := range keys {
			if err := logs.Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
}

// Set keeps a value of raft's stable store.
func (b *boltLog) Set(key, value []byte) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketConf).Put(key, value) })
}

// Get returns a value of raft's stable store, or raftboltdb.ErrKeyNotFound.
func (b *boltLog) Get(key []byte) (value []byte, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		if value = bytes.Clone(tx.Bucket(bucketConf).Get(key)); value == nil {
			return raftboltdb.ErrKeyNotFound
		}
		return nil
	})
	return value, err
}
