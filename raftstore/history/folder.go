package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/readahead"
	"rutter/raftstore/internal/window"
)

// Folder is the log of a stopped server's data folder, or of a snapshot file, for
// reading. All methods except Close may be called concurrently.
//
// Entries that raft's log has beyond changes.db are not part of it; a server that was
// killed leaves up to some 100 ms of them. offline.InspectFolder counts them.
type Folder struct {
	path   string
	db     *bbolt.DB
	temp   string // folder to be removed
	head   changesdb.Head
	blocks blocks
}

// OpenFolder opens a data folder, its changes.db, or a snapshot file, and changes nothing
// in it. A snapshot is checked and copied into the folder for temporary files, which
// needs the space for it. OpenFolder fails if a server has the folder open.
func OpenFolder(path string) (f *Folder, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f = &Folder{path: path}
	file := path
	if info.IsDir() {
		file = filepath.Join(path, changesdb.Name)
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("%s is no data folder of a server: it has no %s", path, changesdb.Name)
		}
	} else if image, err := isImage(path); err != nil {
		return nil, err
	} else if image {
		if file, err = f.unpack(path); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	err = boltfile.Guard(func() (err error) {
		f.db, err = bbolt.Open(file, 0o600, &bbolt.Options{Timeout: boltfile.LockWait, ReadOnly: true})
		return err
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		err = fmt.Errorf("%s: a server has it open: stop that one, or ask it with --server", path)
	case err != nil:
		err = fmt.Errorf("%s: %w", path, err)
	default:
		err = f.view(func(tx *bbolt.Tx) (err error) {
			for _, name := range [...][]byte{changesdb.BucketEvents, changesdb.BucketObjects, changesdb.BucketCheckpoints, window.BucketChanges} {
				if tx.Bucket(name) == nil {
					return fmt.Errorf("no bucket %s: %w", name, log.ErrCorrupt)
				}
			}
			f.head, _, err = changesdb.ReadMeta(tx)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func isImage(path string) (bool, error) {
	in, err := disk.OpenRegular(path)
	if err != nil {
		return false, err
	}
	defer in.Close()
	begin := make([]byte, len(changesdb.ImageMagic))
	n, err := io.ReadFull(in, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	return string(begin[:n]) == changesdb.ImageMagic, nil
}

// unpack writes the file that a snapshot holds.
func (f *Folder) unpack(path string) (file string, err error) {
	if f.temp, err = os.MkdirTemp("", "rutter-snapshot-"); err != nil {
		return "", err
	}
	in, err := disk.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	file = filepath.Join(f.temp, changesdb.Name)
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(changesdb.ReadImage(in, out, nil), out.Close()); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// Close closes the files, and removes temporary ones.
func (f *Folder) Close() (err error) {
	if f.db != nil {
		err = f.db.Close()
	}
	if f.temp != "" {
		err = errors.Join(err, os.RemoveAll(f.temp))
	}
	return err
}

func (f *Folder) view(fn func(tx *bbolt.Tx) error) error {
	err := boltfile.Guard(func() error { return f.db.View(fn) })
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// Head returns the end of the log.
func (f *Folder) Head() log.Cursor { return f.head.Cursor() }

// Floor returns the lowest seq that can be asked for: the seq before the first entry that
// is kept.
func (f *Folder) Floor() log.Seq { return f.head.Floor }

// Feature returns the feature version by which the last entries were decided.
func (f *Folder) Feature() uint32 { return f.head.Feature }

// HashAt returns the chain hash at seq, from Floor to the head.
func (f *Folder) HashAt(seq log.Seq) (hash log.Hash, err error) {
	switch {
	case seq > f.head.Seq:
		return hash, fmt.Errorf("chain at %d, the head is %d: %w", seq, f.head.Seq, log.ErrAhead)
	case seq < f.head.Floor:
		return hash, fmt.Errorf("chain at %d, entries are kept after %d: %w", seq, f.head.Floor, log.ErrCompacted)
	case seq == f.head.Floor:
		return f.head.FloorHash, nil
	}
	err = f.view(func(tx *bbolt.Tx) error {
		key := changesdb.SeqKey(seq)
		s, err := changesdb.ReadEvent(seq, key, tx.Bucket(changesdb.BucketEvents).Get(key))
		hash = s.Hash
		return err
	})
	return hash, err
}

// Entries is like Store.Entries: whole changes after a seq; none at the head.
func (f *Folder) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	if after > f.head.Seq {
		return nil, fmt.Errorf("entries after %d, the head is %d: %w", after, f.head.Seq, log.ErrAhead)
	}
	c := changesdb.Collector{Max: max(limit, 1)}
	err := f.view(func(tx *bbolt.Tx) error { return changesdb.ReadEvents(tx, after, &c) })
	if err != nil {
		return nil, err
	}
	return c.Result(), nil
}

// Each calls fn with the entries after a seq, in order and to the head, until fn returns
// false or ctx ends. Each checks each row's checksum, but not its chain hash. An entry's
// bytes are memory of the file: fn must not change them, nor keep them after it returns.
// Errors: log.ErrAhead, log.ErrCompacted, log.ErrCorrupt, ctx's.
func (f *Folder) Each(ctx context.Context, after log.Seq, fn func(e log.Entry) bool) error {
	switch {
	case after > f.head.Seq:
		return fmt.Errorf("entries after %d, the head is %d: %w", after, f.head.Seq, log.ErrAhead)
	case after < f.head.Floor:
		return fmt.Errorf("entries after %d, they are kept after %d: %w", after, f.head.Floor, log.ErrCompacted)
	}
	return f.view(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(changesdb.BucketEvents).Cursor()
		want, next := after+1, readahead.Ahead{}
		for key, row := cursor.Seek(changesdb.SeqKey(want)); want <= f.head.Seq; key, row = cursor.Next() {
			next.Row(row)
			s, err := changesdb.ReadEvent(want, key, row)
			if err == nil && want%changesdb.UpkeepRows == 0 {
				err = ctx.Err()
			}
			if err != nil || !fn(s.Entry) {
				return err
			}
			want++
		}
		return nil
	})
}

// SeqAt is like Reader.SeqAt.
func (f *Folder) SeqAt(at log.Time) (seq log.Seq, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		seq, err = seqAt(context.Background(), tx, &f.blocks, at, true)
		return err
	})
	return seq, err
}

// StateAt is like Reader.StateAt.
func (f *Folder) StateAt(ctx context.Context, seq log.Seq) (*projections.State, error) {
	if seq > f.head.Seq {
		return nil, fmt.Errorf("state at %d, the head is %d: %w", seq, f.head.Seq, log.ErrAhead)
	}
	state := projections.NewState()
	err := f.view(func(tx *bbolt.Tx) error { return changesdb.StateAt(ctx, tx, seq, state) })
	return state, err
}

// ObjectAt is like Reader.ObjectAt.
func (f *Folder) ObjectAt(ctx context.Context, ref Ref, seq log.Seq) (rec projections.Record, ok bool, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		rec, ok, err = objectAt(ctx, tx, &f.blocks, ref, seq)
		return err
	})
	return rec, ok, err
}

// PartAt is like Reader.PartAt.
func (f *Folder) PartAt(ctx context.Context, part Part, seq log.Seq) (*projections.State, error) {
	state := projections.NewPart()
	err := f.view(func(tx *bbolt.Tx) error { return partAt(ctx, tx, &f.blocks, part, seq, state) })
	return state, err
}

// History is like Reader.History.
func (f *Folder) History(ctx context.Context, ref Ref, after log.Seq, limit int) (seqs []log.Seq, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		seqs, err = historyOf(ctx, tx, &f.blocks, ref, after, limit)
		return err
	})
	return seqs, err
}
