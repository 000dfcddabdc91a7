package raftstore

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"rutter/raftstore/internal/changesdb"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/raftstore/internal/peer"
)

// A rebuild replaces this server's state by another server's, while this server runs.
// From its beginning on, raft's entries are kept and not applied. The other server sends
// an image that is at least as far as this server was. The image is checked and
// installed; then the kept entries after it are applied. This server keeps its marker,
// because its own log reaches back to it.
//
// How far this server was is the index of the last entry that the FSM got. Its marker, and
// after a restart its applied index, may be that of a barrier after it, and another
// server's data never gets there while nothing is written.

// errRebuilding: during a rebuild no marker is set, and nothing is served.
var errRebuilding = fmt.Errorf("%w: it is being rebuilt", ErrDiverged)

const (
	// rebuildWait bounds how long the sender may take to reach the requested index, and
	// the receiver to have the end of the image in its own log.
	rebuildWait = 30 * time.Second
	// maxKept bounds the entries kept during a rebuild, in bytes.
	maxKept = 512 << 20
)

// rebuild keeps the entries that raft hands over until the image is installed. applier.mu
// protects it.
type rebuild struct {
	kept  []*raft.Log
	bytes int
	err   error // too much was kept
}

func (b *rebuild) keep(entry *raft.Log) {
	if b.bytes += len(entry.Data); b.bytes > maxKept {
		b.err = fmt.Errorf("raftstore: more than %d bytes were written while the image was on its way: rebuild when less is written", maxKept)
	}
	b.kept = append(b.kept, entry)
}

func (a *applier) rebuilding() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rebuild != nil
}

// Rebuild replaces this server's state by that of another server that serves, and returns
// when that is done. Until then this server serves nothing. A leader first hands over.
// After an error the state is as before.
func (s *Store) Rebuild(ctx context.Context) error {
	r := s.raft.Load()
	if r == nil || phase(s.lead.phase.Load()) != running {
		return ErrStopped
	}
	if err := s.stopLeading(ctx, r); err != nil {
		s.logger.Error("not rebuilt", "error", err)
		return err
	}
	b, from, err := s.applier.beginRebuild()
	if err != nil {
		return err
	}
	s.comparison.becomeRefusing(errRebuilding)
	err = s.rebuilder.rebuildFrom(ctx, r, b, from)
	s.applier.endRebuild(b)
	if err != nil {
		s.logger.Error("not rebuilt", "error", err)
	}
	s.comparison.compare(ctx, r)
	return err
}

// maxHandOver bounds the time in which a leader hands over before it rebuilds.
const maxHandOver = 10 * time.Second

// stopLeading hands over the leadership if this server has it. It repeats the attempt for
// maxHandOver: another one may be under way, as when the disk is full, or the others busy.
func (s *Store) stopLeading(ctx context.Context, r *raft.Raft) error {
	ctx, cancel := context.WithTimeout(ctx, maxHandOver)
	defer cancel()
	for r.State() == raft.Leader {
		moved := s.lead.leaderMoved()
		if err := s.lead.handOverToBest(ctx, r); err != nil {
			if ended := s.pause(ctx, moved); ended != nil {
				return fmt.Errorf("rebuild: this server leads, and no server took the leadership: %w", errors.Join(err, ended))
			}
		}
	}
	return nil
}

// beginRebuild returns also the raft index that an image must have reached.
func (a *applier) beginRebuild() (*rebuild, uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rebuild != nil {
		return nil, 0, errRebuilding
	}
	a.rebuild = new(rebuild)
	// A marker that is under way would cover entries that were only kept.
	a.store.persister.RaiseEpoch()
	return a.rebuild, a.head.Command, nil
}

// endRebuild applies the kept entries to the state that there is now, old or new.
func (a *applier) endRebuild(b *rebuild) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rebuild == b {
		a.rebuild = nil
	}
	for _, entry := range b.kept {
		if entry.Index > a.head.Applied {
			a.applyEntry(entry)
		}
	}
	a.wake()
}

// rebuilder fetches another server's state, and sends this server's state to others.
type rebuilder struct{ store *Store }

// rebuildFrom asks the others, the leader first, for an image and installs it.
func (rb *rebuilder) rebuildFrom(ctx context.Context, r *raft.Raft, b *rebuild, from uint64) error {
	leader := rb.store.lead.leaderAddress()
	addresses := []string{leader}
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if string(m.ID) != rb.store.cfg.ID && string(m.Address) != leader {
			addresses = append(addresses, string(m.Address))
		}
	}
	var failures error
	for _, address := range addresses {
		if address == "" || address == rb.store.Address() {
			continue
		}
		k, err := rb.fetchImage(ctx, address, from)
		if err == nil {
			err = rb.installRebuilt(ctx, r, b, k)
		}
		if err == nil {
			rb.store.logger.Info("rebuilt", "from", address, "seq", rb.store.Head().Seq)
			return nil
		}
		failures = errors.Join(failures, fmt.Errorf("%s: %w", address, err))
	}
	return fmt.Errorf("rebuild: no other server gave its state: %w", failures)
}

// installRebuilt waits until raft's log on this server reaches the end of the image, and
// installs the image.
func (rb *rebuilder) installRebuilt(ctx context.Context, r *raft.Raft, b *rebuild, k *sink) error {
	defer func() { _ = (&received{k}).Close() }()
	deadline := time.Now().Add(rebuildWait)
	for r.CommitIndex() < k.marker.Index {
		if err := rb.store.pause(ctx, nil); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("raft is at index %d, the image at %d", r.CommitIndex(), k.marker.Index)
		}
	}
	own, err := rb.finalMarker()
	if err != nil {
		return err
	}
	db, c, err := k.openAs(func(h *changesdb.Head) changesdb.Marker {
		if own.Index > h.Applied { // raft's own entries are between: see finalMarker
			h.Applied, h.Term = own.Index, own.Term
		}
		return own
	})
	if err != nil {
		return err
	}
	rb.store.applier.mu.Lock()
	defer rb.store.applier.mu.Unlock()
	if rb.store.applier.rebuild != b || b.err != nil {
		return errors.Join(b.err, db.Close()) // else raft has restored an image itself
	}
	if rb.store.applier.head.Cluster != c.Head.Cluster {
		return errors.Join(fmt.Errorf("its cluster is %s, this server's %s", c.Head.Cluster, rb.store.applier.head.Cluster), db.Close())
	}
	return rb.store.applier.install(k, db, &c)
}

// finalMarker returns the marker that changes.db has until the rebuild ends. No new one is
// requested since beginRebuild, and one that was requested before is written here. So it
// covers no entry of the FSM that an image of this rebuild lacks.
func (rb *rebuilder) finalMarker() (changesdb.Marker, error) {
	if err := rb.store.persister.Flush(); err != nil {
		return changesdb.Marker{}, err
	}
	return rb.store.persister.LastMarker(), nil
}

// An image is requested on a connection of its own. The receiver sends the raft index
// that the image must have reached (8). The sender answers with one byte: 0, and a text,
// if it has no such image; 1, and | index (8) | term (8) | image |, if it has.

// fetchImage receives an image of raft index from or later.
func (rb *rebuilder) fetchImage(ctx context.Context, address string, from uint64) (*sink, error) {
	p := rb.store.endpoint.peers.Load()
	conn, err := p.DialImage(ctx, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	ok, err := in.ReadByte()
	if err != nil {
		return nil, err
	}
	if ok == 0 {
		text, _ := io.ReadAll(io.LimitReader(in, 1<<10))
		return nil, errors.New(string(text))
	}
	var at [16]byte
	if _, err := io.ReadFull(in, at[:]); err != nil {
		return nil, err
	}
	made, err := rb.store.images.Create(1, binary.BigEndian.Uint64(at[:]), binary.BigEndian.Uint64(at[8:]), raft.Configuration{}, 0, nil)
	if err != nil {
		return nil, err
	}
	k := made.(*sink)
	k.least = from
	if _, err := io.Copy(k, in); err != nil {
		return nil, errors.Join(err, k.Cancel())
	}
	return k, k.Close()
}

// serveImage sends an image to a server that requests one.
func (rb *rebuilder) serveImage(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	var from [8]byte
	_ = conn.SetReadDeadline(time.Now().Add(peer.FirstByteWait))
	if _, err := io.ReadFull(conn, from[:]); err != nil {
		return
	}
	meta, stream, err := rb.imageFrom(ctx, binary.BigEndian.Uint64(from[:]))
	if err != nil {
		_, _ = conn.Write(append([]byte{0}, err.Error()...))
		return
	}
	defer stream.Close()
	answer := binary.BigEndian.AppendUint64([]byte{1}, meta.Index)
	if _, err := conn.Write(binary.BigEndian.AppendUint64(answer, meta.Term)); err != nil {
		return
	}
	if _, err := io.Copy(conn, stream); err != nil {
		rb.store.logger.Warn("sending a state for a rebuild", "to", conn.RemoteAddr(), "error", err)
	}
}

// imageFrom opens an image of a raft index or later.
func (rb *rebuilder) imageFrom(ctx context.Context, index uint64) (*raft.SnapshotMeta, io.ReadCloser, error) {
	deadline := time.Now().Add(rebuildWait)
	for {
		if err := rb.store.Serving(); err != nil {
			return nil, nil, err
		}
		if err := rb.store.persister.Flush(); err != nil {
			return nil, nil, err
		}
		if rb.store.persister.Progress().Index >= index {
			return rb.store.images.Open("rebuild")
		}
		if time.Now().After(deadline) {
			return nil, nil, fmt.Errorf("this server is at raft index %d, and %d is asked for", rb.store.persister.Progress().Index, index)
		}
		if err := rb.store.pause(ctx, nil); err != nil {
			return nil, nil, err
		}
	}
}

// openAs opens the received file as changes.db, with the marker that at returns, and
// reads its content.
func (k *sink) openAs(at func(h *changesdb.Head) changesdb.Marker) (*bbolt.DB, changesdb.Content, error) {
	db, err := changesdb.Open(k.path(), k.images.cfg.MapBytes)
	if err != nil {
		return nil, changesdb.Content{}, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		if err != nil {
			return err
		}
		m := at(&h)
		meta := tx.Bucket(changesdb.BucketMeta)
		return errors.Join(changesdb.PutHead(meta, &h), meta.Put(changesdb.KeyMarker, m.Encode()))
	})
	var c changesdb.Content
	if err == nil {
		c, err = changesdb.Load(db, k.images.cfg.DedupeAge, k.images.cfg.DedupeCount)
	}
	if err != nil {
		return nil, c, errors.Join(fmt.Errorf("image: %w", err), db.Close())
	}
	return db, c, nil
}
