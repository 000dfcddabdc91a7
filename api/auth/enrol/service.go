package enrol

import (
	"context"
	"crypto"
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
	Life  time.Duration    // lifetime of a certificate; default pki.Life
	Now   func() time.Time // default time.Now
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
	if cfg.Leads == nil {
		cfg.Leads = func() bool { return false }
	}
	if cfg.Life == 0 {
		cfg.Life = pki.Life
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
	nodes     = []matrix.Role{matrix.CN}
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

// JoinRequest is the body of POST /join; RenewRequest that of POST /renew.
type JoinRequest struct {
	Token   string `json:"token"`
	Request []byte `json:"request"` // PKCS #10, DER
}

// RenewRequest asks for another certificate of the same identity.
type RenewRequest struct {
	Request []byte `json:"request"`
}

// Granted is the answer to both.
type Granted struct {
	Certificate string `json:"certificate"` // PEM
	Bundle
}

// errToken is the one answer for every wrong token, so that a guess reveals nothing.
var errToken = rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, "make another one: rutter token create", "the token is not good: unknown, of another secret, expired, or used by another machine")

func (s *Service) join(r *http.Request) (any, error) {
	var form JoinRequest
	if err := read(r, &form); err != nil {
		return nil, err
	}
	token, err := pki.ParseToken(form.Token)
	if err != nil {
		return nil, errToken
	}
	key, keyID, err := requestKey(form.Request)
	if err != nil {
		return nil, err
	}
	held, err := s.tokenOf(r, token.ID)
	if err != nil {
		return nil, err
	}
	if held == nil || !token.Opens(held.Hash) || !s.cfg.Now().Before(held.Expires.Std()) || held.UsedBy != "" && held.UsedBy != keyID {
		return nil, errToken
	}
	if _, err := s.cfg.Issuer(); err != nil {
		return nil, err // before the token is used up
	}
	id := matrix.Identity{Role: matrix.CN, UUID: held.CN}
	if err := s.certificates.Spend(id.Key(), 1); err != nil {
		return nil, err // before the token is used up
	}
	redeem := log.Op{
		Action: log.Update, Kind: log.KindToken, ID: held.UUID.String(), Set: []string{"used_by"}, Object: &log.Token{UsedBy: keyID},
	}
	if _, err := s.write(r, id.Actor(), redeem); err != nil {
		var refusal *log.Refusal
		if errors.As(err, &refusal) {
			return nil, errToken // another request was faster, or the token expired meanwhile
		}
		return nil, err
	}
	return s.grant(r, id, key)
}

// tokenOf returns a token of the log, or nil. If this server does not have it, it may
// have been created through another server a moment ago.
func (s *Service) tokenOf(r *http.Request, id log.UUID) (held *log.Token, err error) {
	look := func() {
		s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
			if rec, ok := state.Get(log.KindToken, id.String()); ok {
				held = rec.Object.(*log.Token)
			}
		})
	}
	if look(); held != nil {
		return held, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), writeTime)
	defer cancel()
	if _, err := s.cfg.Store.Consistent(ctx); err != nil {
		return nil, fmt.Errorf("whether the token is good cannot be said now: %w", err)
	}
	look()
	return held, nil
}

func (s *Service) renew(r *http.Request) (any, error) {
	var form RenewRequest
	if err := read(r, &form); err != nil {
		return nil, err
	}
	key, _, err := requestKey(form.Request)
	if err != nil {
		return nil, err
	}
	id, _ := matrix.From(r.Context())
	if err := s.certificates.Spend(id.Key(), 1); err != nil {
		return nil, err
	}
	return s.grant(r, id, key)
}

func requestKey(der []byte) (key crypto.PublicKey, id string, err error) {
	if key, err = pki.ParseRequest(der); err == nil {
		id, err = pki.KeyID(key)
	}
	if err != nil {
		return nil, "", rest.Fail(http.StatusUnprocessableEntity, log.CodeInvalidParameters, "send a PKCS #10 request for an ECDSA key on P-256", "%v", err)
	}
	return key, id, nil
}

// grant issues a certificate, and records it in the log before it answers.
func (s *Service) grant(r *http.Request, id matrix.Identity, key crypto.PublicKey) (any, error) {
	issuer, err := s.cfg.Issuer()
	if err != nil {
		return nil, err
	}
	certificate, err := issuer.Issue(pki.Order{Identity: id, Key: key, Life: s.cfg.Life}, s.cfg.Now(), s.cfg.Random)
	if err != nil {
		return nil, err
	}
	bundle, err := s.bundleNow()
	if err != nil {
		return nil, err
	}
	r.Header.Del(rest.HeaderChangeID) // that id belongs to the redeeming change
	if _, err := s.write(r, id.Actor(), Recording(certificate, id, pki.Clients, issuer.Certificate)); err != nil {
		return nil, err
	}
	return &Granted{Certificate: string(pki.EncodeCertificates(certificate)), Bundle: *bundle}, nil
}

// Recording returns the operation that records an issued certificate in the log.
func Recording(c *x509.Certificate, id matrix.Identity, authority string, issuer *x509.Certificate) log.Op {
	o := &log.Certificate{
		Serial: pki.Serial(c), Identity: pki.Subject(id), Authority: authority, Issuer: pki.CertificateKeyID(issuer), Key: pki.CertificateKeyID(c),
		NotBefore: log.Time(c.NotBefore.UnixNano()), NotAfter: log.Time(c.NotAfter.UnixNano()),
	}
	return log.Op{Action: log.Create, Kind: log.KindCertificate, Object: o, Set: log.FieldNames(log.KindCertificate)}
}
