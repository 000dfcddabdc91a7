package enrol

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
	"rutter/projections/rules"
)

var testCluster = log.UUID{7}

// memory is a log of one server, in memory.
type memory struct {
	mu     sync.Mutex
	state  *projections.State
	behind *projections.State // shown instead until Consistent is called
	seq    log.Seq
	now    func() time.Time
}

func (m *memory) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.Time = log.Time(m.now().UnixNano())
	events, result := rules.Decide(m.state, c)
	for _, e := range events {
		m.seq++
		if _, err := m.state.Apply(m.seq, e); err != nil {
			return result, err
		}
	}
	result.Last = m.seq
	return result, nil
}

func (m *memory) View(fn func(*projections.State, log.Cursor)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.behind != nil {
		fn(m.behind, log.Cursor{Cluster: testCluster})
		return
	}
	fn(m.state, log.Cursor{Cluster: testCluster, Seq: m.seq})
}

func (m *memory) Consistent(context.Context) (log.Seq, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.behind = nil
	return m.seq, nil
}

func (*memory) WaitSeq(context.Context, log.Seq) error { return nil }

// testService is a service with its authority and a clock that stands.
type testService struct {
	*Service
	t     *testing.T
	now   time.Time
	store *memory
}

func newTestService(t *testing.T) *testService {
	d := &testService{t: t, now: time.Now()}
	d.store = &memory{state: projections.NewState(), now: func() time.Time { return d.now }}
	authority, err := pki.NewAuthority(pki.Clients, d.now, pki.AuthorityLife, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	d.Service, err = New(Config{
		Store: d.store, Now: d.store.now, Leads: func() bool { return true },
		Issuer: func() (*pki.Authority, error) { return authority, nil },
		Authorities: func() []log.Authority {
			return []log.Authority{{Name: pki.Clients, Issuing: pki.CertificateKeyID(authority.Certificate), Certificates: []string{pki.Base64(authority.Certificate)}}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !d.seed(t.Context()) {
		t.Fatal("the authorities were not written")
	}
	return d
}

// ask asks as an identity, and returns the status.
func (d *testService) ask(id matrix.Identity, method, path string, form, into any) int {
	d.t.Helper()
	body, err := json.Marshal(form)
	if err != nil {
		d.t.Fatal(err)
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r.WithContext(matrix.With(r.Context(), id)))
	if into != nil && w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			d.t.Fatal(err)
		}
	}
	return w.Code
}

var (
	operator = matrix.Identity{Role: matrix.Operator, Name: "ada"}
	stranger = matrix.Identity{Role: matrix.Join, Name: "192.0.2.1"}
	node     = matrix.Identity{Role: matrix.CN, UUID: log.UUID{5}, Serial: "5f", KeyID: strings.Repeat("a1", 32)}
)

func (d *testService) token(life time.Duration) pki.Token {
	d.t.Helper()
	token, err := pki.NewToken(rand.Reader)
	if err != nil {
		d.t.Fatal(err)
	}
	form := TokenForm{UUID: token.ID, Hash: token.Hash(), CN: node.UUID, Expires: log.Time(d.now.Add(life).UnixNano())}
	if status := d.ask(operator, http.MethodPost, "/tokens", form, nil); status != http.StatusOK {
		d.t.Fatalf("a token was answered with %d", status)
	}
	return token
}

func request(t *testing.T) []byte {
	t.Helper()
	key, err := pki.NewKey()
	if err == nil {
		var der []byte
		if der, err = pki.NewRequest(key); err == nil {
			return der
		}
	}
	t.Fatal(err)
	return nil
}

// A token buys the node that it names a certificate: once, in time, for one key.
func TestJoin(t *testing.T) {
	d := newTestService(t)
	good, late := d.token(time.Hour), d.token(time.Minute)
	mine, other := request(t), request(t)
	join := func(token string, der []byte) (int, *Granted) {
		var g Granted
		return d.ask(stranger, http.MethodPost, "/join", JoinRequest{Token: token, Request: der}, &g), &g
	}
	unknown, err := pki.NewToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forged := good.ID.String() + unknown.Reveal()[36:]
	for name, token := range map[string]string{"of nobody": unknown.Reveal(), "of another secret": forged, "no token": "x", "empty": ""} {
		if status, _ := join(token, mine); status != http.StatusForbidden {
			t.Errorf("a token %s was answered with %d", name, status)
		}
	}
	if status, _ := join(good.Reveal(), []byte("x")); status != http.StatusUnprocessableEntity {
		t.Errorf("a bad request was answered with %d, and may not use up the token", status)
	}
	d.store.behind = projections.NewState() // the token was made through another server
	status, granted := join(good.Reveal(), mine)
	if status != http.StatusOK {
		t.Fatalf("a good token was answered with %d", status)
	}
	list, err := pki.ParseCertificates([]byte(granted.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := matrix.FromURIs(list[0].URIs, ""); err != nil || id.UUID != node.UUID || id.Role != matrix.CN {
		t.Errorf("the certificate is of %v, %v", id.Actor(), err)
	}
	if status, _ := join(good.Reveal(), mine); status != http.StatusOK {
		t.Errorf("the same key again was answered with %d: an answer can be lost", status)
	}
	if status, _ := join(good.Reveal(), other); status != http.StatusForbidden {
		t.Errorf("another key was answered with %d", status)
	}
	d.now = d.now.Add(2 * time.Minute)
	if status, _ := join(late.Reveal(), mine); status != http.StatusForbidden {
		t.Errorf("a token after its end was answered with %d", status)
	}
	var listed []TokenForm
	if status := d.ask(operator, http.MethodGet, "/tokens", nil, &listed); status != http.StatusOK || len(listed) != 2 || listed[0].Hash != "" {
		t.Errorf("listed %+v with %d, want two without their hashes", listed, status)
	}
}

// TestTokenAskedForAgain: a client that did not get the answer asks again, and the token is
// there; another that has its UUID only is refused, and so is a token that was used.
func TestTokenAskedForAgain(t *testing.T) {
	d := newTestService(t)
	token := d.token(time.Hour)
	form := TokenForm{UUID: token.ID, Hash: token.Hash(), CN: node.UUID, Expires: log.Time(d.now.Add(time.Hour).UnixNano())}
	again := func(what string, form TokenForm, want int) {
		t.Helper()
		if status := d.ask(operator, http.MethodPost, "/tokens", form, nil); status != want {
			t.Errorf("%s: %d, want %d", what, status, want)
		}
	}
	again("the same", form, http.StatusOK)
	for what, change := range map[string]func(*TokenForm){
		"another secret": func(f *TokenForm) { f.Hash = strings.Repeat("b2", 32) },
		"another node":   func(f *TokenForm) { f.CN = log.UUID{6} },
		"longer":         func(f *TokenForm) { f.Expires += log.Time(time.Second) },
	} {
		other := form
		change(&other)
		again(what, other, http.StatusUnprocessableEntity)
	}
	if status := d.ask(stranger, http.MethodPost, "/join", JoinRequest{Token: token.Reveal(), Request: request(t)}, nil); status != http.StatusOK {
		t.Fatalf("joining: %d", status)
	}
	again("used", form, http.StatusUnprocessableEntity)
}

// Each endpoint is only for the roles of its row.
func TestRoles(t *testing.T) {
	d := newTestService(t)
	reader := matrix.Identity{Role: matrix.Reader, Name: "bob"}
	for _, e := range d.rows() {
		method, path, _ := strings.Cut(e.route, " ")
		path = strings.NewReplacer("{id}", "x", "{name}", "clients").Replace(path)
		for _, id := range []matrix.Identity{operator, stranger, node, reader, {}} {
			want := e.roles == nil
			for _, role := range e.roles {
				want = want || role == id.Role
			}
			if status := d.ask(id, method, path, struct{}{}, nil); (status == http.StatusForbidden) == want && path != "/join" {
				t.Errorf("%s as %s: %d, want let in %v", e.route, id.Actor(), status, want)
			}
		}
	}
}

// A node renews for itself, whatever its request says; what has ended goes.
func TestRenewAndUpkeep(t *testing.T) {
	d := newTestService(t)
	var granted Granted
	if status := d.ask(node, http.MethodPost, "/renew", RenewRequest{Request: request(t)}, &granted); status != http.StatusOK {
		t.Fatalf("answered with %d", status)
	}
	d.token(time.Hour)
	if status := d.ask(operator, http.MethodPost, "/revocations", log.Revocation{Subject: pki.Subject(node)}, nil); status != http.StatusOK {
		t.Fatalf("a revocation was answered with %d", status)
	}
	if status := d.ask(operator, http.MethodPost, "/revocations", log.Revocation{Subject: pki.Subject(node), Reason: "again"}, nil); status != http.StatusOK {
		t.Errorf("a second one was answered with %d", status)
	}
	d.now = d.now.Add(pki.NodeLife + 48*time.Hour)
	d.token(time.Hour) // the log's time is that of its last change
	d.sweep(t.Context())
	d.store.View(func(s *projections.State, _ log.Cursor) {
		if c := s.Count(log.KindCertificate); c != 1 {
			t.Errorf("%d certificates, want the one that may be renewed", c)
		}
	})
	d.now = d.now.Add(pki.Grace)
	d.token(time.Hour)
	d.sweep(t.Context())
	d.store.View(func(s *projections.State, _ log.Cursor) {
		if c, tokens, r := s.Count(log.KindCertificate), s.Count(log.KindToken), s.Count(log.KindRevocation); c != 0 || tokens != 1 || r != 1 {
			t.Errorf("%d certificates, %d tokens, %d revocations; want 0, 1, 1", c, tokens, r)
		}
	})
	if _, err := New(Config{}); err == nil || errors.Is(err, errNoIssuer) {
		t.Errorf("a service without a store: %v", err)
	}
}

// W1: a compute node gets so many certificates and no more, however it asks; its
// token is not used up by a refusal, and other nodes have theirs.
func TestCertificatesAreBudgeted(t *testing.T) {
	d := newTestService(t)
	most := int(budget.Set(nil).Get(budget.CNCertificates).AtOnce)
	ask := request(t)
	for i := range most {
		if status := d.ask(node, http.MethodPost, "/renew", RenewRequest{Request: ask}, nil); status != http.StatusOK {
			t.Fatalf("certificate %d was answered with %d", i, status)
		}
	}
	if status := d.ask(node, http.MethodPost, "/renew", RenewRequest{Request: ask}, nil); status != http.StatusTooManyRequests {
		t.Errorf("one too many was answered with %d", status)
	}
	join := JoinRequest{Token: d.token(24 * time.Hour).Reveal(), Request: ask}
	if status := d.ask(stranger, http.MethodPost, "/join", join, nil); status != http.StatusTooManyRequests {
		t.Errorf("by a token it was answered with %d", status)
	}
	if status := d.ask(matrix.Identity{Role: matrix.CN, UUID: log.UUID{6}, Serial: "60", KeyID: strings.Repeat("a1", 32)}, http.MethodPost, "/renew", RenewRequest{Request: ask}, nil); status != http.StatusOK {
		t.Errorf("another node was answered with %d", status)
	}
	d.now = d.now.Add(2 * time.Hour)
	if status := d.ask(stranger, http.MethodPost, "/join", join, nil); status != http.StatusOK {
		t.Errorf("later, the token was answered with %d", status)
	}
}

// What is known not to be written is no unknown fate.
func TestNoRoomIsAnswered(t *testing.T) {
	d := newTestService(t)
	a := d.failure(httptest.NewRequest(http.MethodPost, "/tokens", nil), fmt.Errorf("%w: of three", log.ErrNoRoom))
	if a.Status != http.StatusInsufficientStorage || a.Code != log.CodeNoRoom {
		t.Errorf("%d %v", a.Status, a)
	}
}

// What is served and what the matrix has rows of is the same.
func TestMatrixHasEveryEndpoint(t *testing.T) {
	rows := make(map[string]bool)
	for _, row := range matrix.Surfaces() {
		if what, ok := strings.CutPrefix(row.What, "pki "); ok {
			rows[what] = true
		}
	}
	served := newTestService(t).Table().Endpoints()
	for _, e := range served {
		if !rows[e] {
			t.Errorf("%s has no row", e)
		}
	}
	if len(served) != len(rows) {
		t.Errorf("%d endpoints, %d rows", len(served), len(rows))
	}
}
