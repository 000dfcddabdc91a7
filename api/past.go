package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"rutter/api/auth/guard"
	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// pastRoutes answer for past states of the log, and for the history of objects.
type pastRoutes struct {
	store backend.Store
	past  backend.Past // nil: the past is not indexed
	guard *guard.Guard
	read  *backend.Reader
}

func (h *pastRoutes) routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/log/state", Serve: h.getState},
		{Method: "GET", Pattern: "/log/history", Serve: h.getHistory},
		{Method: "GET", Pattern: "/log/diff", Serve: h.getDiff},
	}
}

// headerDigest has the digest of the whole state, even if the answer is a part of it.
const headerDigest = "Rutter-Digest"

// part returns which part of a past state a list of the kind needs.
func (k *kindRoute) part(p rest.Parameters) backend.PastPart {
	if !isMany(k.kind) {
		return backend.PastPart{Kinds: []log.Kind{k.kind}}
	}
	if k.kind == log.KindNIC {
		if vnet, err := strconv.ParseUint(p.Text("vnet_id"), 10, 24); err == nil {
			return backend.PastPart{VNets: []uint32{uint32(vnet)}}
		}
	}
	for _, name := range []string{"cn_uuid", "network_uuid", "belongs_to_uuid", "instance_id", "sled_id", "server_uuid", "uuid", "owner_uuid"} {
		if _, known := k.filters[name]; known && p.Has(name) {
			return partMentioning(p.Text(name))
		}
	}
	return backend.PastPart{Whole: true}
}

// isMany reports whether a kind has so many objects that there is no list of them for
// past states.
func isMany(kind log.Kind) bool {
	return kind == log.KindNIC || kind == log.KindVM || kind == log.KindVMM
}

// partMentioning returns the part with the objects that mention one of the UUIDs of a
// list.
func partMentioning(list string) (part backend.PastPart) {
	for text := range strings.SplitSeq(list, ",") {
		uuid, err := log.ParseUUID(text)
		if err != nil {
			return backend.PastPart{Whole: true}
		}
		part.Mentions = append(part.Mentions, uuid)
	}
	return part
}

// stateLine is an object in the answer of GET /log/state.
type stateLine struct {
	Kind     log.Kind     `json:"kind"`
	ID       string       `json:"id"`
	Revision log.Revision `json:"revision"`
	Seq      log.Seq      `json:"seq"`
	Object   log.Object   `json:"object"`
}

// scopeOf reads cn and vnet. At most one of them may be given.
func scopeOf(p rest.Parameters) (scope log.Scope, part backend.PastPart, err error) {
	if p.Has("cn") && p.Has("vnet") {
		return scope, part, rest.BadParameter("vnet", log.ElementInvalid, "send one of them", "cn and vnet exclude each other")
	}
	switch {
	case p.Has("cn"):
		cn, err := log.ParseUUID(p.Text("cn"))
		if err != nil {
			return scope, part, rest.BadParameter("cn", log.ElementInvalid, "send a UUID of 36 characters", "%v", err)
		}
		return log.CNScope(cn), backend.PastPart{CNs: []log.UUID{cn}}, nil
	case p.Has("vnet"):
		vnet, err := p.Number("vnet", 0, 0, log.MaxVNet)
		return log.VNetScope(uint32(vnet)), backend.PastPart{VNets: []uint32{uint32(vnet)}}, err
	}
	return log.AllScope(), backend.PastPart{Whole: true}, nil
}

// recordsIn returns the objects of a scope: for a CN its interest, for the zero scope
// everything.
func recordsIn(state *projections.State, scope log.Scope, kind log.Kind) []projections.Record {
	var records []projections.Record
	switch scope.Type {
	case log.ScopeAll:
		for k := range log.Kind(255) {
			if kind == 0 || k == kind {
				records = slices.AppendSeq(records, state.List(k))
			}
		}
		return records
	case log.ScopeCN:
		for _, scope := range state.Interest(scope.ID) {
			records = slices.AppendSeq(records, state.InScope(scope))
		}
	default:
		records = slices.Collect(state.InScope(scope))
	}
	records = slices.DeleteFunc(records, func(r projections.Record) bool { return kind != 0 && r.Object.Kind() != kind })
	slices.SortFunc(records, func(a, b projections.Record) int {
		if c := int(a.Object.Kind()) - int(b.Object.Kind()); c != 0 {
			return c
		}
		return strings.Compare(a.Object.ID(), b.Object.ID())
	})
	return slices.CompactFunc(records, func(a, b projections.Record) bool {
		return a.Object.Kind() == b.Object.Kind() && a.Object.ID() == b.Object.ID()
	})
}

// stateQuery has the parameters of GET /log/state.
type stateQuery struct {
	scope  log.Scope
	part   backend.PastPart // of a past state
	kind   log.Kind         // 0: all
	object string           // "": all of the kind
	offset int
	limit  int // 0: all
}

func readStateQuery(p rest.Parameters) (q stateQuery, err error) {
	if q.scope, q.part, err = scopeOf(p); err != nil {
		return q, err
	}
	if p.Has("kind") {
		if q.kind, err = log.ParseKind(p.Text("kind")); err != nil {
			return q, rest.BadParameter("kind", log.ElementInvalid, "send a kind of object, such as nic", "%v", err)
		}
		if q.part.Whole && !isMany(q.kind) {
			q.part = backend.PastPart{Kinds: []log.Kind{q.kind}}
		}
	}
	if q.object = p.Text("object"); q.object != "" {
		if q.kind == 0 {
			return q, rest.BadParameter("kind", log.ElementMissing, "send the kind of the object too, such as nic", "kind is missing")
		}
		if q.scope.Type == log.ScopeAll {
			q.part = backend.PastPart{Objects: []backend.PastObject{{Kind: q.kind, ID: q.object}}}
		}
	}
	offset, err := p.Number("offset", 0, 0, 1<<31)
	if err != nil {
		return q, err
	}
	limit, err := p.Number("limit", 0, 1, 1<<31)
	q.offset, q.limit = int(offset), int(limit)
	return q, err
}

// of returns the records of a state that the query selects.
func (q stateQuery) of(state *projections.State) []projections.Record {
	var records []projections.Record
	if q.object != "" && q.scope.Type == log.ScopeAll {
		if rec, ok := state.Get(q.kind, q.object); ok {
			records = append(records, rec)
		}
	} else {
		records = recordsIn(state, q.scope, q.kind)
	}
	if q.object != "" {
		records = slices.DeleteFunc(records, func(r projections.Record) bool { return r.Object.ID() != q.object })
	}
	records = records[min(q.offset, len(records)):]
	if q.limit > 0 {
		records = records[:min(q.limit, len(records))]
	}
	return records
}

// getState answers GET /log/state: the objects of the state at a seq, or of a CN's or a
// vnet's part of it, as lines of JSON sorted by kind and id. The query may select a
// kind, one object, or a page with offset and limit.
func (h *pastRoutes) getState(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "at", "kind", "object", "cn", "vnet", "offset", "limit")
	if err != nil {
		return err
	}
	q, err := readStateQuery(p)
	if err != nil {
		return err
	}
	if err := h.read.Fresh(r, p); err != nil {
		return err
	}
	var records []projections.Record
	if err := h.read.ViewAt(w, r, p, q.part, func(state *projections.State) {
		records = q.of(state)
		if q.part.Whole {
			w.Header().Set(headerDigest, state.Sum().String())
		}
	}); err != nil {
		return err
	}
	h.guard.AccountsOf(r.Context()).Look(len(records))
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for _, rec := range records {
		if err := out.Encode(stateLine{rec.Object.Kind(), rec.Object.ID(), rec.Revision, rec.Seq, rec.Object}); err != nil {
			return nil // the client is gone
		}
	}
	return nil
}

// diffForm is the answer of GET /log/diff.
type diffForm struct {
	From    log.Seq      `json:"from"`
	To      log.Seq      `json:"to"`
	Objects []objectDiff `json:"objects"`
	Links   []linkDiff   `json:"links,omitempty"` // of a CN
}

type objectDiff struct {
	Action  log.Action  `json:"action"`
	Kind    log.Kind    `json:"kind"`
	ID      string      `json:"id"`
	Seq     log.Seq     `json:"seq,omitempty"` // of the last entry; none for a deleted object
	Changed []fieldDiff `json:"changed,omitempty"`
}

type fieldDiff struct {
	Path string    `json:"path"`
	Old  log.Value `json:"old"`
	New  log.Value `json:"new"`
}

type linkDiff struct {
	Action log.Action `json:"action"`
	What   string     `json:"what"`
	Key    string     `json:"key"`
	Before string     `json:"before,omitempty"`
	After  string     `json:"after,omitempty"`
}

// getDiff answers GET /log/diff?from=&to=: which objects differ, and with cn how the
// expected kernel state of that CN differs.
func (h *pastRoutes) getDiff(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "from", "to", "cn", "vnet")
	if err != nil {
		return err
	}
	scope, part, err := scopeOf(p)
	if err != nil {
		return err
	}
	if !p.Has("from") {
		return rest.BadParameter("from", log.ElementMissing, "send ?from=SEQ or a time", "from is missing")
	}
	if err := h.read.Fresh(r, p); err != nil {
		return err
	}
	f := diffForm{To: h.store.Head().Seq}
	if f.From, err = h.read.AtParameter(p, "from"); err == nil && p.Has("to") {
		f.To, err = h.read.AtParameter(p, "to")
	}
	if err != nil {
		return err
	}
	before, err := h.read.PastState(r.Context(), part, f.From)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	after, err := h.read.PastState(r.Context(), part, f.To)
	if err != nil {
		return fmt.Errorf("to: %w", err)
	}
	f.Objects = []objectDiff{}
	for _, c := range projections.DiffRecords(slices.Values(recordsIn(before, scope, 0)), slices.Values(recordsIn(after, scope, 0))) {
		f.Objects = append(f.Objects, formOfChange(c))
	}
	if scope.Type == log.ScopeCN {
		for _, c := range desired.DiffLinks(desired.Of(before, scope.ID), desired.Of(after, scope.ID)) {
			f.Links = append(f.Links, linkDiff(c))
		}
	}
	rest.SetSeq(w, f.To)
	rest.WriteJSON(w, r, http.StatusOK, f)
	return nil
}

func formOfChange(c projections.ObjectChange) objectDiff {
	d := objectDiff{Action: c.Action, Kind: c.Kind, ID: c.ID}
	if c.After == nil {
		return d
	}
	d.Seq = c.After.Seq
	for _, field := range c.Changed {
		now, _ := log.Field(c.After.Object, field.Path)
		d.Changed = append(d.Changed, fieldDiff{field.Path, field.Old, now})
	}
	return d
}

// Bounds of GET /log/history.
const (
	historyLines    = 1000 // in an answer, if the query names no limit
	maxHistoryLines = 10_000
)

// getHistory answers GET /log/history?kind=&object=: the entries about one object as
// lines of JSON. It finds them by the index, without reading the log.
func (h *pastRoutes) getHistory(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "kind", "object", "after", "limit")
	if err != nil {
		return err
	}
	if h.past == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "use GET /log?kind=KIND&object=ID", "this server has no index of the past")
	}
	kind, err := log.ParseKind(p.Text("kind"))
	if err != nil {
		return rest.BadParameter("kind", log.ElementInvalid, "send a kind of object, such as nic", "%v", err)
	}
	if p.Text("object") == "" {
		return rest.BadParameter("object", log.ElementMissing, "send the id of the object, as the log has it", "object is missing")
	}
	after, err := backend.SeqParameter(r.Context(), h.store, p, "after")
	if err != nil {
		return err
	}
	limit, err := p.Number("limit", historyLines, 1, maxHistoryLines)
	if err != nil {
		return err
	}
	if err := h.read.Fresh(r, p); err != nil {
		return err
	}
	var seqs []log.Seq
	if err := h.guard.Scan(r.Context(), func() error {
		seqs, err = h.past.HistoryOf(r.Context(), backend.PastObject{Kind: kind, ID: p.Text("object")}, after, int(limit))
		return err
	}); err != nil {
		return err
	}
	h.guard.AccountsOf(r.Context()).Look(len(seqs))
	rest.SetCursor(w, h.store.Head())
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for _, seq := range seqs {
		entries, err := h.store.Entries(seq-1, 1)
		if err != nil || len(entries) == 0 {
			return nil // the floor was raised above it meanwhile
		}
		if err := out.Encode(entries[0]); err != nil {
			return nil // the client is gone
		}
	}
	return nil
}
