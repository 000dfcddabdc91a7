package guard

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/audit"
	"rutter/api/auth/matrix"
	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
)

// Auditor takes records of who was let in and who was refused; *audit.Log does.
type Auditor interface{ Note(audit.Record) }

// Config configures a Guard. Owners and Head are required.
type Config struct {
	// Identify returns the identity of a request. The default is that of the
	// connection's certificate, or matrix.Local on a listener without TLS.
	Identify func(*http.Request) matrix.Identity
	// Actor returns the actor of the events that a request causes. The default is that
	// of the request's identity.
	Actor func(*http.Request) string
	// Audit receives refusals and authentications. It may be nil.
	Audit Auditor
	// Logger gets the addresses whose connections are closed over a limit, once a minute
	// each. Default: none.
	Logger *slog.Logger
	// Limits bound what one address or identity may have; zero: DefaultLimits.
	Limits Limits
	// Budgets bound the work of reads; nil: those of budget.Table.
	Budgets budget.Set
	// Owners returns the tenants to whose objects a reader is limited; none: it sees
	// all.
	Owners func(reader matrix.Identity) []log.UUID
	// Head is the seq of this server's head.
	Head func() log.Seq
	// Draining is closed when the server stops: no pause lasts longer.
	Draining <-chan struct{}
}

// Guard decides which requests are answered, and how many.
type Guard struct {
	cfg         Config // immutable
	connections *connections
	requests    *requestLimits
	budgets     *budgets
	scans       *scans

	denied, limited, named *prometheus.CounterVec
}

// New returns a guard.
func New(cfg Config) *Guard {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Guard{
		cfg: cfg, requests: newRequestLimits(cfg.Limits), budgets: newBudgets(cfg.Budgets), scans: newScans(),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_denied_total", Help: "Requests and frames that the matrix refused, by role.",
		}, []string{"role"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_limited_total", Help: "Connections and requests that a limit was in the way of, by limit.",
		}, []string{"limit"}),
		named: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_connections_named_total", Help: "Connections with TLS that were let in, by role.",
		}, []string{"role"}),
	}
	g.connections = newConnections(g, cfg.Limits)
	return g
}

// Collectors returns the guard's metrics, without those of its meters.
func (g *Guard) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.denied, g.limited, g.named}
}

// Meters returns the meters of the budgets of reads.
func (g *Guard) Meters() []*budget.Meter { return g.budgets.all }

// grantKey is the key of a request's Grant in its context.
type grantKey struct{}

// Grant is what was decided about a request.
type Grant struct {
	Who      matrix.Identity
	Decision matrix.Decision
}

// GrantOf returns what was decided about a request; the zero Grant if it did not pass
// Serve.
func GrantOf(r *http.Request) Grant {
	g, _ := r.Context().Value(grantKey{}).(Grant)
	return g
}

// Sees reports whether the request may be answered with an object that state holds.
func (g Grant) Sees(state *projections.State, o log.Object) bool {
	return matrix.Sees(g.Who, g.Decision, state, o)
}

// Shown returns an object that the request sees, as it may be shown.
func (g Grant) Shown(o log.Object) log.Object { return matrix.Shown(g.Who, g.Decision, o) }

// Knows reports whether the answer to a write may mention an object. For another node's
// object a compute node gets the same answer as for one that does not exist.
func (g Grant) Knows(state *projections.State, o log.Object) bool {
	return g.Decision != matrix.Own || g.Sees(state, o)
}

// Work says how a route is bounded.
type Work struct {
	// Stream: the answer may last. It counts only for the rate of its identity. The
	// server bounds the number of streams.
	Stream bool
	// Free: the answer is counted elsewhere, or costs nothing. An identity that has
	// used up its budget of reading still gets it.
	Free bool
}

// Serve calls serve for a request if it may be answered. row is the request's row of
// the matrix.
func (g *Guard) Serve(w *rest.Recorder, r *http.Request, row *matrix.Row, work Work, serve rest.Endpoint) error {
	who := g.identify(r)
	leave, err := g.enter(r, who, work.Stream)
	if err != nil {
		return err
	}
	defer leave()
	if r, err = g.authorise(r, who, row); err != nil {
		return err
	}
	if err := g.mayWork(r, work.Free); err != nil {
		return g.overBudget(r, err)
	}
	if !work.Stream && !work.Free {
		defer func() { g.AccountsOf(r.Context()).Sent(w.Bytes) }()
	}
	return g.overBudget(r, serve(w, r))
}

// identify returns the identity of the connection's certificate, or matrix.Local on a
// listener without TLS.
func (g *Guard) identify(r *http.Request) matrix.Identity {
	if g.cfg.Identify != nil {
		return g.cfg.Identify(r)
	}
	if id, ok := matrix.From(r.Context()); ok {
		return id
	}
	if r.TLS != nil {
		return matrix.Identity{Role: matrix.None, Name: hostOf(r.RemoteAddr)}
	}
	return matrix.Identity{Role: matrix.Local, Name: hostOf(r.RemoteAddr)}
}

// authorise asks the matrix about a request of who, and returns the request with the
// decision in its context.
func (g *Guard) authorise(r *http.Request, who matrix.Identity, row *matrix.Row) (*http.Request, error) {
	if who.Role == matrix.Reader {
		who.Owners = g.cfg.Owners(who)
	}
	answer, refusal := matrix.Decide(who, r.Method+" "+r.URL.Path, row)
	if refusal != nil {
		return nil, g.Refuse(r.RemoteAddr, refusal)
	}
	if row != nil && row.Writes() && webcheck.Browser(r) {
		refusal := webcheck.ReadOnly()
		_ = g.Refuse(r.RemoteAddr, &matrix.Refusal{Who: who, What: r.Method + " " + r.URL.Path, Missing: refusal.Message}) // it is recorded
		return nil, rest.OfRefusal(refusal)
	}
	ctx := context.WithValue(matrix.With(r.Context(), who), grantKey{}, Grant{who, answer})
	return r.WithContext(ctx), nil
}

// Refuse records a refusal and returns it as an answer. remote is the source of the
// request or the frame.
func (g *Guard) Refuse(remote string, refusal *matrix.Refusal) error {
	g.denied.WithLabelValues(refusal.Who.Role.String()).Inc()
	g.Note(audit.Record{
		Event: audit.Refused, Actor: refusal.Who.Actor(), Serial: refusal.Who.Serial, Remote: remote, Asked: refusal.What, Why: refusal.Missing,
	})
	return rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, refusal.Missing, "%v", refusal)
}

// Note writes a record to the audit log.
func (g *Guard) Note(r audit.Record) {
	if g.cfg.Audit != nil {
		g.cfg.Audit.Note(r)
	}
}

// Actor returns the actor of a request, cut to the length that an event allows.
func (g *Guard) Actor(r *http.Request) (actor string) {
	if g.cfg.Actor != nil {
		actor = g.cfg.Actor(r)
	} else {
		actor = GrantOf(r).Who.Actor()
	}
	return actor[:min(len(actor), log.MaxActorBytes)]
}

// LimitedPause is how long a limited request waits for its refusal: a connection that
// does not wait by itself gets at most four refusals a second.
const LimitedPause = 250 * time.Millisecond

// CountLimit counts that a limit was reached.
func (g *Guard) CountLimit(limit string) { g.limited.WithLabelValues(limit).Inc() }

// enter takes a slot of the request's identity. Requests that will be refused for other
// reasons count too, because they cost as much.
func (g *Guard) enter(r *http.Request, who matrix.Identity, stream bool) (leave func(), err error) {
	leave, limit := g.requests.enter(who, stream)
	if limit == "" {
		return leave, nil
	}
	g.CountLimit(limit)
	g.noteLimit(r, who, limit)
	if limit == LimitRate {
		g.Pause(r.Context(), LimitedPause)
	}
	return nil, rest.Fail(http.StatusTooManyRequests, rest.CodeLimited, "ask less often, or fewer things at once", "%s has reached the limit %q of this server", who.Actor(), limit)
}

// noteLimit writes to the audit log which limit who has reached.
func (g *Guard) noteLimit(r *http.Request, who matrix.Identity, limit string) {
	g.Note(audit.Record{Event: audit.Limited, Actor: who.Actor(), Serial: who.Serial, Remote: r.RemoteAddr, Asked: limit})
}

// Enter is for a listener of a surface that is not the API's own. It takes a slot of
// who for a request. leave must be called when the request is answered. The error is
// the answer if there is no slot.
func (g *Guard) Enter(r *http.Request, who matrix.Identity, stream bool) (leave func(), err error) {
	return g.enter(r, who, stream)
}

// Pace takes a token for a change on a write stream, and returns how long its identity
// must wait before the next one.
func (g *Guard) Pace(who matrix.Identity) time.Duration { return g.requests.pace(who) }

// Pause waits, unless ctx or the server ends before.
func (g *Guard) Pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-g.cfg.Draining:
	}
}

// hostOf is the host of HOST:PORT.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
