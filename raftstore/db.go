package raftstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/raftlog"
)

// Names in the data folder.
const (
	dbName   = "changes.db"
	raftName = raftlog.FileName
)

// openDB opens a bbolt file as this store uses it: no free list on disk (it
// would be written with each transaction), and address space for as long as the
// file may grow, since a reader stops the writer when the map must be made
// anew (SAFETY S5).
func openDB(path string, mapBytes int) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:         boltfile.LockWait,
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mapBytes,
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: another process has it open: stop that one, or use another data folder", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w: %w", path, ErrDisk, err)
	}
	return db, nil
}

// openChanges opens changes.db and makes its buckets.
func openChanges(path string, mapBytes int) (*bbolt.DB, error) {
	if err := boltfile.CheckPages(path, false); err != nil {
		return nil, err
	}
	db, err := openDB(path, mapBytes)
	if err != nil {
		return nil, err
	}
	err = makeBuckets(db)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("%s: make buckets: %w: %w", path, ErrDisk, err)
	}
	return db, nil
}

// makeBuckets makes the buckets that a file lacks. It writes nothing if there are
// all: the disk may be full.
func makeBuckets(db *bbolt.DB) error {
	tx, err := db.Begin(true) // also has bbolt count the free pages
	if err != nil {
		return err
	}
	made := false
	for _, name := range [...][]byte{bucketMeta, bucketEvents, bucketObjects, bucketChanges, bucketCheckpoints} {
		if tx.Bucket(name) != nil {
			continue
		}
		made = true
		if _, err := tx.CreateBucket(name); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	if !made {
		return tx.Rollback()
	}
	return tx.Commit()
}

// readMeta returns the head and the marker of a transaction.
func readMeta(tx *bbolt.Tx) (head, marker, error) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return head{}, marker{}, fmt.Errorf("changes.db: no meta bucket: %w", log.ErrCorrupt)
	}
	h, err := decodeHead(meta.Get(keyHead))
	if err != nil {
		return h, marker{}, err
	}
	if _, err := h.decodeSums(meta.Get(keySums), meta.Get(keyHead)); err != nil {
		return h, marker{}, err
	}
	if h.retention, err = decodeRetention(meta.Get(keyRetention)); err != nil {
		return h, marker{}, err
	}
	if h.leaps, err = decodeLeaps(meta.Get(keyLeaps)); err != nil {
		return h, marker{}, err
	}
	if h.rows, err = h.decodeSwept(meta.Get(keySwept), meta.Get(keyHead)); err != nil {
		return h, marker{}, err
	}
	if h.skips, err = decodeSkips(meta.Get(keySkips)); err != nil {
		return h, marker{}, err
	}
	m, err := decodeMarker(meta.Get(keyMarker))
	if err != nil {
		return h, m, err
	}
	if m.index > h.applied {
		return h, m, fmt.Errorf("changes.db: the marker stands at raft index %d, beyond the data's %d: %w", m.index, h.applied, log.ErrCorrupt)
	}
	if h.feature > log.FeatureVersion {
		return h, m, fmt.Errorf("changes.db: feature version %d, and this program knows %d: upgrade it: %w", h.feature, log.FeatureVersion, log.ErrFormat)
	}
	return h, m, nil
}

// content is everything that a server holds in memory, as a file has it.
type content struct {
	head   head
	marker marker
	state  *projections.State
	window *window
}

// load reads the content of changes.db.
func load(db *bbolt.DB, cfg *Config) (content, error) {
	c := content{state: projections.NewState()}
	read := func(tx *bbolt.Tx) (err error) {
		if c.head, c.marker, err = readMeta(tx); err != nil {
			return err
		}
		if err := loadObjects(tx, &c.head, c.state); err != nil {
			return err
		}
		if c.window, err = loadWindow(tx, cfg, &c.head); err != nil {
			return err
		}
		if err := c.checkSums(tx); err != nil {
			return err
		}
		return checkLast(tx, &c.head)
	}
	err := boltfile.Guard(func() error { return db.View(read) })
	c.state.SetTime(c.head.time)
	c.state.SetFeature(c.head.feature)
	return c, err
}

// checkSums compares what was loaded with what was written: a row that is gone
// has no checksum that could tell.
func (c *content) checkSums(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	written := c.head
	known, err := written.decodeSums(meta.Get(keySums), meta.Get(keyHead))
	if err != nil {
		return err
	}
	c.head.stateSum, c.head.windowSum, c.head.summed = stateSum(c.state), c.window.sum, true
	if known && (written.stateSum != c.head.stateSum || written.windowSum != c.head.windowSum) {
		return fmt.Errorf("changes.db: objects or change ids are not those that were written: %w", log.ErrCorrupt)
	}
	return nil
}

// decodedRow is an object's row that was read; body shares the file's memory.
type decodedRow struct {
	projections.Record
	body []byte
}

// Rows are handed over in batches, a few of which may wait.
const (
	loadBatch   = 256
	loadBatches = 8
)

// errLoadStopped: nobody takes the rows any more.
var errLoadStopped = errors.New("raftstore: the rows are not wanted any more")

// loadRows loads the objects in the buckets of kinds, but for some. Another
// goroutine reads and decodes rows while this one folds those before them.
func loadRows(objects *bbolt.Bucket, but map[objectKey]log.Seq, state *projections.State) error {
	var reading sync.WaitGroup
	batches, stop := make(chan []decodedRow, loadBatches), make(chan struct{})
	defer func() {
		close(stop)
		reading.Wait() // it reads in the caller's transaction
	}()
	var err error // of the reading; written before batches is closed
	reading.Go(func() {
		defer close(batches)
		err = boltfile.Guard(func() error { return decodeRows(objects, but, batches, stop) })
	})
	for batch := range batches {
		for i := range batch {
			if err := loadObject(batch[i].Record, batch[i].body, state); err != nil {
				return err
			}
		}
	}
	return err
}

// decodeRows hands over all rows, until stop is closed.
func decodeRows(objects *bbolt.Bucket, but map[objectKey]log.Seq, batches chan<- []decodedRow, stop <-chan struct{}) error {
	batch := make([]decodedRow, 0, loadBatch)
	flush := func() error {
		select {
		case batches <- batch:
			batch = make([]decodedRow, 0, loadBatch)
			return nil
		case <-stop:
			return errLoadStopped
		}
	}
	err := objects.ForEachBucket(func(name []byte) error {
		kind, err := log.ParseKind(string(name))
		if err != nil {
			return fmt.Errorf("changes.db: bucket of objects %q: %w", name, log.ErrCorrupt)
		}
		next := ahead{}
		return objects.Bucket(name).ForEach(func(k, v []byte) error {
			next.row(v)
			if _, ok := but[objectKey{kind, string(k)}]; ok {
				return nil
			}
			o, revision, seq, err := readObjectRow(kind, string(k), v)
			if err != nil {
				return err
			}
			batch = append(batch, decodedRow{projections.Record{Object: o, Revision: revision, Seq: seq}, v[objectRowHeader+1:]})
			if len(batch) < loadBatch {
				return nil
			}
			return flush()
		})
	})
	if err != nil {
		return err
	}
	return flush()
}

func loadObject(r projections.Record, body []byte, state *projections.State) error {
	if err := state.LoadEncoded(r, body); err != nil {
		return fmt.Errorf("changes.db: %s %s: %w: %w", r.Object.Kind(), r.Object.ID(), log.ErrCorrupt, err)
	}
	return nil
}

// checkLast compares the head with the last event row, which must be its.
func checkLast(tx *bbolt.Tx, h *head) error {
	key, row := tx.Bucket(bucketEvents).Cursor().Last()
	if h.seq == h.floor && key == nil {
		return nil
	}
	s, err := readEventRow(h.seq, key, row)
	if err != nil {
		return err
	}
	if s.Hash != h.hash {
		return fmt.Errorf("changes.db: chain hash %s at %d, and the head says %s: %w", s.Hash, h.seq, h.hash, log.ErrCorrupt)
	}
	return nil
}

// handle is an open changes.db with its users counted: a restore puts another
// file in its place and waits for no reader; the last one closes it.
type handle struct {
	db   *bbolt.DB
	refs int // protected by files.mu
}

// files hands out the current changes.db.
type files struct {
	mu      sync.Mutex
	current *handle
}

func (f *files) acquire() *handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current.refs++
	return f.current
}

func (f *files) release(h *handle) error {
	f.mu.Lock()
	h.refs--
	last := h.refs == 0
	f.mu.Unlock()
	if !last {
		return nil
	}
	return h.db.Close()
}

// swap puts db in the place of the current file.
func (f *files) swap(db *bbolt.DB) error {
	f.mu.Lock()
	old := f.current
	f.current = &handle{db: db, refs: 1}
	f.mu.Unlock()
	if old == nil {
		return nil
	}
	return f.release(old)
}

// view runs fn in a read transaction of the current file. fn must be short.
func (f *files) view(fn func(tx *bbolt.Tx) error) error {
	h := f.acquire()
	err := boltfile.Guard(func() error { return h.db.View(fn) })
	return errors.Join(err, f.release(h))
}

// prepareDir makes the data folder and removes what an interrupted restore left.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data folder: %w: %w", ErrDisk, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"+boltfile.PendingSuffix))
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("data folder: %w: %w", ErrDisk, err)
		}
	}
	return nil
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w: %w", ErrDisk, err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w: %w", ErrDisk, err)
	}
	return nil
}
