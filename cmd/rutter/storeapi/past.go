package storeapi

import (
	"context"

	"rutter/api/backend"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
)

// Past adapts the store's past to package api.
type Past struct{ *history.Reader }

// PartAt implements api.Reader.
func (p Past) PartAt(ctx context.Context, part backend.PastPart, seq log.Seq) (*projections.State, error) {
	return p.Reader.PartAt(ctx, PartOf(part), seq)
}

// HistoryOf implements api.Reader.
func (p Past) HistoryOf(ctx context.Context, object backend.PastObject, after log.Seq, limit int) ([]log.Seq, error) {
	return p.Reader.History(ctx, history.Ref(object), after, limit)
}

// PartOf translates a part of the past to package raftstore's form.
func PartOf(part backend.PastPart) history.Part {
	want := history.Part{CNs: part.CNs, VNets: part.VNets, Mentions: part.Mentions, Kinds: part.Kinds}
	for _, o := range part.Objects {
		want.Objects = append(want.Objects, history.Ref(o))
	}
	return want
}
