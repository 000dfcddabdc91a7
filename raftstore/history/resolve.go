package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
)

// resolveAlone is up to how many objects are looked for by one goroutine: a
// second one must have blocks loaded that the first might not need.
const resolveAlone = 256

// both runs two readings of one transaction at the same time. A transaction
// that only reads changes nothing of its own while it is read (bbolt keeps
// pages and buckets for those that write); what the two write must be their own.
func both(a, b func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- boltfile.Guard(b) }()
	err := boltfile.Guard(a)
	return errors.Join(err, <-ended)
}

// wantedRef is an object that is looked for in one segment after another, and
// what was found.
type wantedRef struct {
	hash  uint32
	ref   Ref
	found *projections.Record // nil is none
}

// resolve finds objects as they were, into known. They are looked for together,
// in the order of their hashes: a block is then read from its front to its end.
func (p *past) resolve(refs ...Ref) error {
	wanted := make([]wantedRef, 0, len(refs))
	for _, ref := range refs {
		if _, ok := p.known[ref]; !ok {
			wanted = append(wanted, wantedRef{hash: objectHash(ref.Kind, []byte(ref.ID)), ref: ref})
		}
	}
	slices.SortFunc(wanted, func(a, b wantedRef) int { return cmp.Compare(a.hash, b.hash) })
	err := p.search(wanted)
	if err != nil {
		return err
	}
	for i := range wanted {
		p.known[wanted[i].ref] = wanted[i].found
	}
	return nil
}

// search is resolveAll with as many goroutines as pay.
func (p *past) search(wanted []wantedRef) error {
	if len(wanted) <= resolveAlone {
		return p.resolveAll(wanted)
	}
	// All blocks are held before two look at them.
	if err := p.each(p.base+1, p.seq, func(uint64, block) (bool, error) { return false, nil }); err != nil {
		return err
	}
	half := len(wanted) / 2
	return both(
		func() error { return p.resolveAll(wanted[:half]) },
		func() error { return p.resolveAll(wanted[half:]) })
}

// resolveAll sets what is found of the wanted, which are in the order of their
// hashes. It writes nothing else, if the blocks are held.
func (p *past) resolveAll(wanted []wantedRef) error {
	left := make([]int, len(wanted)) // places in wanted
	for i := range left {
		left[i] = i
	}
	var seqs []log.Seq
	err := p.each(p.base+1, p.seq, func(segment uint64, b block) (bool, error) {
		rest, place := left[:0], 0
		for _, i := range left {
			w := &wanted[i]
			seqs = b.findNext(&place, segment, w.hash, p.base+1, p.seq, seqs[:0])
			done, err := false, error(nil)
			if len(seqs) > 0 {
				done, err = p.take(w, seqs)
			}
			if err != nil {
				return false, err
			}
			if !done {
				rest = append(rest, i)
			}
		}
		left = rest
		return len(left) == 0, nil
	})
	for _, i := range left {
		if err != nil {
			return err
		}
		wanted[i].found, err = p.baseRow(wanted[i].ref)
	}
	return err
}

// take notes what the last of the events that is about an object made of it, and
// reports whether there is one.
func (p *past) take(w *wantedRef, seqs []log.Seq) (bool, error) {
	for _, seq := range slices.Backward(seqs) {
		s, err := p.event(seq)
		if err != nil {
			return false, err
		}
		if kind, id, err := changesdb.EventObject(s.Bytes); err != nil || kind != w.ref.Kind || string(id) != w.ref.ID {
			continue
		}
		e, body, err := log.EventObject(s.Bytes)
		if err != nil {
			return false, fmt.Errorf("changes.db: event row %d: %w", seq, err)
		}
		if e.Action != log.Delete {
			o, err := log.DecodeObject(w.ref.Kind, w.ref.ID, append([]byte{log.FormatVersion}, body...))
			if err != nil {
				return false, fmt.Errorf("changes.db: event row %d: %w", seq, err)
			}
			w.found = &projections.Record{Object: o, Revision: e.Revision, Seq: seq}
		}
		return true, nil
	}
	return false, nil
}
