package enrol

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/log"
	"rutter/projections"
)

// This file refuses what would lock out those without whom there is no way back, unless
// the request says that they are meant (yes). The log decides what its state shows, and
// whether servers that a change names are a quorum; here is what needs sessions and the
// certificate of the caller.

// maxNamed bounds the identities in a refusal.
const maxNamed = 10

// lockOut are the options of a change whose sender means whom it locks out.
func (s *Service) lockOut(yes bool) []log.Option {
	if yes && s.confined() {
		return []log.Option{log.OptionLockOut}
	}
	return nil
}

// current returns when this server has applied all that was acknowledged before.
func (s *Service) current(r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeTime)
	defer cancel()
	_, err := s.cfg.Store.Consistent(ctx)
	return err
}

// covers reports whether a revocation that is made now covers a certificate.
func covers(r *log.Revocation, serial, key, identity string) bool {
	return r.Subject == "serial:"+serial || r.Subject == "key:"+key || r.Subject == identity
}

// refusal is what is answered to a request that locks out.
func refusal(remedy, format string, args ...any) error {
	return &log.Refusal{Code: log.CodeInUse, Message: fmt.Sprintf(format, args...), Errors: []log.FieldError{{
		Field: "yes", Code: log.ElementMissing, Message: "those who would be locked out must be meant",
		Remedy: remedy + "; yes (--yes) does it all the same",
	}}}
}

// ownStays refuses a revocation of the caller's own certificate, unless it is meant.
func ownStays(r *http.Request, form *RevokeForm) error {
	who, _ := matrix.From(r.Context())
	if !form.Yes && who.Serial != "" && covers(&form.Revocation, who.Serial, who.KeyID, pki.Subject(who)) {
		return refusal("let another operator do it, or issue and use another certificate first", "%s would revoke the certificate that this request is made with", form.Subject)
	}
	return nil
}

func revocationsOf(state *projections.State) pki.Revocations {
	var all []*log.Revocation
	for r := range state.List(log.KindRevocation) {
		all = append(all, r.Object.(*log.Revocation))
	}
	return pki.NewRevocations(all)
}

// mayPublish refuses a set of authorities that leaves out one that is trusted now, while
// the caller, a server, or a compute node with a session has no recorded certificate of
// one that stays.
func (s *Service) mayPublish(r *http.Request, name string, certificates []*x509.Certificate) error {
	if err := s.current(r); err != nil {
		return err
	}
	stays := make(map[string]bool)
	for _, c := range certificates {
		stays[pki.CertificateKeyID(c)] = true
	}
	in := make(map[string]bool) // identities with a good certificate of an authority that stays
	leaves := false
	who, _ := matrix.From(r.Context())
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		leaves = leavesOut(state, name, stays)
		now, revoked := log.TimeOf(s.cfg.Now()), revocationsOf(state)
		for r := range state.List(log.KindCertificate) {
			c := r.Object.(*log.Certificate)
			if c.Authority == name && stays[c.Issuer] && now < c.NotAfter && revoked.CoversRecord(c) == "" {
				in[c.Identity] = true
			}
		}
	})
	if !leaves {
		return nil
	}
	var out []string
	for _, voter := range s.cfg.Voters() {
		out = append(out, "server:"+voter)
	}
	if name == pki.Clients {
		live, err := s.cfg.Live(r.Context())
		if err != nil {
			return fmt.Errorf("which compute nodes have a session is not known: %w", err)
		}
		for _, cn := range live {
			out = append(out, "cn:"+cn.String())
		}
		if who.Serial != "" && !stays[who.Issuer] {
			return refusal("issue and use another (rutter cert issue "+who.Role.String()+" NAME -s URL)",
				"the certificate that this request is made with is of an authority that does not stay: %s would be locked out", who.Actor())
		}
	}
	out = slices.DeleteFunc(out, func(id string) bool { return in[id] })
	if len(out) == 0 {
		return nil
	}
	slices.Sort(out)
	more := ""
	if n := len(out) - maxNamed; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return refusal("wait until they have renewed theirs; a compute node that is not in rutter cert list joins again (rutter token create), or is recorded (rutter cert record)",
		"without a certificate of the new authority are yet: %s%s", strings.Join(out[:min(len(out), maxNamed)], ", "), more)
}

// leavesOut reports whether an authority of a set that is trusted now does not stay.
func leavesOut(state *projections.State, name string, stays map[string]bool) bool {
	r, ok := state.Get(log.KindAuthority, name)
	if !ok {
		return false
	}
	now, err := Certificates(r.Object.(*log.Authority))
	return err == nil && slices.ContainsFunc(now, func(c *x509.Certificate) bool { return !stays[pki.CertificateKeyID(c)] })
}
