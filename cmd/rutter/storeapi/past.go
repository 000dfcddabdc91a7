package storeapi

import (
	"context"

	"rutter/api"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
)

// Past shows the store's past as package api wants it.
type Past struct{ *history.Reader }

// PartAt implements api.Reader.
func (p Past) PartAt(ctx context.Context, part api.PastPart, seq log.Seq) (*projections.State, error) {
	return p.Reader.PartAt(ctx, PartOf(part), seq)
}

// HistoryOf implements api.Reader.
func (p Past) HistoryOf(ctx context.Context, object api.PastObject, after log.Seq, limit int) ([]log.Seq, error) {
	return p.Reader.History(ctx, history.Ref(object), after, limit)
}

// PartOf is a part of the past as package raftstore names it.
func PartOf(part api.PastPart) history.Part {
	want := history.Part{CNs: part.CNs, VNets: part.VNets, Mentions: part.Mentions, Kinds: part.Kinds}
	for _, o := range part.Objects {
		want.Objects = append(want.Objects, history.Ref(o))
	}
	return want
}
