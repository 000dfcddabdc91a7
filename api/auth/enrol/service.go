package enrol

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
)

// Path is the prefix of the service in the API.
const Path = "/pki"

// Bounds of the service.
const (
	maxBody   = 64 << 10         // bytes of a request
	writeTime = 10 * time.Second // for a change
)

// Store is the log as this package needs it; see backend.Store.
type Store interface {
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	View(fn func(state *projections.State, head log.Cursor))
	WaitSeq(ctx context.Context, seq log.Seq) error
	// Consistent returns when this server has applied everything that any server
	// acknowledged before the call.
	Consistent(ctx context.Context) (log.Seq, error)
}

// Config configures a Service. Store is required.
type Config struct {
	Store Store
	// Issuer returns the authority of clients that signs now, with its key. It returns
	// an error if this server has no such key. nil: this server never issues.
	Issuer func() (*pki.Authority, error)
	// Authorities returns the sets that this server's own files trust, for a log that
	// has none yet. nil: none.
	Authorities func() []log.Authority
	// Leads reports whether this server leads: the leader does the periodic work.
	Leads func() bool
	Life  time.Duration // lifetime of a certificate; default pki.NodeLife
	// Voters returns the ids of the servers that vote, and Live the compute nodes that
	// have a session with any server. A revocation names the former for deciding; both are
	// asked before a rotation, which may lock them out. nil: none.
	Voters func() []string
	Live   func(context.Context) ([]log.UUID, error)
	Now    func() time.Time // default time.Now
	// NewID makes change ids. Default: UUIDs of version 7 by this machine's clock.
	NewID  func() (log.UUID, error)
	Random io.Reader    // the system's
	Logger *slog.Logger // none if nil
	// Budgets bound the number of certificates and tokens; nil: those of budget.Table.
	Budgets budget.Set
}

// Service answers requests under Path.
type Service struct {
	cfg   Config // immutable
	table *rest.Table
	// certificates and tokens count what this server issues.
	certificates, tokens *budget.Meter
}

// New returns a service that does nothing yet.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("enrol: Config.Store is missing")
	}
	if cfg.Issuer == nil {
		cfg.Issuer = func() (*pki.Authority, error) { return nil, errNoIssuer }
	}
	if cfg.Authorities == nil {
		cfg.Authorities = func() []log.Authority { return nil }
	}
	if cfg.Voters == nil {
		cfg.Voters = func() []string { return nil }
	}
	if cfg.Live == nil {
		cfg.Live = func(context.Context) ([]log.UUID, error) { return nil, nil }
	}
	if cfg.Leads == nil {
		cfg.Leads = func() bool { return false }
	}
	if cfg.Life == 0 {
		cfg.Life = pki.NodeLife
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = rest.NewChangeID
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		cfg:          cfg,
		certificates: budget.NewMeter(cfg.Budgets.Get(budget.CNCertificates), cfg.Now),
		tokens:       budget.NewMeter(cfg.Budgets.Get(budget.Tokens), cfg.Now),
	}
	s.table = s.routes()
	return s, nil
}

// Meters returns the meters of what this server issues.
func (s *Service) Meters() []*budget.Meter { return []*budget.Meter{s.certificates, s.tokens} }

// Table is everything that the surface serves, without the prefix Path.
func (s *Service) Table() *rest.Table { return s.table }

// Handler returns the handler of every path, without the prefix Path and a gate.
func (s *Service) Handler() http.Handler { return s.table.Handler() }

// endpoint is one row of the service's table.
type endpoint struct {
	route  string        // METHOD /path/{name}
	roles  []matrix.Role // who may ask; none: every client, also one without a certificate
	answer func(r *http.Request) (any, error)
}

// routes returns the routes of the table, each with its roles.
func (s *Service) routes() *rest.Table {
	t := &rest.Table{Surface: "pki", Wrap: rest.Bounded(maxBody, s.writeError)}
	for _, e := range s.rows() {
		method, pattern, _ := strings.Cut(e.route, " ")
		t.Routes = append(t.Routes, rest.Route{Method: method, Pattern: pattern, Serve: s.guarded(e)})
	}
	return t
}

var (
	anybody   []matrix.Role
	operators = []matrix.Role{matrix.Operator, matrix.Local}
	readers   = []matrix.Role{matrix.Operator, matrix.Local, matrix.Reader, matrix.Server}
	nodes     = []matrix.Role{matrix.CN, matrix.Expired}
)

func (s *Service) rows() []endpoint {
	return []endpoint{
		{"GET /bundle", anybody, s.bundle},
		{"POST /join", anybody, s.join},
		{"POST /renew", nodes, s.renew},
		{"GET /tokens", operators, s.listTokens},
		{"POST /tokens", operators, s.createToken},
		{"DELETE /tokens/{id}", operators, s.deleteToken},
		{"GET /revocations", readers, list[*log.Revocation](s, log.KindRevocation)},
		{"POST /revocations", operators, s.revoke},
		{"GET /certificates", readers, list[*log.Certificate](s, log.KindCertificate)},
		{"POST /certificates", operators, s.record},
		{"GET /authorities", readers, list[*log.Authority](s, log.KindAuthority)},
		{"PUT /authorities/{name}", operators, s.publish},
	}
}

var errNoIssuer = rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server that was given the key (ca.key), or issue it by hand: rutter cert issue", "this server has no key to sign certificates with")

// guarded checks the caller's role before the request's body is read.
func (s *Service) guarded(e endpoint) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, _ := matrix.From(r.Context())
		if e.roles != nil && !slices.Contains(e.roles, id.Role) {
			return rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, "use the certificate of an operator", "%s may not %s", id.Actor(), e.route)
		}
		r, err := rest.NoteContent(r)
		if err != nil {
			return errBody
		}
		answer, err := e.answer(r)
		if err != nil {
			return err
		}
		rest.WriteEscaped(w, http.StatusOK, answer)
		return nil
	}
}

func (s *Service) writeError(w http.ResponseWriter, r *http.Request, err error) {
	answer := s.failure(r, err)
	rest.RetryAfter(w, http.StatusOK, answer.Budget)
	rest.WriteEscaped(w, answer.Status, answer)
}

func (s *Service) failure(r *http.Request, err error) *rest.Error {
	var answer *rest.Error
	var refusal *log.Refusal
	switch {
	case errors.As(err, &answer):
	case rest.ExceededOf(err) != nil:
		exceeded := rest.ExceededOf(err)
		answer = rest.Fail(http.StatusTooManyRequests, rest.CodeBudget, "nothing was issued; come again when Retry-After says", "%v", exceeded)
		answer.Budget = exceeded
	case errors.As(err, &refusal):
		answer = rest.Refused(refusal)
	case errors.Is(err, log.ErrNoRoom):
		answer = rest.Fail(http.StatusInsufficientStorage, log.CodeNoRoom, "nothing was written; delete what is not needed, or give the servers' disks more room: rutter cluster status", "%v", err)
	default:
		answer = rest.Fail(http.StatusServiceUnavailable, rest.CodeUnknown, "look whether it was made, or send it again with the same Rutter-Change-Id, if it had one", "it is not known whether the change was made: %v", err)
	}
	id, _ := matrix.From(r.Context())
	s.cfg.Logger.Info("refused", "path", r.URL.Path, "identity", id.Actor(), "error", answer)
	return answer
}

// read decodes a request's JSON body.
func read(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = rest.DecodeStrict(body, into)
	}
	if err != nil { // the error must not repeat the body, which may be a token
		return errBody
	}
	return nil
}

// errBody does not repeat what was sent.
var errBody = rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "use a program of this version", "the body is not what is wanted here")

// write proposes operations, and waits until this server has applied them.
func (s *Service) write(r *http.Request, actor string, ops ...log.Op) (log.Result, error) {
	id, err := s.cfg.NewID()
	if err != nil {
		return log.Result{}, err
	}
	c := &log.Change{ID: id, Actor: actor, Ops: ops, Content: rest.ContentOf(r)}
	if text := r.Header.Get(rest.HeaderChangeID); text != "" {
		if c.ID, err = log.ParseUUID(text); err != nil {
			return log.Result{}, rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send a version 7 UUID", "the change id: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), writeTime)
	defer cancel()
	return s.propose(ctx, c)
}

func (s *Service) propose(ctx context.Context, c *log.Change) (log.Result, error) {
	result, err := s.cfg.Store.Propose(ctx, c)
	if err != nil {
		return result, err
	}
	if result.Refusal != nil {
		return result, result.Refusal
	}
	return result, s.cfg.Store.WaitSeq(ctx, result.Last)
}

func actor(r *http.Request) string {
	id, _ := matrix.From(r.Context())
	return id.Actor()
}

// list answers with all objects of a kind.
func list[T log.Object](s *Service, kind log.Kind) func(*http.Request) (any, error) {
	return func(*http.Request) (any, error) {
		all := []T{}
		s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
			for r := range state.List(kind) {
				all = append(all, r.Object.(T))
			}
		})
		return all, nil
	}
}

// Bundle is what a node needs to trust the servers.
type Bundle struct {
	Generation  uint64 `json:"generation"`
	Issuing     string `json:"issuing"`
	Authorities string `json:"authorities"` // PEM
}

func (s *Service) bundle(*http.Request) (any, error) { return s.bundleNow() }

func (s *Service) bundleNow() (*Bundle, error) {
	var a *log.Authority
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		if r, ok := state.Get(log.KindAuthority, pki.Clients); ok {
			a = r.Object.(*log.Authority)
		}
	})
	if a == nil { // not published yet: the cluster or this server was just started
		own := s.cfg.Authorities()
		i := slices.IndexFunc(own, func(a log.Authority) bool { return a.Name == pki.Clients })
		if i < 0 {
			return nil, errNoIssuer
		}
		a = &own[i]
	}
	certificates, err := Certificates(a)
	if err != nil {
		return nil, err
	}
	return &Bundle{Generation: a.Generation, Issuing: a.Issuing, Authorities: string(pki.EncodeCertificates(certificates...))}, nil
}

// Certificates reads those of a set of authorities.
func Certificates(a *log.Authority) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for i, text := range a.Certificates {
		c, err := pki.FromBase64(text)
		if err != nil {
			return nil, fmt.Errorf("authority %s, certificate %d: %w", a.Name, i, err)
		}
		all = append(all, c)
	}
	return all, nil
}
