package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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
	// keptDamaged is how many damaged caches are kept aside for people to look
	// at; older ones are removed, so that a bad disk cannot fill itself.
	keptDamaged = 3
	// cacheMapBytes is mapped at once, so that the file rarely has to be mapped
	// anew while it grows. It is address space, not memory.
	cacheMapBytes = 64 << 20
	// cacheGrowBytes is by how much the file grows when it must.
	cacheGrowBytes = 1 << 20
)

// ErrLocked is wrapped when another agent uses the folder.
var ErrLocked = errors.New("agent: folder is used by another agent: stop it, or give this one a folder of its own")

// objectKey names an object among all kinds.
type objectKey struct {
	Kind log.Kind
	ID   string
}

func (a objectKey) compare(b objectKey) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
}

// kept is a record and, if it came in the form that is kept, its object's bytes
// without the format byte; they share the memory of the frame that brought them.
type kept struct {
	projections.Record
	Body []byte
}

// batch is one transaction of the cache: rows and the head that goes with them.
type batch struct {
	Objects map[objectKey]kept       // Object nil: the row goes
	Scopes  map[log.Scope]*heldScope // nil: the row goes
	Gone    []Change                 // that took a mapping with them, by position
	Pos     uint64                   // of the last change that is in it, or before
	Head    head                     // but for CN, Incarnation, Rows and Sum, which the cache keeps
}

func (b *batch) rows() int { return len(b.Objects) + len(b.Scopes) + len(b.Gone) }

// contents is what a cache held when it was opened.
type contents struct {
	Head    head
	Scopes  map[log.Scope]heldScope
	Objects []projections.Record // by kind and id
	Gone    []Change             // by position
	Told    []Change             // what a process that was killed told last
	told    *tellings
	Numbers []byte // JSON; nil if none were kept
}

// cache keeps a CN's part of the state on disk.
type cache struct {
	path string
	lock *os.File
	db   *bolt.DB
	told *tellings

	mu   sync.Mutex // held for one transaction; protects what follows
	head head       // as on disk
	gone int        // rows of bucketGone
	enc  *log.Encoder
}

// openCache opens the cache of cn in folder, or makes a new one. A damaged
// cache, or one of another CN, is put aside and named in the log. now names the
// file that is put aside, and is the least that a new incarnation may be.
func openCache(folder string, cn log.UUID, now time.Time, logger *slog.Logger) (*cache, *contents, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, nil, fmt.Errorf("agent: folder %s: %w", folder, err)
	}
	lock, err := lockFolder(folder)
	if err != nil {
		return nil, nil, err
	}
	c := &cache{path: filepath.Join(folder, cacheName), lock: lock, enc: log.NewEncoder()}
	held, err := c.open(cn)
	if errors.Is(err, errFile) {
		aside := c.path + ".damaged-" + now.UTC().Format("20060102T150405.000000000")
		logger.Error("cache is damaged: kept aside, to be rebuilt from the servers", "error", err, "aside", aside)
		if err := os.Rename(c.path, aside); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("agent: put damaged cache aside: %w", err), lock.Close())
		}
		removeOldDamaged(c.path, logger)
		held, err = c.open(cn)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("agent: cache %s: %w", c.path, err), lock.Close())
	}
	held.Head.Incarnation = max(held.Head.Incarnation+1, uint64(now.UnixMilli()))
	c.head.Incarnation = held.Head.Incarnation
	if c.told, held.Told, err = openTold(folder, logger); err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	held.told = c.told
	if err := c.update(func(*bolt.Tx) error { return nil }); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("agent: cache %s: %w", c.path, err), c.Close())
	}
	return c, held, nil
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

// removeOldDamaged leaves the newest keptDamaged files that were put aside.
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

// open verifies and reads the file, or makes it. Errors that wrap errFile say
// that it cannot be trusted.
func (c *cache) open(cn log.UUID) (*contents, error) {
	f, err := os.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createCache(c.path, cn); err != nil {
			return nil, err
		}
		f, err = os.Open(c.path)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = verifyFile(f, info.Size())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if c.db, err = bolt.Open(c.path, 0o600, &boltOptions); err != nil {
		return nil, damaged(err)
	}
	c.db.AllocSize = cacheGrowBytes
	held, err := c.load(cn)
	if err != nil {
		return nil, errors.Join(err, c.db.Close())
	}
	c.head, c.gone = held.Head, len(held.Gone)
	return held, nil
}

// damaged adds errFile to those errors of bbolt that are about the file's bytes.
func damaged(err error) error {
	for _, bad := range []error{berrors.ErrInvalid, berrors.ErrVersionMismatch, berrors.ErrChecksum} {
		if errors.Is(err, bad) {
			return fmt.Errorf("%w: %w", errFile, err)
		}
	}
	return err
}

// createCache makes an empty cache under another name and renames it, so that a
// crash leaves either nothing or a whole file.
func createCache(path string, cn log.UUID) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := bolt.Open(fresh, 0o600, &boltOptions)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	db.AllocSize = cacheGrowBytes
	// Two transactions, so that neither meta page still has the free list that
	// bbolt gives a new file (see verifyFile).
	for range 2 {
		err = db.Update(func(tx *bolt.Tx) error {
			for _, name := range []string{bucketMeta, bucketScopes} {
				if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
					return err
				}
			}
			return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyHead), (&head{CN: cn}).encode())
		})
		if err != nil {
			return errors.Join(fmt.Errorf("create: %w", err), db.Close())
		}
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// load reads and checks every row.
func (c *cache) load(cn log.UUID) (held *contents, err error) {
	held = &contents{Scopes: make(map[log.Scope]heldScope)}
	var rows, sum uint64
	err = safely(func() error {
		return c.db.View(func(tx *bolt.Tx) error {
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

// row takes one row that is not the head.
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
	case bucket == bucketMeta && string(k) == keyNumbers:
		json, err := decodeNumbers(v)
		held.Numbers = slices.Clone(json)
		return err
	}
	return fmt.Errorf("%w: row %q in bucket %q", errFile, k, bucket)
}

// safely turns a panic of bbolt, or a fault in its mapped file, into an error:
// the disk is the outside world, and must not end the process.
func safely(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errFile, r)
		}
	}()
	return f()
}

// Commit writes b in one synced transaction.
func (c *cache) Commit(b *batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.update(func(tx *bolt.Tx) error {
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
		return c.putObjects(tx, b.Objects)
	})
}

// putGone adds to what is gone, and lets the oldest go if there are too many.
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

// putObjects writes rows in order of their keys, which is what a B+tree likes.
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

// SaveNumbers keeps the fabric numbers; it returns when they are on disk.
func (c *cache) SaveNumbers(json []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.update(func(tx *bolt.Tx) error {
		return c.put(tx.Bucket([]byte(bucketMeta)), bucketMeta, []byte(keyNumbers), encodeNumbers(json))
	})
}

// put writes or (value nil) removes a row and keeps the head's account of it.
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

// update runs write and puts the head, in one synced transaction. If it fails,
// the account in memory is as before, as is the file.
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

// Close frees the file and the folder's lock.
func (c *cache) Close() error {
	return errors.Join(c.told.close(), c.db.Close(), c.lock.Close())
}
