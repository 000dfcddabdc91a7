package enrol

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

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
var errToken = rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, "make another one: rutter token create", "the token is not good: unknown, of another secret, expired, used by another machine, or made useless by a revocation")

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
	if held == nil || held.Voided != 0 || !token.Opens(held.Hash) || !s.cfg.Now().Before(held.Expires.Std()) || held.UsedBy != "" && held.UsedBy != keyID {
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
	if s.confined() {
		granted, err := s.grant(r, grant{id: id, key: key, token: held.UUID, first: []log.Op{redeem}})
		return granted, asToken(err)
	}
	if _, err := s.write(r, id.Actor(), redeem); err != nil {
		return nil, asToken(err)
	}
	return s.grant(r, grant{id: id, key: key})
}

// asToken returns errToken for a refusal in the log's order: another request was faster,
// or the token expired or was made useless meanwhile.
func asToken(err error) error {
	var refusal *log.Refusal
	if errors.As(err, &refusal) {
		return errToken
	}
	return err
}

// confined reports whether log.FeatureConfined holds here. The log decides what is sent
// by a server that does not know so yet.
func (s *Service) confined() (is bool) {
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { is = state.Feature() >= log.FeatureConfined })
	return is
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
	old, _ := matrix.From(r.Context())
	id := matrix.Identity{Role: matrix.CN, UUID: old.UUID} // its certificate may have ended
	if err := s.certificates.Spend(id.Key(), 1); err != nil {
		return nil, err
	}
	g := grant{id: id, key: key}
	if s.confined() {
		g.replaces, g.replacesKey = old.Serial, old.KeyID
	}
	return s.grant(r, g)
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

// grant is a certificate to be issued, and what it follows from.
type grant struct {
	id  matrix.Identity
	key crypto.PublicKey
	// token bought it; or replaces, a serial, asked for it with the key replacesKey.
	token                 log.UUID
	replaces, replacesKey string
	first                 []log.Op // decided before its record, in the same change
}

// grant issues a certificate, and records it in the log before it answers. The log
// decides by its order whether what the certificate follows from is good.
func (s *Service) grant(r *http.Request, g grant) (any, error) {
	issuer, err := s.cfg.Issuer()
	if err != nil {
		return nil, err
	}
	order := pki.Order{Identity: g.id, Key: g.key, Life: s.cfg.Life, After: s.after(g.id)}
	certificate, err := issuer.Issue(order, s.cfg.Now(), s.cfg.Random)
	if err != nil {
		return nil, err
	}
	bundle, err := s.bundleNow()
	if err != nil {
		return nil, err
	}
	// Each try makes another certificate, so that the answer to an earlier one is of no
	// use: the client's change id is not of this change.
	r.Header.Del(rest.HeaderChangeID)
	record := Recording(certificate, g.id, pki.Clients, issuer.Certificate)
	o := record.Object.(*log.Certificate)
	o.Token, o.Replaces, o.ReplacesKey = g.token, g.replaces, g.replacesKey
	if _, err := s.write(r, g.id.Actor(), append(g.first, record)...); err != nil {
		return nil, err
	}
	return &Granted{Certificate: string(pki.EncodeCertificates(certificate)), Bundle: *bundle}, nil
}

// after returns the newest revocation of an identity that this server knows. If the log has
// a newer one, it refuses the grant, or those who know that one do not accept the certificate
// by this.
func (s *Service) after(id matrix.Identity) (after pki.After) {
	s.cfg.Store.View(func(state *projections.State, head log.Cursor) {
		if r, ok := state.Get(log.KindRevocation, pki.Subject(id)); ok {
			after = pki.NewRevocations([]*log.Revocation{r.Object.(*log.Revocation)}).In(head.Cluster).After(pki.Subject(id))
		}
	})
	return after
}

// Recording returns the operation that records an issued certificate in the log.
func Recording(c *x509.Certificate, id matrix.Identity, authority string, issuer *x509.Certificate) log.Op {
	o := &log.Certificate{
		Serial: pki.Serial(c), Identity: pki.Subject(id), Authority: authority, Issuer: pki.CertificateKeyID(issuer), Key: pki.CertificateKeyID(c),
		NotBefore: log.Time(c.NotBefore.UnixNano()), NotAfter: log.Time(c.NotAfter.UnixNano()),
	}
	return log.Op{Action: log.Create, Kind: log.KindCertificate, Object: o, Set: log.FieldNames(log.KindCertificate)}
}
