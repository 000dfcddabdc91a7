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

// resolveAlone: one goroutine alone looks for up to so many objects. With a second one,
// blocks are loaded that the first might not need.
const resolveAlone = 256

// both runs two functions that read one transaction at the same time. A read transaction
// of bbolt changes nothing in itself while it is read (only write transactions cache
// pages and buckets). The functions must not write to the same memory.
func both(a, b func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- boltfile.Guard(b) }()
	err := boltfile.Guard(a)
	return errors.Join(err, <-ended)
}

// wantedRef is an object that is searched in one segment after another, and what was
// found.
type wantedRef struct {
	hash  uint32
	ref   Ref
	found *projections.Record // nil is none
}

// resolve finds objects as they were, and puts them into known. It searches them
// together, in the order of their hashes, so that a block is read from its front to its
// end.
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

// search is resolveAll with one goroutine or two.
func (p *past) search(wanted []wantedRef) error {
	if len(wanted) <= resolveAlone {
		return p.resolveAll(wanted)
	}
	// All blocks are loaded before two goroutines read them.
	if err := p.each(p.base+1, p.seq, func(uint64, block) (bool, error) { return false, nil }); err != nil {
		return err
	}
	half := len(wanted) / 2
	return both(
		func() error { return p.resolveAll(wanted[:half]) },
		func() error { return p.resolveAll(wanted[half:]) })
}

// resolveAll sets what is found for the wanted objects, which are in the order of their
// hashes. If the blocks are loaded, it writes nothing else.
func (p *past) resolveAll(wanted []wantedRef) error {
	left := make([]int, len(wanted)) // indexes in wanted
	for i := range left {
		left[i] = i
	}
	var seqs []log.Seq
	err := p.each(p.base+1, p.seq, func(segment uint64, b block) (bool, error) {
		rest, at := left[:0], 0
		for _, i := range left {
			w := &wanted[i]
			seqs = b.findNext(&at, segment, w.hash, p.base+1, p.seq, seqs[:0])
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

// take stores in w the object after the last of the events that concern it, and reports
// whether there is such an event.
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
