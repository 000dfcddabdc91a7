package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// Past answers for the log and the state as they were. All methods may be
// called concurrently; errors are log.ErrCompacted and log.ErrAhead for places
// that are not kept, or not there.
type Past interface {
	// SeqAt is the last entry that is not after a time.
	SeqAt(at log.Time) (log.Seq, error)
	// StateAt is the whole state, for which much is read.
	StateAt(ctx context.Context, seq log.Seq) (*projections.State, error)
	// PartAt is a part of it; more may be in it.
	PartAt(ctx context.Context, part PastPart, seq log.Seq) (*projections.State, error)
	// HistoryOf lists the entries about an object after a seq, in order.
	HistoryOf(ctx context.Context, object PastObject, after log.Seq, limit int) ([]log.Seq, error)
}

// PastObject names an object, by its id as the log has it.
type PastObject struct {
	Kind log.Kind
	ID   string
}

// PastPart is what is wanted of a state: all networks and NIC tags, and what is
// named here.
type PastPart struct {
	CNs      []log.UUID   // with all that they must know
	VNets    []uint32     // with their NICs and the ways to these
	Mentions []log.UUID   // NICs, VMs and VMMs that have one in a field
	Objects  []PastObject // each for itself
	Kinds    []log.Kind   // all objects of them; not NICs, VMs and VMMs, which are many
	Whole    bool         // everything
}

// headerDigest is the digest of the whole state, of which an answer may be a part.
const headerDigest = "Rutter-Digest"

// wholesAtOnce bounds the whole states of the past in memory: each takes what
// the server's own does.
const wholesAtOnce = 1

// place reads the query's at: a seq or a time.
func (s *Server) place(p parameters, name string) (log.Seq, error) {
	if s.cfg.Past == nil {
		return 0, fail(http.StatusNotImplemented, codeNotHere, "leave "+name+" out", "this server cannot answer for the past")
	}
	if seq, err := strconv.ParseUint(p.text(name), 10, 64); err == nil {
		return log.Seq(seq), nil
	}
	at, err := log.ParseTime(p.text(name))
	if err != nil {
		return 0, badParameter(name, log.ElementInvalid, "send a seq, or a time as in 2026-11-21T09:00:00Z", "got %q", p.text(name))
	}
	return s.cfg.Past.SeqAt(at)
}

// viewAt calls fn with the state that the query asks for: that of now, or with
// at that of then, of which only a part is needed.
func (s *Server) viewAt(w http.ResponseWriter, r *http.Request, p parameters, part PastPart, fn func(state *projections.State)) error {
	if !p.has("at") {
		s.view(w, fn)
		return nil
	}
	if g := grantOf(r); g.answer != matrix.Allow {
		return s.refused(r.RemoteAddr, &matrix.Refusal{Who: g.who, What: "read the past", Missing: "who sees only its own sees it as it is now: leave ?at= out"})
	}
	seq, err := s.place(p, "at")
	if err != nil {
		return err
	}
	state, err := s.pastState(r.Context(), part, seq)
	if err != nil {
		return err
	}
	setSeq(w, seq)
	fn(state)
	return nil
}

func (s *Server) pastState(ctx context.Context, part PastPart, seq log.Seq) (state *projections.State, err error) {
	if !part.Whole {
		err = s.scanning(ctx, func() (err error) {
			state, err = s.cfg.Past.PartAt(ctx, part, seq)
			return err
		})
		s.counted(ctx, state)
		return state, err
	}
	select {
	case s.wholes <- struct{}{}:
		defer func() { <-s.wholes }()
	default:
		return nil, fail(http.StatusServiceUnavailable, codeOverloaded, "try again, or ask for one object, CN or vnet", "the whole state of the past is being read for somebody else")
	}
	state, err = s.cfg.Past.StateAt(ctx, seq)
	s.counted(ctx, state)
	return state, err
}

// part returns what of a past state a list of the kind needs.
func (k *kindRoute) part(p parameters) PastPart {
	if !isMany(k.kind) {
		return PastPart{Kinds: []log.Kind{k.kind}}
	}
	if k.kind == log.KindNIC {
		if vnet, err := strconv.ParseUint(p.text("vnet_id"), 10, 24); err == nil {
			return PastPart{VNets: []uint32{uint32(vnet)}}
		}
	}
	for _, name := range []string{"cn_uuid", "network_uuid", "belongs_to_uuid", "instance_id", "sled_id", "server_uuid", "uuid", "owner_uuid"} {
		if _, known := k.filters[name]; known && p.has(name) {
			return partMentioning(p.text(name))
		}
	}
	return PastPart{Whole: true}
}

// isMany reports whether there are so many objects of a kind that the past has
// no list of them.
func isMany(kind log.Kind) bool {
	return kind == log.KindNIC || kind == log.KindVM || kind == log.KindVMM
}

// partMentioning is what has one of the UUIDs in a list.
func partMentioning(list string) (part PastPart) {
	for text := range strings.SplitSeq(list, ",") {
		uuid, err := log.ParseUUID(text)
		if err != nil {
			return PastPart{Whole: true}
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

// scopeOf reads cn and vnet, of which at most one may be given.
func scopeOf(p parameters) (scope log.Scope, part PastPart, err error) {
	if p.has("cn") && p.has("vnet") {
		return scope, part, badParameter("vnet", log.ElementInvalid, "send one of them", "cn and vnet exclude each other")
	}
	switch {
	case p.has("cn"):
		cn, err := log.ParseUUID(p.text("cn"))
		if err != nil {
			return scope, part, badParameter("cn", log.ElementInvalid, "send a UUID of 36 characters", "%v", err)
		}
		return log.CNScope(cn), PastPart{CNs: []log.UUID{cn}}, nil
	case p.has("vnet"):
		vnet, err := p.number("vnet", 0, 0, log.MaxVNet)
		return log.VNetScope(uint32(vnet)), PastPart{VNets: []uint32{uint32(vnet)}}, err
	}
	return log.AllScope(), PastPart{Whole: true}, nil
}

// recordsIn returns the objects of a scope; those of a CN are all that it must
// know, those of all are everything.
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

// stateQuery is what GET /log/state is asked for.
type stateQuery struct {
	scope  log.Scope
	part   PastPart // of the past, if it is about that
	kind   log.Kind // 0: all
	object string   // "": all of the kind
	offset int
	limit  int // 0: all
}

func readStateQuery(p parameters) (q stateQuery, err error) {
	if q.scope, q.part, err = scopeOf(p); err != nil {
		return q, err
	}
	if p.has("kind") {
		if q.kind, err = log.ParseKind(p.text("kind")); err != nil {
			return q, badParameter("kind", log.ElementInvalid, "send a kind of object, such as nic", "%v", err)
		}
		if q.part.Whole && !isMany(q.kind) {
			q.part = PastPart{Kinds: []log.Kind{q.kind}}
		}
	}
	if q.object = p.text("object"); q.object != "" {
		if q.kind == 0 {
			return q, badParameter("kind", log.ElementMissing, "send the kind of the object too, such as nic", "kind is missing")
		}
		if q.scope.Type == log.ScopeAll {
			q.part = PastPart{Objects: []PastObject{{q.kind, q.object}}}
		}
	}
	offset, err := p.number("offset", 0, 0, 1<<31)
	if err != nil {
		return q, err
	}
	limit, err := p.number("limit", 0, 1, 1<<31)
	q.offset, q.limit = int(offset), int(limit)
	return q, err
}

// of returns what is asked for of a state.
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

// getState answers GET /log/state: the objects of the state at a place, or those
// of a CN's or a vnet's part of it, as lines of JSON; of a kind, or one object;
// with offset and limit a part of them, which are sorted by kind and id.
func (s *Server) getState(w http.ResponseWriter, r *http.Request) error {
	p, err := query(r, "at", "kind", "object", "cn", "vnet", "offset", "limit")
	if err != nil {
		return err
	}
	q, err := readStateQuery(p)
	if err != nil {
		return err
	}
	if err := s.fresh(r, p); err != nil {
		return err
	}
	var records []projections.Record
	if err := s.viewAt(w, r, p, q.part, func(state *projections.State) {
		records = q.of(state)
		if q.part.Whole {
			w.Header().Set(headerDigest, state.Sum().String())
		}
	}); err != nil {
		return err
	}
	s.accountsOf(r.Context()).look(len(records))
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for _, rec := range records {
		if err := out.Encode(stateLine{rec.Object.Kind(), rec.Object.ID(), rec.Revision, rec.Seq, rec.Object}); err != nil {
			return nil // the reader is gone
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
	Seq     log.Seq     `json:"seq,omitempty"` // of the last entry; none for what is gone
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

// getDiff answers GET /log/diff?from=&to=: which objects differ, and with cn
// what the kernel of that CN had to change.
func (s *Server) getDiff(w http.ResponseWriter, r *http.Request) error {
	p, err := query(r, "from", "to", "cn", "vnet")
	if err != nil {
		return err
	}
	scope, part, err := scopeOf(p)
	if err != nil {
		return err
	}
	if !p.has("from") {
		return badParameter("from", log.ElementMissing, "send ?from=SEQ or a time", "from is missing")
	}
	if err := s.fresh(r, p); err != nil {
		return err
	}
	f := diffForm{To: s.store.Head().Seq}
	if f.From, err = s.place(p, "from"); err == nil && p.has("to") {
		f.To, err = s.place(p, "to")
	}
	if err != nil {
		return err
	}
	before, err := s.pastState(r.Context(), part, f.From)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	after, err := s.pastState(r.Context(), part, f.To)
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
	setSeq(w, f.To)
	writeJSON(w, r, http.StatusOK, f)
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
