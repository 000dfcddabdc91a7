package logcmd

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"

	"rutter/api/client"
	"rutter/log"
	"rutter/raftstore/history"
)

// kindsOf returns the kinds that the object of a reading may have.
func (r *reading) kindsOf() []log.Kind {
	if r.filter.Kinds != nil {
		return r.filter.Kinds
	}
	if _, err := log.ParseMAC(r.filter.Objects[0]); err == nil {
		return []log.Kind{log.KindNIC}
	}
	var kinds []log.Kind
	for kind := log.Kind(1); kind < 255; kind++ {
		if log.NewObject(kind) != nil {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// linesOf yields the entries about one object: by the index if there is one, else by
// reading every entry.
func linesOf(ctx context.Context, from reader, r *reading) iter.Seq2[log.Line, error] {
	switch from := from.(type) {
	case servers:
		return from.history(ctx, r)
	case *stored:
		if from.folder != nil {
			return historyIn(ctx, from.folder, r)
		}
	}
	return from.lines(ctx, r)
}

func (s servers) history(ctx context.Context, r *reading) iter.Seq2[log.Line, error] {
	return func(yield func(log.Line, error) bool) {
		for _, kind := range r.kindsOf() {
			for l, err := range s.History(ctx, kind, r.filter.Objects[0]) {
				var answer *client.Error
				if errors.As(err, &answer) && answer.Status == http.StatusNotImplemented {
					s.lines(ctx, r)(yield)
					return
				}
				if !yield(l, err) || err != nil {
					return
				}
			}
		}
	}
}

// historyIn finds the entries in a folder.
func historyIn(ctx context.Context, f *history.Folder, r *reading) iter.Seq2[log.Line, error] {
	return func(yield func(log.Line, error) bool) {
		var seqs []log.Seq
		for _, kind := range r.kindsOf() {
			found, err := f.History(ctx, history.Ref{Kind: kind, ID: r.filter.Objects[0]}, 0, 0)
			if err != nil {
				yield(log.Line{}, err)
				return
			}
			seqs = append(seqs, found...)
		}
		slices.Sort(seqs)
		for _, seq := range seqs {
			entries, err := f.Entries(seq-1, 1) // it may return the whole change
			if err == nil && len(entries) == 0 {
				err = log.ErrCorrupt
			}
			if err != nil {
				yield(log.Line{}, err)
				return
			}
			if !yieldEntry(entries[0], yield) {
				return
			}
		}
	}
}
