package storeapi

import (
	"context"

	"rutter/api"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore"
)

// Past shows the store's past as package api wants it.
type Past struct{ *raftstore.Store }

// PartAt implements api.Past.
func (p Past) PartAt(ctx context.Context, part api.PastPart, seq log.Seq) (*projections.State, error) {
	return p.Store.PartAt(ctx, PartOf(part), seq)
}

// HistoryOf implements api.Past.
func (p Past) HistoryOf(ctx context.Context, object api.PastObject, after log.Seq, limit int) ([]log.Seq, error) {
	return p.Store.History(ctx, raftstore.Ref(object), after, limit)
}

// PartOf is a part of the past as package raftstore names it.
func PartOf(part api.PastPart) raftstore.Part {
	want := raftstore.Part{CNs: part.CNs, VNets: part.VNets, Mentions: part.Mentions, Kinds: part.Kinds}
	for _, o := range part.Objects {
		want.Objects = append(want.Objects, raftstore.Ref(o))
	}
	return want
}
