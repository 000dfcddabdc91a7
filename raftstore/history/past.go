package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/readahead"
)

// Ref names an object, by its id as the log has it.
type Ref struct {
	Kind log.Kind
	ID   string
}

// past reads the state at one seq, in one transaction.
type past struct {
	ctx    context.Context
	tx     *bbolt.Tx
	blocks *blocks
	head   changesdb.Head
	first  log.Seq // of the events in the file
	seq    log.Seq // the wanted seq
	base   log.Seq // seq of the checkpoint below; 0: none, and an empty state
	rows   *bbolt.Bucket
	asOf   log.Time // of base

	known map[Ref]*projections.Record // resolved objects; nil: there is none
	held  map[uint64]block            // of the segments that were read
}

func newPastReader(ctx context.Context, tx *bbolt.Tx, c *blocks, seq log.Seq) (*past, error) {
	h, _, err := changesdb.ReadMeta(tx)
	if err != nil {
		return nil, err
	}
	if seq > h.Seq {
		return nil, fmt.Errorf("the past at %d, the head is %d: %w", seq, h.Seq, log.ErrAhead)
	}
	if seq < h.Floor {
		return nil, fmt.Errorf("the past at %d, entries are kept after %d: %w", seq, h.Floor, log.ErrCompacted)
	}
	p := &past{
		ctx: ctx, tx: tx, blocks: c, head: h, seq: seq, first: changesdb.FirstEvent(tx, &h),
		known: map[Ref]*projections.Record{}, held: map[uint64]block{},
	}
	whole, _ := changesdb.Checkpoints(tx)
	for _, at := range whole {
		if at <= seq {
			p.base = max(p.base, at)
		}
	}
	if p.base > 0 {
		p.rows = tx.Bucket(changesdb.BucketCheckpoints).Bucket(changesdb.SeqKey(p.base))
		at, err := changesdb.DecodeHead(p.rows.Get(changesdb.KeyHead))
		if err != nil {
			return nil, fmt.Errorf("checkpoint at %d: %w", p.base, err)
		}
		p.asOf = at.Time
	}
	return p, nil
}

// each calls fn with the block of each segment that has entries of [low, high], the
// newest first, until fn is done.
func (p *past) each(low, high log.Seq, fn func(segment uint64, b block) (done bool, err error)) error {
	low = max(low, p.first)
	if low > high {
		return nil
	}
	asked := segmentOf(high) + 1 // blocks from this segment on were requested
	for segment := segmentOf(high); ; segment-- {
		b := p.held[segment]
		if b == nil {
			for asked > segmentOf(low) && asked+aheadBlocks > segment {
				asked--
				p.blocks.ask(p.tx, asked)
			}
			err := p.ctx.Err()
			if err == nil {
				b, err = p.blocks.get(p.tx, segment, p.first, p.head.Seq)
			}
			if err != nil {
				return err
			}
			p.held[segment] = b
		}
		if done, err := fn(segment, b); done || err != nil || segment == segmentOf(low) {
			return err
		}
	}
}

// event reads an entry.
func (p *past) event(seq log.Seq) (changesdb.Slot, error) {
	key := changesdb.SeqKey(seq)
	return changesdb.ReadEvent(seq, key, p.tx.Bucket(changesdb.BucketEvents).Get(key))
}

// history returns the seqs of an object's events in [low, high], in order.
func (p *past) history(ref Ref, low, high log.Seq) (seqs []log.Seq, err error) {
	err = p.each(low, high, func(segment uint64, b block) (bool, error) {
		found := b.find(segment, objectHash(ref.Kind, []byte(ref.ID)), low, high, nil)
		slices.Reverse(found)
		for _, seq := range found {
			s, err := p.event(seq)
			if err != nil {
				return false, err
			}
			if kind, id, err := changesdb.EventObject(s.Bytes); err == nil && kind == ref.Kind && string(id) == ref.ID {
				seqs = append(seqs, seq)
			}
		}
		return false, nil
	})
	slices.Reverse(seqs)
	return seqs, err
}

// baseRow returns an object as the checkpoint has it.
func (p *past) baseRow(ref Ref) (*projections.Record, error) {
	if p.rows == nil {
		return nil, nil
	}
	bucket := p.rows.Bucket([]byte(ref.Kind.String()))
	if bucket == nil {
		return nil, nil
	}
	row := bucket.Get([]byte(ref.ID))
	if row == nil {
		return nil, nil
	}
	return p.readRow(ref, row)
}

func (p *past) readRow(ref Ref, row []byte) (*projections.Record, error) {
	o, revision, seq, err := changesdb.ReadObject(ref.Kind, ref.ID, bytes.Clone(row))
	if err != nil {
		return nil, fmt.Errorf("checkpoint at %d: %w", p.base, err)
	}
	return &projections.Record{Object: o, Revision: revision, Seq: seq}, nil
}

// touched adds the objects of the kinds that have an entry after the checkpoint with one
// of the hashes. If has is not nil, it must also be true for the entry's bytes.
func (p *past) touched(hashes []uint32, kinds []log.Kind, has func(event []byte) bool, to map[Ref]bool) error {
	return p.each(p.base+1, p.seq, func(segment uint64, b block) (bool, error) {
		var seqs []log.Seq
		for _, hash := range hashes {
			seqs = b.find(segment, hash, p.base+1, p.seq, seqs)
		}
		slices.Sort(seqs)
		cursor, want := p.tx.Bucket(changesdb.BucketEvents).Cursor(), make([]byte, 8)
		for _, seq := range slices.Compact(seqs) {
			binary.BigEndian.PutUint64(want, uint64(seq))
			key, row := cursor.Seek(want)
			if !bytes.Equal(key, want) || len(row) <= changesdb.EventRowHeader {
				return false, fmt.Errorf("changes.db: event row %d is missing: %w", seq, log.ErrCorrupt)
			}
			// The row's checksum is checked when the object is resolved.
			kind, id, err := changesdb.EventObject(row[changesdb.EventRowHeader:])
			if err != nil {
				return false, fmt.Errorf("changes.db: event row %d: %w", seq, err)
			}
			if slices.Contains(kinds, kind) && (has == nil || has(row[changesdb.EventRowHeader+1:])) {
				if ref := (Ref{kind, string(id)}); !to[ref] {
					to[ref] = true
				}
			}
		}
		return false, nil
	})
}

// ofKind returns all objects of a kind with few objects. Objects without an entry after
// the checkpoint are then in known.
func (p *past) ofKind(kind log.Kind) (map[Ref]bool, error) {
	refs := map[Ref]bool{}
	if err := p.touched([]uint32{kindHash(kind)}, []log.Kind{kind}, nil, refs); err != nil || p.rows == nil {
		return refs, err
	}
	bucket := p.rows.Bucket([]byte(kind.String()))
	if bucket == nil {
		return refs, nil
	}
	for key, row := range rowsOf(bucket) {
		ref := Ref{kind, string(key)}
		if refs[ref] {
			continue
		}
		refs[ref] = true
		rec, err := p.readRow(ref, row)
		if err != nil {
			return refs, err
		}
		p.known[ref] = rec
	}
	return refs, nil
}

func rowsOf(b *bbolt.Bucket) func(yield func(key, row []byte) bool) {
	return func(yield func(key, row []byte) bool) {
		c := b.Cursor()
		for key, row := c.First(); key != nil; key, row = c.Next() {
			if !yield(key, row) {
				return
			}
		}
	}
}

// mentioning returns the NICs, VMs and VMMs that may have one of the UUIDs in a field.
func (p *past) mentioning(uuids map[log.UUID]bool, kinds ...log.Kind) (map[Ref]bool, error) {
	refs := map[Ref]bool{}
	hashes := make([]uint32, 0, len(uuids))
	for uuid := range uuids {
		hashes = append(hashes, mentionHash(uuid[:]))
	}
	slices.Sort(hashes)
	if len(uuids) == 0 {
		return refs, nil
	}
	scanned, has := map[Ref]bool{}, rowMatcher(uuids)
	err := both(
		func() error { return p.touched(hashes, kinds, nil, refs) },
		func() error {
			for _, kind := range kinds {
				if err := p.scan(kind, has, scanned); err != nil {
					return err
				}
			}
			return nil
		})
	maps.Copy(refs, scanned)
	return refs, err
}

// scan adds the objects of the checkpoint for whose encoded form has is true. It reads
// all rows of the kind; for a million rows that takes less time than decoding a tenth of
// them. Their checksums are checked when they are resolved.
func (p *past) scan(kind log.Kind, has func(object []byte) bool, to map[Ref]bool) error {
	if p.rows == nil || p.rows.Bucket([]byte(kind.String())) == nil {
		return nil
	}
	n, next := 0, readahead.Ahead{}
	for key, row := range rowsOf(p.rows.Bucket([]byte(kind.String()))) {
		next.Row(row)
		if n++; n%changesdb.UpkeepRows == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		if len(row) <= changesdb.ObjectRowHeader {
			return fmt.Errorf("checkpoint at %d: row of %s %s has %d bytes: %w", p.base, kind, key, len(row), log.ErrCorrupt)
		}
		if has(row[changesdb.ObjectRowHeader+1:]) {
			to[Ref{kind, string(key)}] = true
		}
	}
	return nil
}

// fewNeedles: for up to so many UUIDs a row is searched for each of them, which is
// quicker than parsing the row.
const fewNeedles = 4

// rowMatcher returns a function that reports whether an encoded object contains one of
// the UUIDs. It may return true for an object that does not.
func rowMatcher(uuids map[log.UUID]bool) func(object []byte) bool {
	if len(uuids) <= fewNeedles {
		var needles [][]byte
		for uuid := range uuids {
			needles = append(needles, uuid[:])
		}
		return func(object []byte) bool {
			return slices.ContainsFunc(needles, func(n []byte) bool { return bytes.Contains(object, n) })
		}
	}
	// Nearly all values are not among them: a bit for each two bytes rules them out.
	var may [1 << 16]bool
	for uuid := range uuids {
		may[binary.BigEndian.Uint16(uuid[14:])] = true
	}
	return func(object []byte) bool {
		for {
			i := bytes.IndexByte(object, bin8)
			if i < 0 || i+18 > len(object) {
				return false
			}
			if uuid := object[i+2 : i+18]; object[i+1] == 16 && may[binary.BigEndian.Uint16(uuid[14:])] && uuids[log.UUID(uuid)] {
				return true
			}
			object = object[i+1:]
		}
	}
}

// bin8 begins a binary value of up to 255 bytes; its length follows.
const bin8 = 0xc4

// underlays returns the NICs of the servers that have NICs in the scopes.
func (p *past) underlays(state *projections.State, scopes []log.Scope) (map[Ref]bool, error) {
	cns := map[log.UUID]bool{}
	for _, scope := range scopes {
		for _, cn := range state.CNs(scope) {
			cns[cn] = true
		}
	}
	refs, scanned := map[Ref]bool{}, map[Ref]bool{}
	has := rowMatcher(cns)
	err := both(
		func() error { return p.touched([]uint32{kindHash(serverNICs)}, []log.Kind{log.KindNIC}, has, refs) },
		func() error {
			return p.scan(log.KindNIC, func(object []byte) bool { return bytes.Contains(object, serverText) && has(object) }, scanned)
		})
	maps.Copy(refs, scanned)
	return refs, err
}

// time returns the time of the entry at seq.
func (p *past) time() (log.Time, error) {
	if p.seq <= p.base || p.seq < p.first {
		return p.asOf, nil
	}
	return changesdb.TimeOf(p.tx, p.seq, p.seq)
}
