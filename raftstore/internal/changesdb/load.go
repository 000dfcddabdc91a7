package changesdb

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/readahead"
	"rutter/raftstore/internal/window"
	"rutter/raftstore/skipped"
)

// Name is the file's name in the data folder.
const Name = "changes.db"

// OpenBolt opens a bbolt file with the options of this store: no free list on disk,
// because it would be written with each transaction; and mapBytes of address space, as
// large as the file may grow, because a reader stops the writer when the file must be
// remapped (SAFETY S5).
func OpenBolt(path string, mapBytes int) (*bbolt.DB, error) {
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
		return nil, fmt.Errorf("%s: open: %w: %w", path, disk.ErrTrouble, err)
	}
	return db, nil
}

// Open opens changes.db and makes its buckets.
func Open(path string, mapBytes int) (*bbolt.DB, error) {
	if err := boltfile.CheckPages(path, false); err != nil {
		return nil, err
	}
	db, err := OpenBolt(path, mapBytes)
	if err != nil {
		return nil, err
	}
	err = makeBuckets(db)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("%s: make buckets: %w: %w", path, disk.ErrTrouble, err)
	}
	return db, nil
}

// makeBuckets makes the buckets that a file lacks. If all exist it writes nothing,
// because the disk may be full.
func makeBuckets(db *bbolt.DB) error {
	tx, err := db.Begin(true) // this also makes bbolt count the free pages
	if err != nil {
		return err
	}
	made := false
	for _, name := range [...][]byte{BucketMeta, BucketEvents, BucketObjects, window.BucketChanges, BucketCheckpoints} {
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

// ReadMeta returns the head and the marker of a transaction.
func ReadMeta(tx *bbolt.Tx) (Head, Marker, error) {
	meta := tx.Bucket(BucketMeta)
	if meta == nil {
		return Head{}, Marker{}, fmt.Errorf("changes.db: no meta bucket: %w", log.ErrCorrupt)
	}
	h, err := DecodeHead(meta.Get(KeyHead))
	if err != nil {
		return h, Marker{}, err
	}
	if _, err := h.decodeSums(meta.Get(keySums), meta.Get(KeyHead)); err != nil {
		return h, Marker{}, err
	}
	if h.Retention, err = decodeRetention(meta.Get(keyRetention)); err != nil {
		return h, Marker{}, err
	}
	if h.Leaps, err = window.DecodeLeaps(meta.Get(window.KeyLeaps)); err != nil {
		return h, Marker{}, err
	}
	if h.Rows, err = h.decodeSwept(meta.Get(keySwept), meta.Get(KeyHead)); err != nil {
		return h, Marker{}, err
	}
	if h.Skips, err = skipped.Decode(meta.Get(skipped.Key)); err != nil {
		return h, Marker{}, err
	}
	m, err := decodeMarker(meta.Get(KeyMarker))
	if err != nil {
		return h, m, err
	}
	if m.Index > h.Applied {
		return h, m, fmt.Errorf("changes.db: the marker stands at raft index %d, beyond the data's %d: %w", m.Index, h.Applied, log.ErrCorrupt)
	}
	if h.Feature > log.FeatureVersion {
		return h, m, fmt.Errorf("changes.db: feature version %d, and this program knows %d: upgrade it: %w", h.Feature, log.FeatureVersion, log.ErrFormat)
	}
	return h, m, nil
}

// Content is what a server holds in memory, loaded from a file.
type Content struct {
	Head   Head
	Marker Marker
	State  *projections.State
	Window *window.Window
}

// Load reads the content of changes.db. age and count bound its window.
func Load(db *bbolt.DB, age time.Duration, count int) (Content, error) {
	c := Content{State: projections.NewState()}
	read := func(tx *bbolt.Tx) (err error) {
		if c.Head, c.Marker, err = ReadMeta(tx); err != nil {
			return err
		}
		if err := loadObjects(tx, &c.Head, c.State); err != nil {
			return err
		}
		if c.Window, err = window.Load(tx, age, count, c.Head.ForWindow()); err != nil {
			return err
		}
		if err := c.checkSums(tx); err != nil {
			return err
		}
		return checkLast(tx, &c.Head)
	}
	err := boltfile.Guard(func() error { return db.View(read) })
	c.State.SetTime(c.Head.Time)
	c.State.SetFeature(c.Head.Feature)
	return c, err
}

// checkSums compares the loaded content with the sums that were written, because a
// missing row has no checksum that could show it.
func (c *Content) checkSums(tx *bbolt.Tx) error {
	meta := tx.Bucket(BucketMeta)
	written := c.Head
	known, err := written.decodeSums(meta.Get(keySums), meta.Get(KeyHead))
	if err != nil {
		return err
	}
	c.Head.StateSum, c.Head.WindowSum, c.Head.Summed = StateSum(c.State), c.Window.Digest(), true
	if known && (written.StateSum != c.Head.StateSum || written.WindowSum != c.Head.WindowSum) {
		return fmt.Errorf("changes.db: objects or change ids are not those that were written: %w", log.ErrCorrupt)
	}
	return nil
}

// decodedRow is the row of an object, decoded. body shares the file's memory.
type decodedRow struct {
	projections.Record
	body []byte
}

// Rows are passed on in batches, a few of which may wait.
const (
	loadBatch   = 256
	loadBatches = 8
)

// errLoadStopped: the rows are no longer wanted.
var errLoadStopped = errors.New("raftstore: the rows are not wanted any more")

// LoadRows loads the objects in the buckets of kinds, except those in but. Another
// goroutine reads and decodes rows while this one folds earlier ones.
func LoadRows(objects *bbolt.Bucket, but map[ObjectKey]log.Seq, state *projections.State) error {
	var reading sync.WaitGroup
	batches, stop := make(chan []decodedRow, loadBatches), make(chan struct{})
	defer func() {
		close(stop)
		reading.Wait() // the reader uses the caller's transaction
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

// decodeRows passes all rows to batches, until stop is closed.
func decodeRows(objects *bbolt.Bucket, but map[ObjectKey]log.Seq, batches chan<- []decodedRow, stop <-chan struct{}) error {
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
		next := readahead.Ahead{}
		return objects.Bucket(name).ForEach(func(k, v []byte) error {
			next.Row(v)
			if _, ok := but[ObjectKey{kind, string(k)}]; ok {
				return nil
			}
			o, revision, seq, err := ReadObject(kind, string(k), v)
			if err != nil {
				return err
			}
			batch = append(batch, decodedRow{projections.Record{Object: o, Revision: revision, Seq: seq}, v[ObjectRowHeader+1:]})
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

// checkLast checks that the last event row is that of the head.
func checkLast(tx *bbolt.Tx, h *Head) error {
	key, row := tx.Bucket(BucketEvents).Cursor().Last()
	if h.Seq == h.Floor && key == nil {
		return nil
	}
	s, err := ReadEvent(h.Seq, key, row)
	if err != nil {
		return err
	}
	if s.Hash != h.Hash {
		return fmt.Errorf("changes.db: chain hash %s at %d, and the head says %s: %w", s.Hash, h.Seq, h.Hash, log.ErrCorrupt)
	}
	return nil
}
