package raftstore

import (
	"context"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/changesdb"
)

// SeqAt returns the last entry that is not after a time; log.ErrCompacted if
// that is before what is kept. Where the log's time was set back, it is that of the
// newest stretch that had begun by then: see placeAt.
func (s *Store) SeqAt(at log.Time) (seq log.Seq, err error) {
	s.mu.RLock()
	_, mended := s.state.Get(mendRef.Kind, mendRef.ID)
	s.mu.RUnlock()
	err = s.past(s.Head().Seq, func(tx *bbolt.Tx) error {
		seq, err = seqAt(context.Background(), tx, &s.blocks, at, mended)
		return err
	})
	return seq, err
}

// ObjectAt returns one object as it was after the entry seq, which must be from
// Floor to the head; ok is false if there was none. Errors: as StateAt.
func (s *Store) ObjectAt(ctx context.Context, ref Ref, seq log.Seq) (rec projections.Record, ok bool, err error) {
	err = s.past(seq, func(tx *bbolt.Tx) error {
		rec, ok, err = objectAt(ctx, tx, &s.blocks, ref, seq)
		return err
	})
	return rec, ok, err
}

// PartAt returns a part of the state as it was after the entry seq. Other
// objects may be in it as well. Errors: as StateAt.
func (s *Store) PartAt(ctx context.Context, part Part, seq log.Seq) (*projections.State, error) {
	state := projections.NewPart()
	err := s.past(seq, func(tx *bbolt.Tx) error { return partAt(ctx, tx, &s.blocks, part, seq, state) })
	return state, err
}

// History returns the seqs of the entries about an object, up to limit of them
// after a seq, in order. Errors: as StateAt.
func (s *Store) History(ctx context.Context, ref Ref, after log.Seq, limit int) (seqs []log.Seq, err error) {
	head := s.Head().Seq
	err = s.past(head, func(tx *bbolt.Tx) error {
		seqs, err = historyOf(ctx, tx, &s.blocks, ref, after, limit)
		return err
	})
	return seqs, err
}

// past calls fn with a transaction that has everything up to seq.
func (s *Store) past(seq log.Seq, fn func(tx *bbolt.Tx) error) error {
	if err := s.Serving(); err != nil {
		return err
	}
	if head := s.Head().Seq; seq > head {
		seq = head // what fn looks at is refused by itself
	}
	if s.persister.Durable() < seq {
		if err := s.persister.Flush(); err != nil {
			return err
		}
	}
	return s.files.View(fn)
}

func objectAt(ctx context.Context, tx *bbolt.Tx, c *blocks, ref Ref, seq log.Seq) (projections.Record, bool, error) {
	p, err := newPastReader(ctx, tx, c, seq)
	if err != nil {
		return projections.Record{}, false, err
	}
	if err := p.resolve(ref); err != nil || p.known[ref] == nil {
		return projections.Record{}, false, err
	}
	return *p.known[ref], true, nil
}

func partAt(ctx context.Context, tx *bbolt.Tx, c *blocks, part Part, seq log.Seq, state *projections.State) error {
	p, err := newPastReader(ctx, tx, c, seq)
	if err != nil {
		return err
	}
	return p.part(part, state)
}

func historyOf(ctx context.Context, tx *bbolt.Tx, c *blocks, ref Ref, after log.Seq, limit int) ([]log.Seq, error) {
	h, _, err := changesdb.ReadMeta(tx)
	if err != nil {
		return nil, err
	}
	p, err := newPastReader(ctx, tx, c, h.Seq)
	if err != nil {
		return nil, err
	}
	seqs, err := p.history(ref, max(after, h.Floor)+1, h.Seq)
	if limit > 0 && len(seqs) > limit {
		seqs = seqs[:limit]
	}
	return seqs, err
}
