package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/backend"
	"rutter/api/internal/logread"
	"rutter/api/internal/rest"
	"rutter/api/liveness"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/naming"
)

// maxWaitNames bounds the names in place of ids among the scopes of one wait.
const maxWaitNames = 16

// defaultWait is how long a barrier waits by default.
const defaultWait = 10 * time.Second

// Waiting are the query parameters of a write that waits for the compute nodes.
var Waiting = []string{"wait", "timeout"}

// headerFabric reports for a write with ?wait=fabric that every interested CN has
// programmed it: done, the number of CNs, and the time.
const headerFabric = "Rutter-Fabric"

// headerAbsent reports, for each object of such a write that no kernel has because its VM
// is not to run, what and why; at most maxAbsent of them. headerFabric has the number.
const (
	headerAbsent = "Rutter-Fabric-Absent"
	maxAbsent    = 8
)

// firstMissing names the first compute node that is missing, and what it lacks.
func firstMissing(v *liveness.Verdict) string {
	if len(v.Missing) == 0 {
		return ""
	}
	l := &v.Missing[0]
	return ": CN " + l.CN.String() + ": " + l.Reason
}

// codeFabric is the answer to a write that is written, but not programmed everywhere in
// time (202), and the reason why there is no barrier (501, 503).
const codeFabric = "FabricPending"

// timeoutOf reads how long to wait.
func timeoutOf(p rest.Parameters) (time.Duration, error) {
	if !p.Has("timeout") {
		return defaultWait, nil
	}
	d, err := time.ParseDuration(p.Text("timeout"))
	if err != nil || d < 0 || d > liveness.MaxTimeout {
		return 0, rest.BadParameter("timeout", log.ElementInvalid, "send a duration up to "+liveness.MaxTimeout.String()+", as in 5s or 500ms", "got %q", p.Text("timeout"))
	}
	return d, nil
}

// Barrier waits until CNs have programmed what was written.
type Barrier struct {
	store   Store
	tail    *logread.Tail // of store
	fabric  Fabric        // nil: there are no barriers
	metrics *barrierMetrics
	// fresh waits as a query asks; see Config.Fresh.
	fresh func(*http.Request, rest.Parameters) error
	// named finds the object that a name means; see Config.Named.
	named func(w http.ResponseWriter, r *http.Request, p rest.Parameters, kind log.Kind, text string) (naming.Match, error)
}

// NewBarrier returns a Barrier. Of cfg it needs Store, Tail, Fabric, Fresh and Named.
func NewBarrier(cfg Config) *Barrier {
	return &Barrier{store: cfg.Store, tail: cfg.Tail, fabric: cfg.Fabric, fresh: cfg.Fresh, named: cfg.Named, metrics: newBarrierMetrics()}
}

// Routes returns the paths that wait.
func (b *Barrier) Routes() []rest.Route {
	return []rest.Route{{Method: "GET", Pattern: "/wait", Serve: b.get}}
}

// Collectors are the metrics of waits.
func (b *Barrier) Collectors() []prometheus.Collector {
	return []prometheus.Collector{b.metrics.ended, b.metrics.seconds}
}

// barrierMetrics are the waits of a barrier.
type barrierMetrics struct {
	ended   *prometheus.CounterVec
	seconds prometheus.Histogram
}

func newBarrierMetrics() *barrierMetrics {
	return &barrierMetrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_barriers_total", Help: "Waits for the fabric that ended on this server, by result: done, missing or failed.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rutter_barrier_seconds", Help: "Time until a wait for the fabric was done.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60},
		}),
	}
}

// wait waits for the compute nodes. The request may take as long as it asked for.
func (b *Barrier) wait(w http.ResponseWriter, r *http.Request, q liveness.Query) (v liveness.Verdict, err error) {
	if b.fabric == nil {
		return v, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server knows no sessions but its own")
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the body was read; the deadline would end the request
	_ = control.SetWriteDeadline(time.Now().Add(q.Timeout + rest.AnswerTime))
	v, err = b.fabric.Wait(r.Context(), q)
	switch {
	case err != nil:
		b.metrics.ended.WithLabelValues("failed").Inc()
		return v, rest.Fail(http.StatusServiceUnavailable, rest.CodeNoLeader, "try again: GET /wait?seq="+q.Seq.String(), "nobody could judge how far the compute nodes are: %v", err)
	case v.Done:
		b.metrics.ended.WithLabelValues("done").Inc()
		b.metrics.seconds.Observe(v.Waited.Seconds())
	default:
		b.metrics.ended.WithLabelValues("missing").Inc()
	}
	return v, nil
}

// get answers GET /wait: it waits until every CN that is interested in a scope has
// programmed a seq, or the time is over. Without a scope it waits for the scopes and
// the last seq of that seq's change; without a seq too, for all CNs. With a scope and a VM
// only what is of that VM counts on the CNs, and the devices of the vnets.
func (b *Barrier) get(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "seq", "scope", "timeout", "vm")
	if err != nil {
		return err
	}
	if err := b.fresh(r, p); err != nil {
		return err
	}
	q := liveness.Query{}
	if q.Timeout, err = timeoutOf(p); err != nil {
		return err
	}
	if q.Seq, err = b.waitedFor(r.Context(), p, q.Timeout); err != nil {
		return err
	}
	names := 0
	if p.Has("scope") {
		for _, text := range strings.Split(p.Text("scope"), ",") {
			scope, err := log.ParseScope(text)
			if err != nil {
				if names++; names > maxWaitNames {
					return rest.BadParameter("scope", log.ElementInvalid, "send ids, or fewer names", "a wait has scopes by %d names at most", maxWaitNames)
				}
				scope, err = b.scopeNamed(w, r, text, err)
			}
			if err != nil {
				return err
			}
			q.Scopes = append(q.Scopes, scope)
		}
		if q.Concern, err = b.concern(w, r, p, q.Scopes); err != nil {
			return err
		}
	} else if p.Has("vm") {
		return rest.BadParameter("vm", log.ElementInvalid, "name its scopes with scope too", "it is of no use alone")
	} else if !p.Has("seq") {
		q.Scopes = []log.Scope{log.AllScope()}
	} else if q, err = b.changeOf(r.Context(), q); err != nil {
		return err
	}
	v, err := b.wait(w, r, q)
	if err != nil {
		return err
	}
	rest.SetSeq(w, q.Seq)
	rest.WriteJSON(w, r, http.StatusOK, v)
	return nil
}

// scopeNamed reads a scope in which a CN, a network, or a fabric network in place of its
// vnet, is named; bad says why it is none with an id.
func (b *Barrier) scopeNamed(w http.ResponseWriter, r *http.Request, text string, bad error) (scope log.Scope, err error) {
	sort, name, _ := strings.Cut(text, ":")
	kind := map[string]log.Kind{"cn": log.KindServer, "network": log.KindNetwork, "vnet": log.KindNetwork}[sort]
	_, number := strconv.ParseUint(name, 10, 64)
	if kind == 0 || name == "" || sort == "vnet" && number == nil {
		return scope, rest.BadParameter("scope", log.ElementInvalid, "send all, vnet:N, cn:UUID or network:UUID, several parted by commas; none means those of the change", "%v", bad)
	}
	m, err := b.named(w, r, rest.Parameters{}, kind, name)
	if err != nil {
		return scope, rest.OfParameter("scope", err)
	}
	w.Header().Del(backend.HeaderID) // the answer is not of the object
	if sort != "vnet" {
		return log.ParseScope(sort + ":" + m.ID)
	}
	if m.VNet == 0 {
		return scope, rest.BadParameter("scope", log.ElementInvalid, "name a fabric network, or send vnet:N", "network %s has no vnet", name)
	}
	return log.VNetScope(m.VNet), nil
}

// concern returns which objects a wait for scopes is for: those of the VM in the request,
// else all that is in the scopes.
func (b *Barrier) concern(w http.ResponseWriter, r *http.Request, p rest.Parameters, scopes []log.Scope) (*liveness.Concern, error) {
	if !p.Has("vm") {
		return concernOfScopes(scopes), nil
	}
	m, err := b.named(w, r, rest.Parameters{}, log.KindVM, p.Text("vm"))
	if err != nil {
		return nil, rest.OfParameter("vm", err)
	}
	w.Header().Del(backend.HeaderID)
	vm, err := log.ParseUUID(m.ID)
	if err != nil {
		return nil, err
	}
	return &liveness.Concern{VMs: []log.UUID{vm}}, nil
}

// waitedFor returns the seq in the request, else the leader's head: this server may be
// behind what was acknowledged elsewhere.
func (b *Barrier) waitedFor(ctx context.Context, p rest.Parameters, timeout time.Duration) (log.Seq, error) {
	if p.Has("seq") {
		return backend.SeqParameter(ctx, b.store, p, "seq")
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(timeout, liveness.MinTimeout), backend.WaitTime))
	defer cancel()
	seq, err := b.store.Consistent(ctx)
	if err != nil {
		return 0, rest.Fail(http.StatusServiceUnavailable, rest.CodeNoLeader, "try again, or name the seq with ?seq=", "the head of the log is not known: %v", err)
	}
	return seq, nil
}

// changeOf extends q to the whole change of its seq: its scopes and its last seq. It
// waits until this server has it.
func (b *Barrier) changeOf(ctx context.Context, q liveness.Query) (liveness.Query, error) {
	if err := b.reached(ctx, q.Seq, q.Timeout); err != nil {
		return q, err
	}
	if q.Seq <= b.store.Floor() {
		return q, rest.Fail(http.StatusGone, rest.CodeCompacted, "name the scopes with ?scope=", "whom entry %d concerned is not known any more: the log is kept from %d on", q.Seq, b.store.Floor()+1)
	}
	first, err := b.tail.ChangeBegin(q.Seq)
	if err != nil {
		return q, err
	}
	var heads []*log.Event
	if q.Scopes, q.Seq, err = b.tail.ChangeScopes(first, q.Seq, func(head *log.Event) { heads = append(heads, head) }); err != nil {
		return q, err
	}
	var c concerns
	b.store.View(func(state *projections.State, _ log.Cursor) {
		for _, head := range heads {
			c.event(state, head)
		}
	})
	q.Concern = c.concern()
	return q, nil
}

// reached waits until this server has applied seq.
func (b *Barrier) reached(ctx context.Context, seq log.Seq, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(timeout, backend.WaitTime))
	defer cancel()
	if err := b.store.WaitSeq(ctx, seq); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotYet, "try again, or name the scopes with ?scope=", "this server is at seq %d and did not reach %d in time", b.store.Head().Seq, seq)
	}
	return nil
}

// concerned returns the barrier of what a change did, and of objects that already were
// as requested: another change made them so, and may not be programmed everywhere yet.
func (b *Barrier) concerned(ctx context.Context, c *log.Change, result log.Result, timeout time.Duration) (q liveness.Query, err error) {
	q = liveness.Query{Seq: result.Last, Timeout: timeout}
	if err := b.reached(ctx, result.Last, timeout); err != nil {
		return q, err
	}
	var heads []*log.Event
	if result.Events > 0 {
		if q.Scopes, _, err = b.tail.ChangeScopes(result.First, result.Last, func(head *log.Event) { heads = append(heads, head) }); err != nil {
			return q, err
		}
	}
	var gathered concerns
	b.store.View(func(state *projections.State, _ log.Cursor) {
		for _, head := range heads {
			gathered.event(state, head)
		}
		for i, id := range result.IDs[:min(len(result.IDs), len(c.Ops))] {
			scopes := state.ScopesOf(c.Ops[i].Kind, id)
			gathered.object(state, c.Ops[i].Kind, id, scopes)
			q.Scopes = append(q.Scopes, scopes...)
		}
	})
	slices.SortFunc(q.Scopes, log.Scope.Compare)
	q.Scopes, q.Concern = slices.Compact(q.Scopes), gathered.concern()
	return q, nil
}

// Wanted reports whether a write asks to wait, and how long. It is called before the
// write, so that a bad request writes nothing.
func (b *Barrier) Wanted(r *http.Request) (timeout time.Duration, is bool, err error) {
	p, err := rest.Query(r, Waiting...)
	if err != nil || !p.Has("wait") {
		return 0, false, err
	}
	if p.Text("wait") != "fabric" {
		return 0, false, rest.BadParameter("wait", log.ElementInvalid, "send wait=fabric, or leave it out", "got %q", p.Text("wait"))
	}
	if b.fabric == nil {
		return 0, false, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "leave wait out", "this server knows no sessions but its own; nothing was written")
	}
	timeout, err = timeoutOf(p)
	return timeout, true, err
}

// Await waits until a written change is programmed. The error is an answer that says
// that the change is written.
func (b *Barrier) Await(w http.ResponseWriter, r *http.Request, c *log.Change, result log.Result, timeout time.Duration) error {
	pending := func(v *liveness.Verdict, format string, args ...any) error {
		e := rest.Fail(http.StatusAccepted, codeFabric, "it is written: wait on with GET /wait?seq="+result.Last.String(), format, args...)
		e.Fabric = v
		rest.SetSeq(w, result.Last)
		return e
	}
	q, err := b.concerned(r.Context(), c, result, timeout)
	if err != nil {
		return pending(nil, "written as seq %d, and who must program it could not be read: %v", result.Last, err)
	}
	v, err := b.wait(w, r, q)
	var answer *rest.Error
	switch {
	case errors.As(err, &answer):
		return pending(nil, "written as seq %d. %s", result.Last, answer.Message)
	case err != nil:
		return pending(nil, "written as seq %d: %v", result.Last, err)
	case !v.Done:
		return pending(&v, "written as seq %d; %d of %d compute nodes have not programmed it after %s%s", result.Last, v.Total, v.CNs, v.Waited.Round(time.Millisecond), firstMissing(&v))
	}
	done := fmt.Sprintf("done; cns=%d; waited_ms=%.1f", v.CNs, float64(v.Waited)/float64(time.Millisecond))
	if v.AbsentTotal > 0 {
		done += fmt.Sprintf("; absent=%d", v.AbsentTotal)
		for _, absent := range v.Absent[:min(len(v.Absent), maxAbsent)] {
			w.Header().Add(headerAbsent, "CN "+absent.CN.String()+": "+absent.Object)
		}
	}
	w.Header().Set(headerFabric, done)
	return nil
}
