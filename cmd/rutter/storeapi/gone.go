package storeapi

import (
	"context"

	"rutter/log"
	"rutter/raftstore"
	"rutter/raftstore/history"
)

// Bounds of a look into the history of a VM.
const (
	goneEntries = 1000 // of one read
	goneReads   = 16
)

// Gone returns how package vmapi reads the last event of a VM that is no more; see
// vmapi.Config.
func Gone(store *raftstore.Store) func(ctx context.Context, id log.UUID) (*log.Event, error) {
	ref := func(id log.UUID) history.Ref { return history.Ref{Kind: log.KindVM, ID: id.String()} }
	return func(ctx context.Context, id log.UUID) (*log.Event, error) {
		var last log.Seq
		for range goneReads {
			seqs, err := store.Past().History(ctx, ref(id), last, goneEntries)
			if err != nil {
				return nil, err
			}
			if len(seqs) > 0 {
				last = seqs[len(seqs)-1]
			}
			if len(seqs) == goneEntries {
				continue
			}
			if last == 0 {
				return nil, nil
			}
			entries, err := store.Entries(last-1, 1)
			if err != nil || len(entries) == 0 {
				return nil, err
			}
			event, err := entries[0].Event()
			if err != nil || event.Action != log.Delete {
				return nil, err
			}
			return event, nil
		}
		return nil, nil
	}
}
