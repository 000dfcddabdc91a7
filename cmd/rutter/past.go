package main

import (
	"context"

	"rutter/api/backend"
	"rutter/cmd/rutter/logcmd"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore"
)

// past shows the store's past as package api wants it.
type past struct{ *raftstore.Store }

// PartAt implements backend.Past.
func (p past) PartAt(ctx context.Context, part backend.PastPart, seq log.Seq) (*projections.State, error) {
	return p.Store.PartAt(ctx, logcmd.PartOf(part), seq)
}

// HistoryOf implements backend.Past.
func (p past) HistoryOf(ctx context.Context, object backend.PastObject, after log.Seq, limit int) ([]log.Seq, error) {
	return p.Store.History(ctx, raftstore.Ref(object), after, limit)
}
