package history

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/changesdb"
)

// Reader reads the past of a running server. All methods may be called concurrently.
type Reader struct {
	files     *changesdb.Files
	persister *changesdb.Persister
	// serving returns why nothing is served now, or nil.
	serving func() error
	// headAndFloor returns the applied head, and the floor.
	headAndFloor func() (head, floor log.Seq)
	// view calls a function with the present state, under its lock.
	view   func(func(*projections.State))
	blocks blocks // of the current file
}

// NewReader returns a reader of the past of a running server. serving returns why nothing
// is served now, or nil. headAndFloor returns the applied head, and the floor. view calls a
// function with the present state, under its lock.
func NewReader(files *changesdb.Files, persister *changesdb.Persister, serving func() error, headAndFloor func() (head, floor log.Seq), view func(func(*projections.State))) *Reader {
	return &Reader{files: files, persister: persister, serving: serving, headAndFloor: headAndFloor, view: view}
}

// SeqAt returns the last entry that is not after a time; log.ErrCompacted if that entry
// is not kept. If the log's time was set back, only the newest stretch that had begun at
// that time is searched: see positionAt.
func (r *Reader) SeqAt(at log.Time) (seq log.Seq, err error) {
	mended := false
	r.view(func(state *projections.State) { _, mended = state.Get(mendRef.Kind, mendRef.ID) })
	head, _ := r.headAndFloor()
	err = r.past(head, func(tx *bbolt.Tx) error {
		seq, err = seqAt(context.Background(), tx, &r.blocks, at, mended)
		return err
	})
	return seq, err
}

// ObjectAt returns one object as it was after the entry seq, which must be from
// Floor to the head; ok is false if there was none. Errors: as StateAt.
func (r *Reader) ObjectAt(ctx context.Context, ref Ref, seq log.Seq) (rec projections.Record, ok bool, err error) {
	err = r.past(seq, func(tx *bbolt.Tx) error {
		rec, ok, err = objectAt(ctx, tx, &r.blocks, ref, seq)
		return err
	})
	return rec, ok, err
}

// PartAt returns a part of the state as it was after the entry seq. Other
// objects may be in it as well. Errors: as StateAt.
func (r *Reader) PartAt(ctx context.Context, part Part, seq log.Seq) (*projections.State, error) {
	state := projections.NewPart()
	err := r.past(seq, func(tx *bbolt.Tx) error { return partAt(ctx, tx, &r.blocks, part, seq, state) })
	return state, err
}

// History returns the seqs of the entries about an object, up to limit of them
// after a seq, in order. Errors: as StateAt.
func (r *Reader) History(ctx context.Context, ref Ref, after log.Seq, limit int) (seqs []log.Seq, err error) {
	head, _ := r.headAndFloor()
	err = r.past(head, func(tx *bbolt.Tx) error {
		seqs, err = historyOf(ctx, tx, &r.blocks, ref, after, limit)
		return err
	})
	return seqs, err
}

// StateAt returns the state as it was at seq, which must be from Floor to the head: the
// newest checkpoint at or below it, and the events after that. It takes as long as
// reading these, and blocks no writer. Errors: log.ErrCompacted, log.ErrAhead,
// log.ErrCorrupt, ErrDiverged, ctx's.
func (r *Reader) StateAt(ctx context.Context, seq log.Seq) (*projections.State, error) {
	if err := r.serving(); err != nil {
		return nil, err
	}
	switch head, floor := r.headAndFloor(); {
	case seq > head:
		return nil, fmt.Errorf("state at %d, the head is %d: %w", seq, head, log.ErrAhead)
	case seq < floor:
		return nil, fmt.Errorf("state at %d, entries are kept after %d: %w", seq, floor, log.ErrCompacted)
	}
	state := projections.NewState()
	err := r.past(seq, func(tx *bbolt.Tx) error { return changesdb.StateAt(ctx, tx, seq, state) })
	return state, err
}

// Mentions returns entries after a seq that may have one of the UUIDs in a field of their
// object, before or after the event: all such entries with a seq up to upTo, but at most limit. It
// reads the index of one segment, and only the entries that it returns. chain is the
// prefix of the chain hash at upTo. ok is false if there is no stored index of the
// entries that follow: at the end of the log, and until upkeep has written it. Then use
// Entries.
//
// Its transaction is short, and it never waits for a write. Errors: log.ErrCompacted,
// log.ErrCorrupt.
func (r *Reader) Mentions(uuids []log.UUID, after log.Seq, limit int) (entries []log.Entry, upTo log.Seq, chain log.ChainPrefix, ok bool, err error) {
	if err := r.serving(); err != nil {
		return nil, 0, chain, false, err
	}
	err = r.files.View(func(tx *bbolt.Tx) error {
		entries, upTo, chain, ok, err = mentionsOf(tx, &r.blocks, uuids, after, limit)
		return err
	})
	return entries, upTo, chain, ok, err
}

// past calls fn with a transaction that contains everything up to seq.
func (r *Reader) past(seq log.Seq, fn func(tx *bbolt.Tx) error) error {
	if err := r.serving(); err != nil {
		return err
	}
	if head, _ := r.headAndFloor(); seq > head {
		seq = head // fn itself refuses a seq that is too high
	}
	// An entry that is not yet in the file will be written soon.
	if r.persister.Durable() < seq {
		if err := r.persister.Flush(); err != nil {
			return err
		}
	}
	return r.files.View(fn)
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
