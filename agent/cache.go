package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"rutter/log"
	"rutter/projections"
)

const (
	cacheName = "cache.db"
	lockName  = "agent.lock"
	// keptDamaged is how many damaged caches are kept for inspection. Older ones are
	// removed, so that a bad disk does not fill up.
	keptDamaged = 3
	// cacheMapBytes is the size of the first mapping of the file. A large one avoids
	// new mappings while the file grows. It is address space, not memory.
	cacheMapBytes = 64 << 20
	// cacheGrowBytes is the step by which the file grows.
	cacheGrowBytes = 1 << 20
)

// ErrLocked is wrapped if another agent uses the folder.
var ErrLocked = errors.New("agent: folder is used by another agent: stop it, or give this one a folder of its own")

// objectKey names an object among all kinds.
type objectKey struct {
	Kind log.Kind
	ID   string
}

func (a objectKey) compare(b objectKey) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
}

// kept is a record. If the object came in the form that is stored, kept also has its
// bytes without the format byte. They share the memory of the frame.
type kept struct {
	projections.Record
	Body []byte
}

// batch is one transaction of the cache: rows, and the head that belongs to them.
type batch struct {
	Objects map[objectKey]kept       // Object nil: the row is deleted
	Scopes  map[log.Scope]*heldScope // nil: the row is deleted
	Gone    []Change                 // changes that removed a mapping, by position
	Pos     uint64                   // of the last change in this batch, or before
	Head    head                     // except CN, Incarnation, Rows and Sum, which the cache sets
	// Released are objects of the held view that the log has changed since: it has
	// deleted them, or they are as in Objects.
	Released []objectKey
	Hold     *holdChange // nil: unchanged
	Full     bool        // the batch is the whole content of the cache
}

func (b *batch) rows() int {
	n := len(b.Objects) + len(b.Scopes) + len(b.Gone) + len(b.Released)
	if b.Hold != nil {
		n++
	}
	return n
}

// contents is what a cache held when it was opened.
type contents struct {
	Head     head
	Scopes   map[log.Scope]heldScope
	Objects  []projections.Record // by kind and id
	Gone     []Change             // by position
	Answered []Change             // what a killed process answered last
	answers  *answerLog
	Numbers  []byte // JSON; nil if none were saved
	// Hold is what was held. Released are its objects that the log has changed since.
	// Old is the view that the node carried out before; nil if nothing was held, or if
	// it cannot be read.
	Hold     *Hold
	Released []objectKey
	Old      *contents
}

// cache keeps a CN's part of the state on disk.
type cache struct {
	folder  string
	path    string
	cn      log.UUID
	logger  *slog.Logger
	answers *answerLog
	delay   func(what string) // Config.DiskDelay; set before the first use

	mu      sync.Mutex // held for one transaction; protects what follows
	lock    *os.File   // nil: the folder could not be locked
	db      *bolt.DB   // nil: no file can be written; see cache_disk.go
	file    os.FileInfo
	failure error // of the start; nil if it succeeded
	head    head  // as on disk
	gone    int   // rows of bucketGone
	enc     *log.Encoder

	numbersMu    sync.Mutex // held briefly, with or without mu; protects what follows
	numbers      []byte
	numbersDirty bool // numbers are not on disk
	saving       bool // a goroutine of SaveNumbers has not ended
}

func lockFolder(folder string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("agent: lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w (%w)", folder, ErrLocked, err), f.Close())
	}
	return f, nil
}

// removeOldDamaged removes all but the newest keptDamaged files that were put aside.
func removeOldDamaged(path string, logger *slog.Logger) {
	names, err := filepath.Glob(path + ".damaged-*")
	if err != nil || len(names) <= keptDamaged {
		return
	}
	slices.Sort(names)
	for _, name := range names[:len(names)-keptDamaged] {
		if err := os.Remove(name); err != nil {
			logger.Warn("old damaged cache cannot be removed", "file", name, "error", err)
		}
	}
}

var boltOptions = bolt.Options{
	Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
	PageSize: cachePageSize, InitialMmapSize: cacheMapBytes,
}

// damaged adds errFile to errors of bbolt that are about the file's bytes.
func damaged(err error) error {
	for _, bad := range []error{berrors.ErrInvalid, berrors.ErrVersionMismatch, berrors.ErrChecksum} {
		if errors.Is(err, bad) {
			return fmt.Errorf("%w: %w", errFile, err)
		}
	}
	return err
}

// loadRows reads and checks every row.
func loadRows(db *bolt.DB, cn log.UUID) (held *contents, err error) {
	held = &contents{Scopes: make(map[log.Scope]heldScope)}
	var rows, sum uint64
	err = safely(func() error {
		return db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
				return b.ForEach(func(k, v []byte) error {
					bucket := string(name)
					if bucket == bucketMeta && string(k) == keyHead {
						held.Head, err = decodeHead(v)
						return err
					}
					rows++
					sum += rowSum(bucket, k, v)
					return held.row(bucket, k, v)
				})
			})
		})
	})
	switch {
	case err != nil:
		return nil, err
	case held.Head.CN.IsZero() || held.Head.Rows != rows || held.Head.Sum != sum:
		return nil, fmt.Errorf("%w: it has %d rows of sum %x, its head says %d of %x", errFile, rows, sum, held.Head.Rows, held.Head.Sum)
	case held.Head.CN != cn:
		return nil, fmt.Errorf("%w: it is of compute node %s, this is %s", errFile, held.Head.CN, cn)
	}
	slices.SortFunc(held.Objects, func(a, b projections.Record) int { return keyOf(a).compare(keyOf(b)) })
	return held, nil
}

func keyOf(r projections.Record) objectKey { return objectKey{r.Object.Kind(), r.Object.ID()} }

// row reads one row other than the head.
func (held *contents) row(bucket string, k, v []byte) error {
	switch kind, isObject := strings.CutPrefix(bucket, objectsPrefix); {
	case isObject:
		kind, err := log.ParseKind(kind)
		if err != nil {
			return fmt.Errorf("%w: bucket %q: %w", errFile, bucket, err)
		}
		r, err := decodeObject(bucket, kind, k, v)
		if err != nil {
			return err
		}
		held.Objects = append(held.Objects, r)
		return nil
	case bucket == bucketScopes:
		scope, s, err := decodeScope(k, v)
		if err != nil {
			return err
		}
		held.Scopes[scope] = s
		return nil
	case bucket == bucketGone:
		c, err := decodeGone(k, v)
		held.Gone = append(held.Gone, c)
		return err
	case bucket == bucketReleased:
		key, err := decodeReleased(k, v)
		held.Released = append(held.Released, key)
		return err
	case bucket == bucketMeta && string(k) == keyHold:
		text, err := decodeMeta(keyHold, v)
		if err == nil {
			err = held.readHold(text)
		}
		return err
	case bucket == bucketMeta && string(k) == keyNumbers:
		json, err := decodeMeta(keyNumbers, v)
		held.Numbers = slices.Clone(json)
		return err
	}
	return fmt.Errorf("%w: row %q in bucket %q", errFile, k, bucket)
}

// safely turns a panic of bbolt, or a fault in its mapped file, into an error, because
// the disk must not end the process.
func safely(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errFile, r)
		}
	}()
	return f()
}

// write puts b into a transaction.
func (c *cache) write(tx *bolt.Tx, b *batch) error {
	c.head.Cursor, c.head.Complete = b.Head.Cursor, b.Head.Complete
	for scope, s := range b.Scopes {
		key, err := scope.AppendBinary(nil)
		if err != nil {
			return err
		}
		var value []byte
		if s != nil {
			value = encodeScope(key, *s)
		}
		if err := c.put(tx.Bucket([]byte(bucketScopes)), bucketScopes, key, value); err != nil {
			return err
		}
	}
	if err := c.putGone(tx, b.Gone); err != nil {
		return err
	}
	if err := c.putHold(tx, b); err != nil {
		return err
	}
	return c.putObjects(tx, b.Objects)
}

// putGone adds to bucket gone, and removes the oldest rows if there are too many.
func (c *cache) putGone(tx *bolt.Tx, gone []Change) error {
	if len(gone) == 0 {
		return nil
	}
	b, err := tx.CreateBucketIfNotExists([]byte(bucketGone))
	if err != nil {
		return err
	}
	for i := range gone[max(0, len(gone)-maxGone):] {
		change := &gone[max(0, len(gone)-maxGone)+i]
		key := goneKey(change.Pos)
		if err := c.put(b, bucketGone, key, encodeGone(key, &change.Was)); err != nil {
			return err
		}
		c.gone++
	}
	var old [][]byte
	cursor := b.Cursor()
	for key, _ := cursor.First(); key != nil && c.gone-len(old) > maxGone; key, _ = cursor.Next() {
		old = append(old, slices.Clone(key))
	}
	for _, key := range old {
		if err := c.put(b, bucketGone, key, nil); err != nil {
			return err
		}
		c.gone--
	}
	return nil
}

// putObjects writes rows in key order, which is fastest in a B+tree.
func (c *cache) putObjects(tx *bolt.Tx, objects map[objectKey]kept) error {
	keys := make([]objectKey, 0, len(objects))
	for key := range objects {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, objectKey.compare)
	var b *bolt.Bucket
	var bucket string
	for i, key := range keys {
		if i == 0 || keys[i-1].Kind != key.Kind {
			var err error
			bucket = objectBucket(key.Kind)
			if b, err = tx.CreateBucketIfNotExists([]byte(bucket)); err != nil {
				return err
			}
		}
		var value []byte
		if r := objects[key]; r.Object != nil {
			var err error
			if value, err = encodeObject(c.enc, bucket, []byte(key.ID), r); err != nil {
				return err
			}
		}
		if err := c.put(b, bucket, []byte(key.ID), value); err != nil {
			return err
		}
	}
	return nil
}

// put writes a row, or removes it if value is nil, and updates the head's counts.
func (c *cache) put(b *bolt.Bucket, bucket string, key, value []byte) error {
	if old := b.Get(key); old != nil {
		c.head.Rows--
		c.head.Sum -= rowSum(bucket, key, old)
	}
	if value == nil {
		return b.Delete(key)
	}
	c.head.Rows++
	c.head.Sum += rowSum(bucket, key, value)
	return b.Put(key, value)
}

// update runs write and then writes the head, in one synced transaction. If it fails,
// the counts in memory and the file are as before.
func (c *cache) update(write func(*bolt.Tx) error) error {
	before, gone := c.head, c.gone
	err := safely(func() error {
		return c.db.Update(func(tx *bolt.Tx) error {
			if err := write(tx); err != nil {
				return err
			}
			return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyHead), c.head.encode())
		})
	})
	if err != nil {
		c.head, c.gone = before, gone
	}
	return err
}
