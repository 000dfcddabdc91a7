package raftstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/peer"
)

const (
	// maxStreams bounds the images that are sent at once.
	maxStreams = 2
	// maxStreamLag is how many raft entries may gather while images are sent. During that
	// time no marker is set, because the log would be trimmed past the image's end, and
	// its receiver would need another image (SAFETY S7). Beyond it, the streams are
	// dropped.
	maxStreamLag = 1 << 16
	// streamIdle is how long a stream may make no progress.
	streamIdle = 30 * time.Second
)

// errStream ends streams that are too slow.
var errStream = errors.New("raftstore: the snapshot's stream is too slow, the log has grown too far meanwhile")

// images is the raft.SnapshotStore. A snapshot is a marker inside changes.db. A follower
// gets a stream out of a read transaction, with metadata from the same transaction
// (SAFETY S1). A received image is a pending file, which becomes a snapshot only when a
// restore renames it (SAFETY S2).
type images struct {
	cfg       *Config
	files     *changesdb.Files
	persister *changesdb.Persister
	tasks     *peer.Tasks
	logger    *slog.Logger
	counters  *counters
	core      *core
	dir       string

	mu       sync.Mutex
	incoming map[string]*sink
	streams  map[*source]struct{}
	made     uint64
}

// mayMark refuses a marker while images are sent.
func (i *images) mayMark() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.streams) == 0 {
		return nil
	}
	applied, marker := i.core.appliedIndex(), i.persister.LastMarker().Index
	if lag := applied - min(applied, marker); lag < maxStreamLag { // the marker may be that of a barrier after it
		return fmt.Errorf("raftstore: a snapshot is being sent; the log is trimmed after it (%d entries now)", lag)
	}
	for stream := range i.streams {
		stream.abort(errStream)
	}
	return nil
}

// Create implements raft.SnapshotStore, for a local marker and for a received image: the
// use of the sink decides which.
func (i *images) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("raftstore: snapshot version %d, want 1", version)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	return &sink{images: i, id: fmt.Sprintf("%d-%d-%d", term, index, i.made), marker: changesdb.Marker{Index: index, Term: term, ConfIndex: confIndex, Conf: conf}}, nil
}

// List implements raft.SnapshotStore: the marker, or nothing.
func (i *images) List() ([]*raft.SnapshotMeta, error) {
	var metas []*raft.SnapshotMeta
	err := i.files.View(func(tx *bbolt.Tx) error {
		_, m, err := changesdb.ReadMeta(tx)
		if err == nil && m.Index > 0 {
			metas = append(metas, m.Meta())
		}
		return err
	})
	return metas, err
}

// Open implements raft.SnapshotStore: if id is that of a received image, that image; else
// a stream of the present changes.db, which may be newer than the marker.
func (i *images) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	i.mu.Lock()
	k := i.incoming[id]
	i.mu.Unlock()
	if k != nil {
		meta := k.marker.Meta()
		meta.ID, meta.Size = id, k.size
		return meta, &received{k}, nil
	}
	h := i.files.Acquire()
	tx, err := i.persister.Settled(h)
	if err != nil {
		return nil, nil, errors.Join(err, i.files.Release(h))
	}
	src := &source{images: i, handle: h, tx: tx}
	head, _, err := changesdb.ReadMeta(tx)
	src.head = head
	if err == nil && (head.Applied == 0 || len(head.Conf.Servers) == 0) {
		err = errors.New("raftstore: there is nothing to snapshot yet")
	}
	if err == nil {
		err = i.add(src)
	}
	if err != nil {
		return nil, nil, errors.Join(err, src.unpin())
	}
	at := changesdb.Marker{Index: head.Applied, Term: head.Term, ConfIndex: head.ConfIndex, Conf: head.Conf}
	meta := at.Meta()
	meta.ID, meta.Size = id, changesdb.ImageHeader+tx.Size()+changesdb.ImageTrailer
	src.start()
	i.logger.Info("sending a snapshot", "seq", head.Seq, "raft_index", head.Applied, "bytes", meta.Size)
	return meta, src, nil
}

func (i *images) add(src *source) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.streams) >= maxStreams {
		return fmt.Errorf("raftstore: %d snapshots are being sent already", len(i.streams))
	}
	i.streams[src] = struct{}{}
	return nil
}

// source streams an image. Its read transaction stays open until Close, or until the
// stream makes no progress for streamIdle.
type source struct {
	images *images
	handle *changesdb.Handle
	tx     *bbolt.Tx
	head   changesdb.Head // of the transaction
	r      *io.PipeReader
	w      *io.PipeWriter
	idle   *time.Timer
	done   chan struct{} // the writer has ended and the transaction is over
}

func (s *source) start() {
	s.r, s.w = io.Pipe()
	s.done = make(chan struct{})
	s.idle = time.AfterFunc(streamIdle, func() { s.abort(errStream) })
	go func() {
		defer close(s.done)
		err := s.write()
		err = errors.Join(err, s.unpin())
		_ = s.w.CloseWithError(err) // nil means io.EOF
	}()
}

// write sends the image into the pipe.
func (s *source) write() error { return changesdb.WriteImage(s.w, s.tx) }

func (s *source) unpin() error {
	return errors.Join(s.tx.Rollback(), s.images.files.Release(s.handle))
}

func (s *source) abort(err error) { _ = s.r.CloseWithError(err) }

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	s.idle.Reset(streamIdle)
	n, err := s.r.Read(p)
	return n, err
}

// Close implements io.Closer.
func (s *source) Close() error {
	s.idle.Stop()
	s.abort(errStreamClosed)
	<-s.done
	s.images.mu.Lock()
	delete(s.images.streams, s)
	s.images.mu.Unlock()
	s.images.counters.snapshots.Add(1)
	return nil
}

// errStreamClosed ends the writer of a stream whose reader has closed it.
var errStreamClosed = errors.New("raftstore: the snapshot's stream was closed")

// sink receives a snapshot from raft: nothing yet, a marker, or an image.
type sink struct {
	images *images
	id     string
	marker changesdb.Marker
	least  uint64 // the raft index that an image must have reached; 0: this server's applied index

	file   *os.File // of an image; nil before the first Write
	idle   *time.Timer
	header []byte
	want   int64 // bytes of the file
	got    int64 // bytes of the file so far
	tail   []byte
	sum    hash.Hash
	size   int64
}

// ID implements raft.SnapshotSink.
func (k *sink) ID() string { return k.id }

// becomeMarker writes the marker, after everything that it covers.
func (k *sink) becomeMarker(epoch uint64) error {
	if err := k.images.persister.Mark(k.marker, epoch); err != nil {
		return err
	}
	k.id = k.marker.ID()
	return nil
}

func (k *sink) path() string {
	return filepath.Join(k.images.dir, changesdb.Name+"."+k.id+boltfile.PendingSuffix)
}

// Write implements io.Writer: the next bytes of an image.
func (k *sink) Write(p []byte) (int, error) {
	if k.file == nil {
		if err := k.begin(); err != nil {
			return 0, err
		}
	}
	k.idle.Reset(streamIdle)
	n := len(p)
	k.size += int64(n)
	if missing := changesdb.ImageHeader - len(k.header); missing > 0 {
		part := p[:min(missing, len(p))]
		k.header = append(k.header, part...)
		p = p[len(part):]
		if len(k.header) < changesdb.ImageHeader {
			return n, nil
		}
		if string(k.header[:8]) != changesdb.ImageMagic {
			return 0, fmt.Errorf("raftstore: what came does not begin as an image does: %w", log.ErrFormat)
		}
		k.want = int64(binary.BigEndian.Uint64(k.header[8:]))
		k.sum.Write(k.header)
	}
	part := p[:min(int64(len(p)), k.want-k.got)]
	if _, err := k.file.Write(part); err != nil {
		return 0, fmt.Errorf("image: %w: %w", ErrDisk, err)
	}
	k.sum.Write(part)
	k.got += int64(len(part))
	k.tail = append(k.tail, p[len(part):]...)
	if len(k.tail) > changesdb.ImageTrailer {
		return 0, fmt.Errorf("raftstore: bytes after the image's end: %w", log.ErrCorrupt)
	}
	return n, nil
}

// begin opens the pending file. An image that is behind this server's own state
// is not taken (SAFETY S8).
func (k *sink) begin() error {
	if least := cmp.Or(k.least, k.images.core.appliedIndex()); k.marker.Index < least {
		return fmt.Errorf("raftstore: the leader's snapshot is at raft index %d, behind this server's %d: not taken", k.marker.Index, least)
	}
	file, err := os.OpenFile(k.path(), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("image: %w: %w", ErrDisk, err)
	}
	k.file, k.sum = file, sha256.New()
	// Raft's main loop reads the stream, and would wait without end for a sender that was
	// stopped. So the connections are closed, and made anew.
	k.idle = time.AfterFunc(streamIdle, k.images.tasks.HangUp)
	k.images.logger.Info("receiving a snapshot", "raft_index", k.marker.Index)
	return nil
}

// Close implements raft.SnapshotSink: an image is complete, and is checked.
func (k *sink) Close() error {
	if k.file == nil {
		return nil // a marker, which is already written
	}
	k.idle.Stop()
	if k.got != k.want || len(k.tail) != changesdb.ImageTrailer || string(k.sum.Sum(nil)) != string(k.tail) {
		err := fmt.Errorf("raftstore: image of %d of %d bytes: checksum does not fit: %w", k.got, k.want, log.ErrCorrupt)
		return errors.Join(err, k.Cancel())
	}
	if err := errors.Join(k.file.Sync(), k.file.Close()); err != nil {
		return errors.Join(fmt.Errorf("image: %w: %w", ErrDisk, err), os.Remove(k.path()))
	}
	k.images.mu.Lock()
	k.images.incoming[k.id] = k
	k.images.mu.Unlock()
	return nil
}

// Cancel implements raft.SnapshotSink.
func (k *sink) Cancel() error {
	if k.file == nil {
		return nil
	}
	k.idle.Stop()
	return errors.Join(k.file.Close(), os.Remove(k.path()))
}

// open opens the received file as changes.db, writes raft's index and a marker there, and
// reads its content.
func (k *sink) open() (*bbolt.DB, changesdb.Content, error) {
	return k.openAs(func(h *changesdb.Head) changesdb.Marker {
		m := k.marker
		h.Applied, h.Term, h.ConfIndex, h.Conf = m.Index, m.Term, m.ConfIndex, m.Conf
		return m
	})
}

// errFolder: the file was renamed, but the rename may not be durable.
var errFolder = errors.New("raftstore: changes.db was replaced, and its folder could not be synced")

// publish makes the received file changes.db. Errors: errFolder after the rename.
func (k *sink) publish() error {
	if err := os.Rename(k.path(), filepath.Join(k.images.dir, changesdb.Name)); err != nil {
		return fmt.Errorf("image: %w: %w", ErrDisk, err)
	}
	if err := disk.SyncDir(k.images.dir); err != nil {
		return fmt.Errorf("%w: %w", errFolder, err)
	}
	return nil
}

// received is the image of a sink, for the restore. The restore takes the file itself and
// does not read this stream.
type received struct{ *sink }

// Read implements io.Reader. It is never called for content.
func (r *received) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer: the restore has ended, with or without success.
func (r *received) Close() error {
	i := r.sink.images
	i.mu.Lock()
	delete(i.incoming, r.sink.id)
	i.mu.Unlock()
	if err := os.Remove(r.sink.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
