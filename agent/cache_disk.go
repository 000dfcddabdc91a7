package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"rutter/log"
)

// A node works without its disk. What can be read from the cache is read; what cannot
// be written stays in memory. As soon as the disk accepts writes, the complete file is
// written again. An agent fails to start only if another agent uses the folder.

// errNoFile is wrapped while no file can be written.
var errNoFile = errors.New("agent: there is no cache file that can be written")

// openCache opens the cache of cn in folder, or makes a new one. A damaged cache, or
// one of another CN, is put aside, and its name is logged. now is part of the name of
// that file, and the lower limit of a new incarnation. The only error is ErrLocked. If
// the disk cannot be used, openCache returns a cache that stores nothing.
func openCache(folder string, cn log.UUID, now time.Time, logger *slog.Logger) (*cache, *contents, error) {
	c := &cache{folder: folder, path: filepath.Join(folder, cacheName), cn: cn, logger: logger, enc: log.NewEncoder(), delay: func(string) {}}
	err := c.occupy()
	if errors.Is(err, ErrLocked) {
		return nil, nil, err
	}
	held, opened := c.openOrAside(now)
	held.Head.Incarnation = max(held.Head.Incarnation+1, uint64(now.UnixMilli()))
	c.head.Incarnation = held.Head.Incarnation
	c.numbers = held.Numbers
	var told error
	if c.answers, held.Answered, told = openAnswerLog(folder, logger); told != nil {
		logger.Warn("SVP answers cannot be noted", "error", told)
	}
	held.answers = c.answers
	if err = errors.Join(err, opened); err == nil {
		err = c.update(func(*bolt.Tx) error { return nil })
	}
	if c.failure = err; err != nil {
		logger.Error("the cache cannot be written: this node works from memory, and needs the servers if it restarts", "folder", folder, "error", err)
	}
	return c, held, nil
}

// occupy makes the folder and locks it for this process.
func (c *cache) occupy() (err error) {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return fmt.Errorf("agent: folder %s: %w", c.folder, err)
	}
	if c.lock == nil {
		c.lock, err = lockFolder(c.folder)
	}
	return err
}

// openOrAside opens the file. It puts a damaged one aside; from a file that cannot be
// written it reads the content. The result is never nil.
func (c *cache) openOrAside(now time.Time) (*contents, error) {
	held, err := c.open()
	if errors.Is(err, errFile) {
		if err := c.putAside(c.path, err, now); err != nil {
			return c.nothing(), err
		}
		held, err = c.open()
	}
	if err != nil {
		err = fmt.Errorf("agent: cache %s: %w", c.path, err)
		var unread error
		if held, unread = readCache(c.path, c.cn); unread != nil {
			c.logger.Warn("the cache cannot be read either: everything is requested from the servers", "error", unread)
			held = c.nothing()
		}
	}
	c.openOld(held, now)
	return held, err
}

func (c *cache) nothing() *contents { return &contents{Scopes: make(map[log.Scope]heldScope)} }

// putAside renames a file that cannot be trusted, so that it can be inspected.
func (c *cache) putAside(path string, why error, now time.Time) error {
	aside := path + ".damaged-" + now.UTC().Format("20060102T150405.000000000")
	c.logger.Error("cache is damaged: put aside, and rebuilt from the servers", "error", why, "aside", aside)
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("agent: put damaged cache aside: %w", err)
	}
	removeOldDamaged(path, c.logger)
	return nil
}

// open verifies and reads the file, or makes it. An error that wraps errFile means that
// the file cannot be trusted.
func (c *cache) open() (*contents, error) {
	if _, err := os.Stat(c.path); errors.Is(err, fs.ErrNotExist) {
		if err := c.create(&batch{}); err != nil {
			return nil, err
		}
		return c.nothing(), nil
	}
	if err := verifyPath(c.path); err != nil {
		return nil, err
	}
	db, err := bolt.Open(c.path, 0o600, &boltOptions)
	if err != nil {
		return nil, damaged(err)
	}
	db.AllocSize = cacheGrowBytes
	held, err := loadRows(db, c.cn)
	if err == nil {
		c.file, err = os.Stat(c.path)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.db, c.head, c.gone = db, held.Head, len(held.Gone)
	return held, nil
}

func verifyPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = verifyFile(f, info.Size())
	}
	return errors.Join(err, f.Close())
}

// readCache reads a file without writing to it.
func readCache(path string, cn log.UUID) (*contents, error) {
	if err := verifyPath(path); err != nil {
		return nil, err
	}
	options := boltOptions
	options.ReadOnly = true
	db, err := bolt.Open(path, 0o600, &options)
	if err != nil {
		return nil, damaged(err)
	}
	held, err := loadRows(db, cn)
	return held, errors.Join(err, db.Close())
}

// create writes a file with the content of b under another name, and then renames it.
// After a crash, either the old file or a complete new one is there.
func (c *cache) create(b *batch) error {
	numbers, _ := c.pendingNumbers()
	fresh := &cache{cn: c.cn, enc: c.enc, head: head{CN: c.cn, Incarnation: c.head.Incarnation}, numbers: numbers, numbersDirty: numbers != nil}
	if err := fresh.createAt(c.path+".new", b); err != nil {
		return err
	}
	info, err := publish(c.path)
	if err != nil {
		return errors.Join(err, fresh.db.Close())
	}
	c.db, c.file, c.head, c.gone = fresh.db, info, fresh.head, fresh.gone
	c.numbersSaved(numbers)
	return nil
}

// publish renames path+".new" to path.
func publish(path string) (os.FileInfo, error) {
	if err := os.Rename(path+".new", path); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	return os.Stat(path)
}

// createAt makes a file from b. On success, c.db is that file.
func (c *cache) createAt(path string, b *batch) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := bolt.Open(path, 0o600, &boltOptions)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	db.AllocSize = cacheGrowBytes
	c.db = db
	// This takes two transactions, so that neither meta page still has the free list
	// that bbolt writes into a new file (see verifyFile).
	for range 2 {
		if err = c.update(makeBuckets); err != nil {
			break
		}
	}
	if err == nil {
		err = c.commit(b)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create: %w", err), db.Close(), os.Remove(path))
	}
	return nil
}

func makeBuckets(tx *bolt.Tx) error {
	for _, name := range []string{bucketMeta, bucketScopes} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// Commit writes b in one synced transaction. An error that wraps errNoFile means that
// the complete file must be written.
func (c *cache) Commit(b *batch) error {
	c.delay("write a transaction")
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.lost(); err != nil && !b.Full {
		return err
	}
	if err := c.keepOld(b.Hold); err != nil {
		return err
	}
	if b.Full {
		if err := c.rebuild(b); err != nil {
			return err
		}
	} else if err := c.commit(b); err != nil {
		if errors.Is(err, errFile) {
			c.db = nil // which of its locks it holds is unknown, so it is not closed
			c.failure = err
			return fmt.Errorf("%w: %w", errNoFile, err)
		}
		return err
	}
	return c.dropOld(b.Hold)
}

func (c *cache) commit(b *batch) error {
	return c.withNumbers(func(tx *bolt.Tx) error { return c.write(tx, b) })
}

// withNumbers is update, and also writes the numbers that are not on disk yet.
func (c *cache) withNumbers(write func(*bolt.Tx) error) error {
	numbers, owes := c.pendingNumbers()
	err := c.update(func(tx *bolt.Tx) error {
		if owes {
			if err := c.put(tx.Bucket([]byte(bucketMeta)), bucketMeta, []byte(keyNumbers), encodeMeta(keyNumbers, numbers)); err != nil {
				return err
			}
		}
		return write(tx)
	})
	if err == nil {
		c.numbersSaved(numbers)
	}
	return err
}

// lost reports that there is no file, or that it was deleted: what is written to a
// deleted file is lost. A file that was cut is also detected here, because bbolt maps
// the file, and after a failed write reads all of it in a goroutine whose panics cannot
// be recovered.
func (c *cache) lost() error {
	if c.db == nil {
		return fmt.Errorf("%w: %w", errNoFile, c.failure)
	}
	now, err := os.Stat(c.path)
	switch {
	case err != nil:
	case !os.SameFile(now, c.file):
		err = errors.New("another file has its name")
	case now.Size() < c.file.Size():
		err = fmt.Errorf("it was cut from %d bytes to %d", c.file.Size(), now.Size())
	default:
		c.file = now
		return nil
	}
	c.failure = fmt.Errorf("the cache file was taken away: %w", err)
	err = errors.Join(c.failure, c.db.Close())
	c.db = nil
	return fmt.Errorf("%w: %w", errNoFile, err)
}

// rebuild writes the complete file.
func (c *cache) rebuild(b *batch) error {
	if err := c.occupy(); err != nil {
		return fmt.Errorf("%w: %w", errNoFile, err)
	}
	old := c.db
	if err := c.create(b); err != nil {
		return fmt.Errorf("%w: %w", errNoFile, err)
	}
	c.failure = nil
	if old != nil {
		return old.Close()
	}
	return nil
}

// Probe reports whether the folder accepts writes. A complete batch is prepared only
// then.
func (c *cache) Probe() error {
	c.delay("write a probe")
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return fmt.Errorf("agent: folder %s: %w", c.folder, err)
	}
	f, err := os.Create(filepath.Join(c.folder, probeName))
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

const (
	probeName = "probe.tmp"
	// probeBytes must fit before a complete file is written: the size of an empty
	// cache.
	probeBytes = 64 << 10
)

// diskPatience is how long callers other than the cache's writer wait for the disk. A
// busy disk completes a write within that time.
const diskPatience = time.Second

// SaveNumbers saves the fabric numbers. If the disk does not accept them now, the next
// transaction saves them, so that links do not wait for a disk that fails or hangs.
func (c *cache) SaveNumbers(json []byte) {
	c.numbersMu.Lock()
	c.numbers, c.numbersDirty = json, true
	hangs := c.saving
	c.saving = true
	c.numbersMu.Unlock()
	if hangs {
		return // the earlier call hangs; the next transaction saves what it does not
	}
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		c.saveNumbers()
	}()
	select {
	case <-saved:
	case <-time.After(diskPatience):
		c.logger.Warn("fabric numbers are not on disk yet: the disk hangs")
	}
}

func (c *cache) saveNumbers() {
	c.delay("write fabric numbers")
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.lost()
	if err == nil {
		err = c.withNumbers(func(*bolt.Tx) error { return nil })
	}
	c.numbersMu.Lock()
	c.saving = false
	c.numbersMu.Unlock()
	if err != nil {
		c.logger.Warn("fabric numbers are not on disk yet", "error", err)
	}
}

// pendingNumbers returns the numbers, and whether they must be written.
func (c *cache) pendingNumbers() (json []byte, owes bool) {
	c.numbersMu.Lock()
	defer c.numbersMu.Unlock()
	return c.numbers, c.numbersDirty
}

// numbersSaved records that these numbers are on disk.
func (c *cache) numbersSaved(json []byte) {
	c.numbersMu.Lock()
	defer c.numbersMu.Unlock()
	c.numbersDirty = c.numbersDirty && !bytes.Equal(c.numbers, json)
}

// isGone reports whether the complete file must be written.
func (c *cache) isGone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db == nil
}

// Close closes the file and releases the folder's lock.
func (c *cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.answers.close()
	if c.db != nil {
		err = errors.Join(err, c.db.Close())
	}
	if c.lock != nil {
		err = errors.Join(err, c.lock.Close())
	}
	return err
}
