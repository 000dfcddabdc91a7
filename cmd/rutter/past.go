package main

import (
	"context"

	"rutter/api"
	"rutter/cmd/rutter/logcmd"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore"
)

// past shows a store's past as package api wants it.
type past struct{ *raftstore.Past }

// PartAt implements api.Past.
func (p past) PartAt(ctx context.Context, part api.PastPart, seq log.Seq) (*projections.State, error) {
	return p.Past.PartAt(ctx, logcmd.PartOf(part), seq)
}

// HistoryOf implements api.Past.
func (p past) HistoryOf(ctx context.Context, object api.PastObject, after log.Seq, limit int) ([]log.Seq, error) {
	return p.Past.History(ctx, raftstore.Ref(object), after, limit)
}
