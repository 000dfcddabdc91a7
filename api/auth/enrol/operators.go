package enrol

import (
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// TokenForm is the body of POST /tokens, and an element of GET /tokens. It has no hash:
// only the log has it.
type TokenForm struct {
	UUID    log.UUID `json:"uuid"`
	Hash    string   `json:"hash,omitempty"`
	CN      log.UUID `json:"cn_uuid"`
	Created log.Time `json:"created,omitzero"`
	Expires log.Time `json:"expires"`
	UsedBy  string   `json:"used_by,omitempty"`
	Used    log.Time `json:"used,omitzero"`
	// Voided is when a revocation made it useless.
	Voided log.Time `json:"voided,omitzero"`
}

func (s *Service) listTokens(*http.Request) (any, error) {
	all := []TokenForm{}
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		for r := range state.List(log.KindToken) {
			t := r.Object.(*log.Token)
			all = append(all, TokenForm{UUID: t.UUID, CN: t.CN, Created: t.Created, Expires: t.Expires, UsedBy: t.UsedBy, Used: t.Used, Voided: t.Voided})
		}
	})
	return all, nil
}

// createdToken is the answer to POST /tokens, with what the joining machine needs to
// recognise the servers.
type createdToken struct {
	UUID   log.UUID `json:"uuid"`
	CAHash string   `json:"ca_hash"`
}

func (s *Service) createToken(r *http.Request) (any, error) {
	var form TokenForm
	if err := read(r, &form); err != nil {
		return nil, err
	}
	issuer, err := s.cfg.Issuer()
	if err != nil {
		return nil, err
	}
	if id, _ := matrix.From(r.Context()); id.Role != matrix.Local {
		if err := s.tokens.Spend(id.Key(), 1); err != nil {
			return nil, err
		}
	}
	o := &log.Token{UUID: form.UUID, Hash: form.Hash, CN: form.CN, Expires: form.Expires}
	_, err = s.write(r, actor(r), log.Op{Action: log.Create, Kind: log.KindToken, Object: o, Set: []string{"cn_uuid", "expires", "hash", "uuid"}})
	if err != nil && !s.isMade(r, o, err) {
		return nil, err
	}
	return createdToken{form.UUID, pki.CAHash(issuer.Certificate)}, nil
}

// isMade reports whether a refused token is there, with all that is asked for: the client
// asks again if it did not get the answer, as when the leader changed meanwhile, and only the
// one who made the token knows its UUID and its hash.
func (s *Service) isMade(r *http.Request, o *log.Token, err error) bool {
	var refusal *log.Refusal
	if !errors.As(err, &refusal) {
		return false
	}
	held, err := s.tokenOf(r, o.UUID)
	return err == nil && held != nil && held.Hash == o.Hash && held.CN == o.CN && held.Expires == o.Expires && held.UsedBy == "" && held.Voided == 0
}

func (s *Service) deleteToken(r *http.Request) (any, error) {
	_, err := s.write(r, actor(r), log.Op{Action: log.Delete, Kind: log.KindToken, ID: r.PathValue("id")})
	return struct{}{}, err
}

// RevokeForm is the body of POST /revocations.
type RevokeForm struct {
	log.Revocation
	// Yes: those who lose their last way in by it are meant.
	Yes bool `json:"yes,omitempty"`
}

// revoke writes a revocation, or extends an existing one.
func (s *Service) revoke(r *http.Request) (any, error) {
	var form RevokeForm
	if err := read(r, &form); err != nil {
		return nil, err
	}
	if err := ownStays(r, &form); err != nil {
		return nil, err
	}
	if err := s.current(r); err != nil {
		return nil, err
	}
	o := &log.Revocation{Subject: form.Subject, Identity: form.Identity, Until: form.Until, Reason: form.Reason}
	op := log.Op{Action: log.Create, Kind: log.KindRevocation, Object: o, Set: []string{"identity", "reason", "subject", "until"}}
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		held, ok := state.Get(log.KindRevocation, form.Subject)
		if !ok {
			return
		}
		op = log.Op{Action: log.Update, Kind: log.KindRevocation, ID: form.Subject, Set: []string{"reason", "until"}, Object: o}
		if !strings.HasPrefix(form.Subject, "serial:") && !strings.HasPrefix(form.Subject, "key:") {
			// Not before the one that is there: the log's time may stand, or was set back.
			o.IssuedBefore = max(state.Time(), log.Time(s.cfg.Now().UnixNano()), held.Object.(*log.Revocation).IssuedBefore)
			op.Set = append([]string{"issued_before"}, op.Set...)
		}
	})
	if s.confined() { // the log decides whether those who are left are a quorum
		o.Voters, op.Set = s.cfg.Voters(), append(op.Set, "voters")
	}
	op.Options = s.lockOut(form.Yes)
	if _, err := s.write(r, actor(r), op); err != nil {
		return nil, err
	}
	s.cfg.Logger.Warn("revoked", "subject", form.Subject, "by", actor(r), "reason", form.Reason)
	return struct{}{}, nil
}

// record writes a certificate that was issued by hand into the log.
func (s *Service) record(r *http.Request) (any, error) {
	var o log.Certificate
	if err := read(r, &o); err != nil {
		return nil, err
	}
	_, err := s.write(r, actor(r), log.Op{Action: log.Create, Kind: log.KindCertificate, Object: &o, Set: log.FieldNames(log.KindCertificate)})
	return struct{}{}, err
}

// PublishForm is the body of PUT /authorities/NAME.
type PublishForm struct {
	Issuing      string   `json:"issuing"`
	Certificates []string `json:"certificates"` // base64 of DER
	// Generation, if not 0, is the generation that this publication must follow.
	Generation uint64 `json:"generation"`
	// Yes: those who lose their last way in by it are meant.
	Yes bool `json:"yes,omitempty"`
}

func (s *Service) publish(r *http.Request) (any, error) {
	var form PublishForm
	if err := read(r, &form); err != nil {
		return nil, err
	}
	o := &log.Authority{Name: r.PathValue("name"), Issuing: form.Issuing, Certificates: form.Certificates}
	certificates, err := Certificates(o)
	if err == nil {
		_, err = pki.NewTrust(certificates, pki.Revocations{})
	}
	if err == nil && !slices.ContainsFunc(certificates, func(c *x509.Certificate) bool { return pki.CertificateKeyID(c) == form.Issuing }) {
		err = errors.New("the issuing authority is not among the certificates")
	}
	if err != nil {
		return nil, rest.Fail(http.StatusUnprocessableEntity, log.CodeInvalidParameters, "let rutter cert rotate do it", "%v", err)
	}
	if !form.Yes {
		if err := s.mayPublish(r, o.Name, certificates); err != nil {
			return nil, err
		}
	}
	op := log.Op{Action: log.Create, Kind: log.KindAuthority, Object: o, Set: []string{"certificates", "issuing", "name"}}
	moved := false
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindAuthority, o.Name); ok {
			op = log.Op{Action: log.Update, Kind: log.KindAuthority, ID: o.Name, IfMatch: rec.Revision, IfSeq: rec.Seq, Set: []string{"certificates", "issuing"}, Object: o}
			moved = form.Generation != 0 && form.Generation != rec.Object.(*log.Authority).Generation
		}
	})
	op.Options = s.lockOut(form.Yes)
	if moved {
		return nil, rest.Fail(http.StatusPreconditionFailed, log.CodePreconditionFailed, "look at it again: rutter cert show --authorities", "the authorities were changed by somebody else meanwhile")
	}
	if _, err := s.write(r, actor(r), op); err != nil {
		return nil, err
	}
	s.cfg.Logger.Warn("authorities published", "authority", o.Name, "by", actor(r), "trusted", len(certificates), "issuing", form.Issuing)
	return struct{}{}, nil
}
