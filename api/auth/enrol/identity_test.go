package enrol

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/log"
	"rutter/projections"
)

// certificate asks for a certificate; nil: it was not granted.
func (d *testService) certificate(who matrix.Identity, path string, form any) (status int, c *x509.Certificate) {
	d.t.Helper()
	var g Granted
	if status = d.ask(who, http.MethodPost, path, form, &g); status != http.StatusOK {
		return status, nil
	}
	list, err := pki.ParseCertificates([]byte(g.Certificate))
	if err != nil {
		d.t.Fatal(err)
	}
	return status, list[0]
}

// granted asks for a certificate, and returns the identity of a connection with it.
func (d *testService) granted(who matrix.Identity, path string, form any) (status int, id matrix.Identity) {
	d.t.Helper()
	status, c := d.certificate(who, path, form)
	if c == nil {
		return status, id
	}
	return status, d.identity(c)
}

func (d *testService) identity(c *x509.Certificate) (id matrix.Identity) {
	d.t.Helper()
	var err error
	if id, err = matrix.FromURIs(c.URIs, pki.Serial(c)); err != nil {
		d.t.Fatal(err)
	}
	id.KeyID = pki.CertificateKeyID(c)
	return id
}

// isGood reports whether servers would accept a certificate.
func (d *testService) isGood(id matrix.Identity) (good bool) {
	d.store.View(func(s *projections.State, _ log.Cursor) {
		r, ok := s.Get(log.KindCertificate, id.Serial)
		good = ok && revocationsOf(s).CoversRecord(r.Object.(*log.Certificate)) == ""
	})
	return good
}

func (d *testService) revokeNode() {
	d.t.Helper()
	if status := d.ask(operator, http.MethodPost, "/revocations", RevokeForm{Revocation: log.Revocation{Subject: pki.Subject(node)}}, nil); status != http.StatusOK {
		d.t.Fatalf("a revocation was answered with %d", status)
	}
}

// K1: a stolen node that kept its token and its key does not undo its revocation with
// them, nor with another token that it took along, nor with a clock that is ahead.
func TestStolenNodeStaysOut(t *testing.T) {
	d := newTestService(t)
	used, open, key := d.token(24*time.Hour), d.token(24*time.Hour), request(t)
	d.now = d.now.Add(time.Hour) // the issuing server's clock is ahead
	status, stolen := d.granted(stranger, "/join", JoinRequest{Token: used.Reveal(), Request: key})
	if status != http.StatusOK {
		t.Fatalf("a good token was answered with %d", status)
	}
	d.now = d.now.Add(-time.Hour)
	d.revokeNode()
	var listed []TokenForm
	if d.ask(operator, http.MethodGet, "/tokens", nil, &listed); len(listed) != 2 || listed[0].Voided == 0 || listed[1].Voided == 0 {
		t.Errorf("an operator cannot see that the tokens are useless: %+v", listed)
	}
	if d.isGood(stolen) {
		t.Error("a certificate of before the revocation is good, because a clock was ahead")
	}
	for name, form := range map[string]JoinRequest{
		"the used token with its key": {Token: used.Reveal(), Request: key}, "the open token": {Token: open.Reveal(), Request: request(t)},
	} {
		if status, id := d.granted(stranger, "/join", form); status != http.StatusForbidden {
			t.Errorf("%s was answered with %d; the certificate is good: %v", name, status, d.isGood(id))
		}
	}
	again := d.token(24 * time.Hour)
	d.now = d.now.Add(-time.Hour) // and this one's is behind
	status, id := d.granted(stranger, "/join", JoinRequest{Token: again.Reveal(), Request: request(t)})
	if status != http.StatusOK || !d.isGood(id) {
		t.Errorf("a token of after the revocation was answered with %d; the certificate is good: %v", status, d.isGood(id))
	}
}

// K2: a server that does not know of the revocation yet issues nothing for a revoked
// certificate: the log decides, also about a request that was on its way.
func TestRevokedIsNotRenewedByAServerBehind(t *testing.T) {
	d := newTestService(t)
	_, held := d.granted(stranger, "/join", JoinRequest{Token: d.token(time.Hour).Reveal(), Request: request(t)})
	if status, id := d.granted(held, "/renew", RenewRequest{Request: request(t)}); status != http.StatusOK || !d.isGood(id) {
		t.Fatalf("a good certificate: %d", status)
	}
	behind := projections.NewState()
	for _, kind := range log.Kinds() {
		for r := range d.store.state.List(kind) {
			if err := behind.Load(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.revokeNode()
	d.store.behind = behind
	for _, role := range []matrix.Role{matrix.CN, matrix.Expired} {
		held.Role = role
		if status, id := d.granted(held, "/renew", RenewRequest{Request: request(t)}); status != http.StatusForbidden {
			t.Errorf("as %s it was answered with %d; the certificate is good: %v", role, status, d.isGood(id))
		}
	}
}

// here are the revocations as this server's log has them, without what is listed as good since:
// so those who were away have them.
func (d *testService) here() pki.Revocations {
	var all []*log.Revocation
	d.store.View(func(s *projections.State, _ log.Cursor) {
		for r := range s.List(log.KindRevocation) {
			one := log.Clone(r.Object).(*log.Revocation)
			one.Good = nil
			all = append(all, one)
		}
	})
	return pki.NewRevocations(all).In(testCluster)
}

// A certificate says after which revocation it was granted, so that also those accept it who
// do not have its record; a revocation that is made again, in the same moment, covers it.
func TestGrantsNameTheRevocation(t *testing.T) {
	d := newTestService(t)
	form := func() RenewRequest { return RenewRequest{Request: request(t)} }
	_, first := d.certificate(stranger, "/join", JoinRequest{Token: d.token(time.Hour).Reveal(), Request: request(t)})
	if after, err := pki.AfterOf(first); err != nil || !after.IsZero() {
		t.Fatalf("never revoked, and granted after %+v, %v", after, err)
	}
	before := d.here()
	var last pki.After
	for i := range 3 {
		d.revokeNode()
		if i == 1 {
			d.now = d.now.Add(-time.Hour) // the log's time stands
		}
		_, joined := d.certificate(stranger, "/join", JoinRequest{Token: d.token(2 * time.Hour).Reveal(), Request: request(t)})
		_, renewed := d.certificate(d.identity(joined), "/renew", form())
		after, err := pki.AfterOf(renewed)
		if err != nil || after.Cluster != testCluster || after.IssuedBefore <= last.IssuedBefore {
			t.Errorf("revocation %d: granted after %+v, %v; the one before was %+v", i, after, err, last)
		}
		last = after
		for name, c := range map[string]*x509.Certificate{"by a token": joined, "renewed": renewed} {
			if why := d.here().Covers(c, node); why != "" {
				t.Errorf("revocation %d: those who do not have its record refuse the certificate %s: %s", i, name, why)
			}
			if why := before.Covers(c, node); why != "" {
				t.Errorf("revocation %d: those who do not know of it refuse the certificate %s: %s", i, name, why)
			}
		}
		if i > 0 && d.here().Covers(first, node) == "" {
			t.Errorf("revocation %d does not cover the certificate of before it", i)
		}
		before, first = d.here(), renewed
	}
}

// What a server grants that does not know of the newest revocation says so: it names the one
// that it knows, and those who know more refuse the certificate.
func TestGrantOfAServerBehind(t *testing.T) {
	d := newTestService(t)
	d.revokeNode()
	behind := projections.NewState()
	for _, kind := range log.Kinds() {
		for r := range d.store.state.List(kind) {
			if err := behind.Load(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.revokeNode()
	now := d.here()
	d.store.behind = behind
	old, newest := d.after(node), now.After(pki.Subject(node))
	if old.IsZero() || old.IssuedBefore >= newest.IssuedBefore {
		t.Errorf("a server behind grants after %+v; the newest is %+v", old, newest)
	}
	issuer, err := d.cfg.Issuer()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c, err := issuer.Issue(pki.Order{Identity: node, Key: key.Public(), Life: pki.NodeLife, After: old}, d.now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if now.Covers(c, node) == "" {
		t.Error("those who know of the newest revocation accept what was granted before it")
	}
}

// lockOutService is one with three servers whose certificates are recorded, and two
// authorities of which the second signs.
func lockOutService(t *testing.T, live ...log.UUID) (d *testService, next *pki.Authority) {
	d = newTestService(t)
	d.cfg.Voters = func() []string { return []string{"s1", "s2", "s3"} }
	d.cfg.Live = func(context.Context) ([]log.UUID, error) { return live, nil }
	next, err := pki.NewAuthority(pki.Clients, d.now, pki.AuthorityLife, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range d.cfg.Voters() {
		id := matrix.Identity{Role: matrix.Server, Name: name}
		d.record(id, pki.Peers, next)
		d.record(id, pki.Clients, next)
	}
	return d, next
}

// record issues a certificate by hand and records it.
func (d *testService) record(id matrix.Identity, set string, by *pki.Authority) matrix.Identity {
	d.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		d.t.Fatal(err)
	}
	c, err := by.Issue(pki.Order{Identity: id, Key: key.Public(), Life: pki.NodeLife}, d.now, rand.Reader)
	if err != nil {
		d.t.Fatal(err)
	}
	if status := d.ask(operator, http.MethodPost, "/certificates", Recording(c, id, set, by.Certificate).Object, nil); status != http.StatusOK {
		d.t.Fatalf("a record was answered with %d", status)
	}
	id.Serial, id.KeyID, id.Issuer = pki.Serial(c), pki.CertificateKeyID(c), pki.CertificateKeyID(by.Certificate)
	return id
}

// K4: a revocation that ends the quorum, or the caller's own way in, is refused with what
// to do first, unless it is meant.
func TestRevocationLeavesAQuorumAndTheCaller(t *testing.T) {
	d, next := lockOutService(t)
	ada := d.record(operator, pki.Clients, next)
	revoke := func(subject string, yes bool) int {
		return d.ask(ada, http.MethodPost, "/revocations", RevokeForm{Revocation: log.Revocation{Subject: subject}, Yes: yes}, nil)
	}
	for _, c := range []struct {
		subject string
		yes     bool
		want    int
	}{
		{"operator:ada", false, http.StatusUnprocessableEntity},
		{"serial:" + ada.Serial, false, http.StatusUnprocessableEntity},
		{"key:" + ada.KeyID, false, http.StatusUnprocessableEntity},
		{"server:s1", false, http.StatusOK},
		{"server:s1", false, http.StatusOK}, // again
		{"server:s2", false, http.StatusUnprocessableEntity},
		{"server:s9", false, http.StatusOK}, // it is no member
		{"server:s2", true, http.StatusOK},
		{"operator:ada", true, http.StatusOK},
	} {
		if got := revoke(c.subject, c.yes); got != c.want {
			t.Errorf("%s, yes %v: %d, want %d", c.subject, c.yes, got, c.want)
		}
	}
}

// K4: an authority stays trusted while a compute node that is connected, and of which a
// restored log has no certificate, would have no way in.
func TestRotationLeavesALiveNodeAWayIn(t *testing.T) {
	stray := log.UUID{77}
	d, next := lockOutService(t, stray)
	ada := d.record(operator, pki.Clients, next)
	var first []log.Authority
	if status := d.ask(operator, http.MethodGet, "/authorities", nil, &first); status != http.StatusOK || len(first) != 1 {
		t.Fatalf("%d authorities, %d", len(first), status)
	}
	both := PublishForm{Issuing: pki.CertificateKeyID(next.Certificate), Certificates: []string{pki.Base64(next.Certificate), first[0].Certificates[0]}}
	finish := PublishForm{Issuing: both.Issuing, Certificates: both.Certificates[:1]}
	put := func(who matrix.Identity, form PublishForm) int {
		return d.ask(who, http.MethodPut, "/authorities/"+pki.Clients, form, nil)
	}
	if status := put(ada, both); status != http.StatusOK {
		t.Fatalf("two authorities: %d", status)
	}
	old := ada
	old.Issuer = first[0].Issuing
	if status := put(old, finish); status != http.StatusUnprocessableEntity {
		t.Errorf("by an operator whose own certificate is of the old authority: %d, want refused", status)
	}
	if status := put(ada, finish); status != http.StatusUnprocessableEntity {
		t.Errorf("with a live node that is not recorded: %d, want refused", status)
	}
	d.record(matrix.Identity{Role: matrix.CN, UUID: stray}, pki.Clients, next)
	if status := put(ada, finish); status != http.StatusOK {
		t.Errorf("with all recorded: %d", status)
	}
	// Who means it goes on without asking.
	d, next = lockOutService(t, stray)
	both.Certificates[0], both.Issuing = pki.Base64(next.Certificate), pki.CertificateKeyID(next.Certificate)
	put(operator, both)
	if status := put(operator, PublishForm{Issuing: both.Issuing, Certificates: both.Certificates[:1], Yes: true}); status != http.StatusOK {
		t.Errorf("who means it: %d", status)
	}
}

// K4: no answer repeats more identities than a person reads.
func TestRefusalsAreShort(t *testing.T) {
	live := make([]log.UUID, 50)
	for i := range live {
		live[i] = log.UUID{1, byte(i)}
	}
	d, next := lockOutService(t, live...)
	var first []log.Authority
	d.ask(operator, http.MethodGet, "/authorities", nil, &first)
	both := []string{pki.Base64(next.Certificate), first[0].Certificates[0]}
	d.ask(operator, http.MethodPut, "/authorities/clients", PublishForm{Issuing: pki.CertificateKeyID(next.Certificate), Certificates: both}, nil)
	onlyNext, err := Certificates(&log.Authority{Certificates: both[:1]})
	if err != nil {
		t.Fatal(err)
	}
	r := (&http.Request{Header: http.Header{}}).WithContext(matrix.With(t.Context(), operator))
	if err := d.mayPublish(r, pki.Clients, onlyNext); err == nil || !strings.Contains(err.Error(), "and 40 more") {
		t.Errorf("got %v", err)
	}
}
