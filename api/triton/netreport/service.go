package netreport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/report"
	"rutter/projections"
)

const (
	// ActorCN is the prefix of the actor of a CN's reports.
	ActorCN = "cn:"
	// maxBody bounds a report in bytes: its changes have a few hundred each.
	maxBody = 1 << 20
	// maxCNs bounds the CNs whose last report is remembered: architecture section 13
	// has 10,000. Beyond it an arbitrary one is forgotten, which loses only its order.
	maxCNs = 16384
	// within bounds the time for one report; its sender waits longer.
	within = 10 * time.Second
	// maxErrors bounds the field errors in one answer, in bytes: a report may have 128
	// refusals. Beyond it only code and message are sent, at most 4 KiB each; agents
	// read only these.
	maxErrors = 64 << 10
	// maxFound bounds in bytes the objects of one answer, as they are encoded: a node
	// asks for NICs, of some hundred bytes, 256 at a time.
	maxFound = 4 << 20
)

// Store is the log and its state, as this package needs them; see backend.Store.
type Store interface {
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	View(fn func(state *projections.State, head log.Cursor))
	Consistent(ctx context.Context) (log.Seq, error)
	Serving() error
}

// Config configures a Service. Store must be given.
type Config struct {
	Store Store
	// Allowed returns an error unless the sender of a request may report for a CN; nil
	// allows every sender.
	Allowed func(r *http.Request, cn log.UUID) error
	// Bound reports whether the sender of a request is a compute node by its certificate:
	// then it gets what concerns it only, and the log decides what it may write, which
	// answers the same of what is another's and of what there is not. nil: no sender is.
	Bound func(r *http.Request) bool
	// Logger; nil discards.
	Logger *slog.Logger
}

// Service takes reports.
type Service struct {
	cfg Config

	mu   sync.Mutex // protects last
	last map[log.UUID]position
}

// position is the position of a report among those of its CN.
type position struct{ incarnation, counter uint64 }

func (p position) before(q position) bool {
	return p.incarnation < q.incarnation || p.incarnation == q.incarnation && p.counter < q.counter
}

// New returns a service, or what cfg lacks.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("netreport: Config.Store is missing")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{cfg: cfg, last: make(map[log.UUID]position)}, nil
}

// Table is everything that the surface serves.
func (s *Service) Table() *rest.Table {
	return &rest.Table{
		Surface: "reports",
		Routes:  []rest.Route{{Method: http.MethodPost, Pattern: "/{cn}", Serve: s.serve}},
		Wrap: rest.Bounded(maxBody, func(w http.ResponseWriter, _ *http.Request, err error) {
			var answer *rest.Error
			if !errors.As(err, &answer) {
				answer = fail(http.StatusServiceUnavailable, rest.CodeUnavailable, err)
			}
			rest.WriteEscaped(w, answer.Status, answer)
		}),
	}
}

// Handler serves the endpoints, without a gate.
func (s *Service) Handler() http.Handler { return s.Table().Handler() }

func fail(status int, code string, err error) *rest.Error {
	return rest.Fail(status, code, "", "%v", err)
}

func (s *Service) serve(w http.ResponseWriter, r *http.Request) error {
	cn, err := log.ParseUUID(r.PathValue("cn"))
	if err != nil {
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "", "server not found: the path names the UUID of a compute node")
	}
	if s.cfg.Allowed != nil {
		if err := s.cfg.Allowed(r, cn); err != nil {
			return fail(http.StatusForbidden, log.CodeNotAuthorized, err)
		}
	}
	var m report.Report
	if err = json.NewDecoder(r.Body).Decode(&m); err == nil {
		err = m.Check()
	}
	if err != nil {
		return fail(http.StatusUnprocessableEntity, log.CodeInvalidParameters, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	a, err := s.Take(ctx, cn, &m, s.cfg.Bound != nil && s.cfg.Bound(r))
	if errors.Is(err, report.ErrBounds) {
		return fail(http.StatusUnprocessableEntity, log.CodeInvalidParameters, err)
	}
	if err != nil {
		return err
	}
	rest.WriteEscaped(w, http.StatusOK, a)
	return nil
}

// Take executes a CN's report. An error means that this server does not know the
// result, or accepts no reports; report.ErrBounds, that the report asks for more than
// fits into one answer. bound: the sender is the CN by its certificate; see Config.Bound.
func (s *Service) Take(ctx context.Context, cn log.UUID, m *report.Report, bound bool) (*report.Answer, error) {
	if err := s.cfg.Store.Serving(); err != nil {
		return nil, err
	}
	if newest, ok := s.enter(cn, position{m.Incarnation, m.Counter}); !ok {
		return &report.Answer{Stale: true, Incarnation: newest.incarnation, Counter: newest.counter}, nil
	}
	a := &report.Answer{Outcomes: make([]report.Outcome, len(m.Changes))}
	var g sync.WaitGroup // the changes of one report are of different objects
	for i := range m.Changes {
		g.Go(func() { a.Outcomes[i] = s.write(ctx, cn, &m.Changes[i].Change, bound) })
	}
	g.Wait()
	boundErrors(a.Outcomes)
	_, err := s.cfg.Store.Consistent(ctx)
	if err != nil {
		return nil, fmt.Errorf("netreport: %w", err)
	}
	s.cfg.Store.View(func(state *projections.State, head log.Cursor) {
		a.Cluster, a.Seq = head.Cluster, head.Seq
		a.Found, err = look(state, m)
		if bound {
			hideOthers(state, cn, a.Found)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("netreport: %w", err)
	}
	return a, nil
}

// enter records a report's position, unless a newer one is known. A repeated report is
// executed again, because its answer may have been lost.
func (s *Service) enter(cn log.UUID, p position) (newest position, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newest = s.last[cn]; p.before(newest) {
		return newest, false
	}
	if _, known := s.last[cn]; !known && len(s.last) >= maxCNs {
		for other := range s.last {
			delete(s.last, other)
			break
		}
	}
	s.last[cn] = p
	return p, true
}

// boundErrors removes the field errors of refusals if they are too large for one
// answer. It copies refusals, because others may share them.
func boundErrors(outcomes []report.Outcome) {
	room := maxErrors
	for i := range outcomes {
		r := outcomes[i].Refusal
		if r == nil || len(r.Errors) == 0 {
			continue
		}
		size := 0
		if text, err := json.Marshal(r.Errors); err == nil {
			size = len(text)
		}
		if room -= size; room < 0 {
			outcomes[i].Refusal = &log.Refusal{Code: r.Code, Message: r.Message}
		}
	}
}

// look returns what a report asks for. The error wraps report.ErrBounds.
func look(state *projections.State, m *report.Report) (all []report.Found, err error) {
	encoder, size := log.NewEncoder(), 0
	add := func(f report.Found) {
		if f.Object != nil && err == nil {
			b, failed := encoder.Object(f.Object)
			if size, err = size+len(b), failed; size > maxFound {
				err = fmt.Errorf("%w: what it asks for has over %d bytes: ask for less at once", report.ErrBounds, maxFound)
			}
		}
		if err == nil {
			all = append(all, f)
		}
	}
	for _, mac := range m.Look {
		add(find(state, log.KindNIC, mac.String(), mac.String()))
	}
	for _, name := range m.Networks {
		add(findNetwork(state, name))
	}
	for _, id := range m.Aggregations {
		add(find(state, log.KindAggregation, id, id))
	}
	return all, err
}

// hideOthers takes out what does not concern a CN, as if it were not there: what it may
// read of the API is the same.
func hideOthers(state *projections.State, cn log.UUID, all []report.Found) {
	for i := range all {
		f := &all[i]
		own := false
		switch o := f.Object.(type) {
		case *log.NIC:
			own = o.BelongsToUUID == cn || onVM(state, cn, o)
		case *log.Network:
			own = o.NICTag == adminTag && !o.Fabric // every CN's
		}
		if f.Object != nil && !own && !state.Interested(cn, state.ScopesOf(f.Kind, f.Object.ID())) {
			f.Object, f.Revision, f.Seq = nil, 0, 0
		}
	}
}

// adminTag is the NIC tag of the admin network.
const adminTag = "admin"

func find(state *projections.State, kind log.Kind, id, key string) report.Found {
	f := report.Found{Kind: kind, Key: key}
	if rec, ok := state.Get(kind, id); ok {
		f.Object, f.Revision, f.Seq = rec.Object, rec.Revision, rec.Seq
	}
	return f
}

func findNetwork(state *projections.State, name string) report.Found {
	for rec := range state.NetworksOn(name) { // the admin network lies on the tag of its name
		if rec.Object.(*log.Network).Name == name {
			return report.Found{Kind: log.KindNetwork, Key: name, Object: rec.Object, Revision: rec.Revision, Seq: rec.Seq}
		}
	}
	return report.Found{Kind: log.KindNetwork, Key: name}
}

// write writes one change.
func (s *Service) write(ctx context.Context, cn log.UUID, c *log.Change, bound bool) report.Outcome {
	var refusal *log.Refusal
	behind := false
	judge := func(state *projections.State, head log.Cursor) {
		refusal = mayWrite(state, cn, c, bound)
		behind = slices.ContainsFunc(c.Ops, func(op log.Op) bool { return op.IfSeq > head.Seq })
	}
	if s.cfg.Store.View(judge); behind {
		if _, err := s.cfg.Store.Consistent(ctx); err != nil {
			return report.Outcome{Unknown: err.Error()}
		}
		s.cfg.Store.View(judge)
	}
	if refusal != nil {
		return report.Outcome{Refusal: refusal}
	}
	c.Actor = ActorCN + cn.String()
	result, err := s.cfg.Store.Propose(ctx, c)
	if err != nil {
		return report.Outcome{Unknown: err.Error()}
	}
	return report.Outcome{Last: result.Last, Refusal: result.Refusal}
}

// mayWrite refuses objects that do not concern the CN. An update or deletion names
// revision and seq of the object, so that this check still holds when it is decided. Whether
// the object is at them is left to deciding: a change that is sent again may have made it
// another one itself, and gets its first result. Of a CN that is bound, the log decides what
// does not concern it.
func mayWrite(state *projections.State, cn log.UUID, c *log.Change, bound bool) *log.Refusal {
	refuse := func(format string, args ...any) *log.Refusal {
		return &log.Refusal{Code: log.CodeNotAuthorized, Message: fmt.Sprintf(format, args...)}
	}
	for i := range c.Ops {
		op := &c.Ops[i]
		if nic, is := op.Object.(*log.NIC); is && op.Action == log.Create && nic.CNUUID != cn {
			return refuse("a NIC that a compute node reports is on it: its cn_uuid is %s", cn)
		}
		if a, is := op.Object.(*log.Aggregation); is && op.Action == log.Create {
			for _, mac := range a.MACs {
				if rec, known := state.Get(log.KindNIC, mac.String()); known && !bound && rec.Object.(*log.NIC).BelongsToUUID != cn {
					return refuse("NIC %s of the aggregation is not compute node %s's", mac, cn)
				}
			}
		}
		if op.Action == log.Create {
			continue
		}
		if op.IfMatch == 0 || op.IfSeq == 0 {
			return refuse("a compute node names the revision and the seq of what it updates or deletes")
		}
		if op.Kind == log.KindAggregation {
			if !strings.HasPrefix(op.ID, cn.String()+"-") {
				return refuse("aggregation %s is not of compute node %s", op.ID, cn)
			}
			continue
		}
		rec, known := state.Get(log.KindNIC, op.ID)
		if known && !bound && !concerns(state, cn, rec.Object.(*log.NIC)) {
			return refuse("NIC %s is not of compute node %s", op.ID, cn)
		}
	}
	return nil
}

// concerns reports whether a CN may report about a NIC: the NIC or what it belongs to
// is on the CN.
func concerns(state *projections.State, cn log.UUID, nic *log.NIC) bool {
	return nic.CNUUID == cn || nic.CNUUID.IsZero() || nic.BelongsToUUID == cn || nic.BelongsToType == "other" || onVM(state, cn, nic)
}

// onVM reports whether a NIC belongs to a VM on the CN.
func onVM(state *projections.State, cn log.UUID, nic *log.NIC) bool {
	rec, known := state.Get(log.KindVM, nic.BelongsToUUID.String())
	return known && rec.Object.(*log.VM).ServerUUID == cn
}
