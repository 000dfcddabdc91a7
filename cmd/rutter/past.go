package main

import (
	"context"

	"rutter/api"
	"rutter/cmd/rutter/logcmd"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
)

// past shows a store's past as package api wants it.
type past struct{ *history.Reader }

// PartAt implements api.Reader.
func (p past) PartAt(ctx context.Context, part api.PastPart, seq log.Seq) (*projections.State, error) {
	return p.Reader.PartAt(ctx, logcmd.PartOf(part), seq)
}

// HistoryOf implements api.Reader.
func (p past) HistoryOf(ctx context.Context, object api.PastObject, after log.Seq, limit int) ([]log.Seq, error) {
	return p.Reader.History(ctx, history.Ref(object), after, limit)
}
