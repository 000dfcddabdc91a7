package raftstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/notify"
)

// View is what a reader sees: the state, and its position in the log.
type View struct {
	State *projections.State
	Head  log.Cursor
	Time  log.Time // of the last change; goes back only where an operator set it (SAFETY T1)
}

// View calls fn under the read lock, between two changes. fn must be short. Of v it may
// keep only objects, which are never changed.
func (s *Store) View(fn func(v View)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(View{State: s.state, Head: s.head.Cursor(), Time: s.head.Time})
}

// Head returns the end of the log as this server has it.
func (s *Store) Head() log.Cursor { return s.cursor() }

// cursor returns the head as a cursor.
func (c *core) cursor() log.Cursor {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.head.Cursor()
}

// Past returns the reader of the log and the state as they were.
func (s *Store) Past() *history.Reader { return s.past }

// Mentions is history.Reader.Mentions.
func (s *Store) Mentions(uuids []log.UUID, after log.Seq, limit int) (entries []log.Entry, upTo log.Seq, chain log.ChainPrefix, ok bool, err error) {
	return s.past.Mentions(uuids, after, limit)
}

// headAndFloor returns the head and the floor.
func (c *core) headAndFloor() (head, floor log.Seq) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.head.Seq, c.head.Floor
}

// Floor returns the lowest seq that a cursor may have: the seq before the first entry
// that is kept.
func (s *Store) Floor() log.Seq {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.head.Floor
}

// Changed returns a channel that is closed when more was applied. Callers take the
// channel first, then check the state, then wait.
func (s *Store) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Entries returns the entries after a seq, in order and without a gap: at most limit
// entries and about 4 MiB, but always whole changes, so more if the first change alone is
// larger. An empty list means that after is the head. The caller must not change the
// entries.
//
// Errors: log.ErrCompacted, log.ErrAhead, and log.ErrCorrupt if a stored entry is
// damaged: it is not returned.
func (s *Store) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	if err := s.Serving(); err != nil {
		return nil, err
	}
	c := changesdb.Collector{Max: max(limit, 1)}
	s.mu.RLock()
	h := s.head
	inRing := s.ring.Has(after + 1)
	if inRing {
		s.ring.Read(after, &c)
	}
	s.mu.RUnlock()
	switch {
	case after > h.Seq:
		return nil, fmt.Errorf("entries after %d, the head is %d: %w", after, h.Seq, log.ErrAhead)
	case after < h.Floor:
		return nil, fmt.Errorf("entries after %d, they are kept after %d: %w", after, h.Floor, log.ErrCompacted)
	case inRing || after == h.Seq:
		return c.Result(), nil
	}
	err := s.files.View(func(tx *bbolt.Tx) error { return changesdb.ReadEvents(tx, after, &c) })
	if err != nil {
		return nil, err
	}
	return c.Result(), nil
}

// CheckCursor returns nil if the log can be followed from c, else log.ErrOtherLog,
// log.ErrAhead or log.ErrCompacted. A cursor that is ahead of this server may be right on
// another server. So call Consistent and check again before a client is told to begin
// anew (SAFETY P4).
func (s *Store) CheckCursor(c log.Cursor) error {
	if err := s.Serving(); err != nil {
		return err
	}
	if c == (log.Cursor{}) {
		return s.checkFloor(0)
	}
	s.mu.RLock()
	h := s.head
	hash, known := log.Hash{}, true
	switch {
	case c.Seq == 0:
	case c.Seq == h.Seq:
		hash = h.Hash
	case c.Seq == h.Floor:
		hash = h.FloorHash
	case s.ring.Has(c.Seq):
		hash = s.ring.At(c.Seq).Hash
	default:
		known = false
	}
	s.mu.RUnlock()
	if h.Cluster.IsZero() {
		return fmt.Errorf("cursor %s: this server knows no cluster yet: %w", c, log.ErrAhead)
	}
	if c.Cluster != h.Cluster {
		return fmt.Errorf("cursor %s: this is cluster %s: %w", c, h.Cluster, log.ErrOtherLog)
	}
	if c.Seq > h.Seq {
		return fmt.Errorf("cursor %s: the head is %d: %w", c, h.Seq, log.ErrAhead)
	}
	if err := s.checkFloor(c.Seq); err != nil {
		return err
	}
	if !known {
		var err error
		if hash, err = s.storedHash(c.Seq); err != nil {
			return err
		}
	}
	if hash.Prefix() != c.Chain {
		return fmt.Errorf("cursor %s: the chain is %s there: %w", c, hash.Prefix(), log.ErrOtherLog)
	}
	return nil
}

func (s *Store) checkFloor(seq log.Seq) error {
	if floor := s.Floor(); seq < floor {
		return fmt.Errorf("cursor at %d, entries are kept after %d: %w", seq, floor, log.ErrCompacted)
	}
	return nil
}

// storedHash reads the chain hash at seq from changes.db.
func (s *Store) storedHash(seq log.Seq) (hash log.Hash, err error) {
	err = s.files.View(func(tx *bbolt.Tx) error {
		key := changesdb.SeqKey(seq)
		found, err := changesdb.ReadEvent(seq, key, tx.Bucket(changesdb.BucketEvents).Get(key))
		hash = found.Hash
		return err
	})
	return hash, err
}

// WaitSeq waits until this server has applied seq. Errors: ctx's, ErrStopped.
func (s *Store) WaitSeq(ctx context.Context, seq log.Seq) error {
	for {
		s.mu.RLock()
		changed, at := s.changed, s.head.Seq
		s.mu.RUnlock()
		if at >= seq {
			return nil
		}
		select {
		case <-changed:
		case <-s.failed:
			return s.stopCause()
		case <-s.ending:
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("wait for seq %d, at %d now: %w", seq, at, ctx.Err())
		}
	}
}

// Consistent waits until everything that any server acknowledged before the call is
// applied on this server, and returns the seq of that. It costs a raft entry, which all
// waiting callers share. Errors: ErrNoLeader, ErrStopped, ctx's.
func (s *Store) Consistent(ctx context.Context) (log.Seq, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	for {
		if err := s.Serving(); err != nil {
			return 0, err
		}
		moved := s.lead.leaderMoved()
		seq, err := s.barriers.barrierOnce(ctx)
		if err == nil {
			return seq, s.WaitSeq(ctx, seq)
		}
		if ended := s.pause(ctx, moved); errors.Is(ended, ErrStopped) {
			return 0, ended
		} else if ended != nil {
			return 0, fmt.Errorf("%w: %w (%w)", ErrNoLeader, ended, err)
		}
	}
}

// barrierOnce makes one attempt with the leader that is known now.
func (b *barriers) barrierOnce(ctx context.Context) (log.Seq, error) {
	address := b.store.lead.leaderAddress()
	if address == "" {
		return 0, errNotLeader
	}
	if address == b.store.Address() {
		return b.barrierLocal(ctx)
	}
	answer, err := b.store.endpoint.callPeer(ctx, address, askBarrier, nil)
	if err != nil {
		return 0, err
	}
	if len(answer) != 8 {
		return 0, fmt.Errorf("barrier: answer of %d bytes from %s", len(answer), address)
	}
	return log.Seq(binary.BigEndian.Uint64(answer)), nil
}

// barriers gathers the readers that wait for the next barrier.
type barriers struct {
	store *Store
	kick  chan struct{}

	mu      sync.Mutex
	waiting []chan outcomeSeq
	closed  bool
}

type outcomeSeq struct {
	seq log.Seq
	err error
}

// barrierLocal waits for a barrier that begins after the call, on the leader.
func (b *barriers) barrierLocal(ctx context.Context) (log.Seq, error) {
	if b.store.Serving() != nil {
		return 0, errNotLeader // another server will lead soon
	}
	done := make(chan outcomeSeq, 1)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return 0, ErrStopped
	}
	b.waiting = append(b.waiting, done)
	b.mu.Unlock()
	notify.Send(b.kick)
	select {
	case o := <-done:
		return o.seq, o.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (b *barriers) takeAll() []chan outcomeSeq {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.waiting
	b.waiting = nil
	return waiting
}

func (b *barriers) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	for _, done := range b.takeAll() {
		done <- outcomeSeq{err: ErrStopped}
	}
}

// runBarriers makes one barrier for all readers that wait, then one for those that came
// meanwhile. It never uses VerifyLeader, which counts answers to requests from before the
// read (SAFETY R1).
func (b *barriers) runBarriers(ctx context.Context, r *raft.Raft) {
	defer b.close()
	for {
		select {
		case <-b.kick:
		case <-ctx.Done():
			return
		}
		waiting := b.takeAll()
		if len(waiting) == 0 {
			continue
		}
		var o outcomeSeq
		if role(b.store.lead.role.Load()) == leaving {
			// A barrier is an entry, and the next leader would lack it.
			o.err = fmt.Errorf("%w: %w", errNotLeader, errTransferring)
		} else if o.err = r.Barrier(enqueueTimeout).Error(); o.err != nil {
			o.err = fmt.Errorf("%w: barrier: %w", errNotLeader, o.err)
		} else {
			o.seq = b.store.Head().Seq
		}
		for _, done := range waiting {
			done <- o
		}
	}
}

// awaitFuture waits for a future of raft, or for ctx.
func awaitFuture(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Backup is a snapshot that a running server sends: an image as followers get it, with
// its own length and checksum. The caller must read it to its end without long pauses,
// and close it.
type Backup struct {
	io.ReadCloser
	Cluster log.UUID
	Seq     log.Seq // the backup holds everything up to here
	Size    int64   // bytes that Read returns in all
}

// Backup begins a snapshot of this server's data. It has at least everything that this
// server had applied at the call. No write waits for it. Like an image for a follower it
// holds a read transaction, counts as one of the two that may be sent at once
// (maxStreams), and is dropped if it makes no progress for 30 s (streamIdle).
func (s *Store) Backup(ctx context.Context) (*Backup, error) {
	if err := s.stopCause(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// What was applied is first written to the file. The persister's own run notices an
	// error of the disk too.
	s.persister.Wake()
	if err := s.persister.Flush(); err != nil {
		return nil, err
	}
	meta, stream, err := s.images.Open("backup")
	if err != nil {
		return nil, err
	}
	b := &Backup{ReadCloser: stream, Size: meta.Size}
	if src, ok := stream.(*source); ok {
		b.Cluster, b.Seq = src.head.Cluster, src.head.Seq
	}
	return b, nil
}

// CheckImage reads a snapshot and fails unless its length and checksum fit.
func CheckImage(r io.Reader) error { return changesdb.CheckImage(r) }
