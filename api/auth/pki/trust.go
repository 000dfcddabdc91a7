package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// The reasons why a chain is refused. Each error of Verify wraps one of them.
var (
	ErrNone      = errors.New("pki: no certificate")
	ErrExpired   = errors.New("pki: the certificate has expired")
	ErrNotYet    = errors.New("pki: the certificate is not valid yet")
	ErrAuthority = errors.New("pki: the certificate is of an authority that is not trusted")
	ErrUsage     = errors.New("pki: the certificate is not for this use")
	ErrRole      = errors.New("pki: the certificate is of another role")
	ErrRevoked   = errors.New("pki: the certificate is revoked")
)

// Trust is a set of trusted authorities with the revocations.
type Trust struct {
	authorities []*x509.Certificate
	roots       *x509.CertPool
	revoked     Revocations
}

// NewTrust returns a Trust in these certificates. There must be at least one, and each
// must be of an authority.
func NewTrust(authorities []*x509.Certificate, revoked Revocations) (*Trust, error) {
	if len(authorities) == 0 {
		return nil, fmt.Errorf("%w: no authority is trusted", ErrAuthority)
	}
	t := &Trust{authorities: slices.Clone(authorities), roots: x509.NewCertPool(), revoked: revoked}
	for _, a := range authorities {
		if !a.IsCA || a.KeyUsage&x509.KeyUsageCertSign == 0 {
			return nil, fmt.Errorf("%w: %s cannot sign certificates", ErrAuthority, a.Subject)
		}
		t.roots.AddCert(a)
	}
	return t, nil
}

// Authorities returns the trusted authorities. Callers must not change them.
func (t *Trust) Authorities() []*x509.Certificate { return t.authorities }

// Roots returns the authorities as a pool, which callers must not change.
func (t *Trust) Roots() *x509.CertPool { return t.roots }

// With returns a Trust in the same authorities with other revocations.
func (t *Trust) With(revoked Revocations) *Trust {
	return &Trust{authorities: t.authorities, roots: t.roots, revoked: revoked}
}

// Verify checks the chain that the other side sent, leaf first, at a time, and returns
// its identity. usage is the role of the other side: client or server.
func (t *Trust) Verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (matrix.Identity, error) {
	if len(chain) == 0 {
		return matrix.Identity{}, ErrNone
	}
	leaf := chain[0]
	id, err := matrix.FromURIs(leaf.URIs, Serial(leaf))
	if err != nil {
		return matrix.Identity{}, fmt.Errorf("%w: %w", ErrRole, err)
	}
	id.KeyID = CertificateKeyID(leaf)
	_, afterErr := AfterOf(leaf)
	switch {
	case afterErr != nil:
		return id, fmt.Errorf("%w: %s", afterErr, id.Actor())
	case leaf.IsCA:
		return id, fmt.Errorf("%w: it is an authority's", ErrUsage)
	case now.Before(leaf.NotBefore):
		return id, fmt.Errorf("%w: %s begins at %s; is the clock right", ErrNotYet, id.Actor(), leaf.NotBefore)
	case now.After(leaf.NotAfter):
		return id, fmt.Errorf("%w: %s at %s", ErrExpired, id.Actor(), leaf.NotAfter)
	case !slices.Contains(leaf.ExtKeyUsage, usage):
		return id, fmt.Errorf("%w: %s", ErrUsage, id.Actor())
	}
	// Chains have one link: certificates behind the leaf are ignored.
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: t.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return id, fmt.Errorf("%w: %s: %w", ErrAuthority, id.Actor(), err)
	}
	id.Issuer = CertificateKeyID(chains[0][len(chains[0])-1])
	if why := t.revoked.Covers(leaf, id); why != "" {
		if t.revoked.byOrder(why) {
			why += "; if it was issued by hand after that, record it: rutter cert record"
		}
		return id, fmt.Errorf("%w: %s (%s)", ErrRevoked, id.Actor(), why)
	}
	return id, nil
}

// VerifyRenewal is Verify for a connection that only renews a certificate: that of a
// compute node may have ended, at most Grace ago. Then its role is matrix.Expired.
func (t *Trust) VerifyRenewal(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (matrix.Identity, error) {
	if len(chain) == 0 || !now.After(chain[0].NotAfter) {
		return t.Verify(chain, usage, now)
	}
	end := chain[0].NotAfter
	id, err := t.Verify(chain, usage, end)
	switch {
	case err != nil:
		return id, err
	case id.Role != matrix.CN:
		return id, fmt.Errorf("%w: %s at %s: only compute nodes renew by themselves; issue another (rutter cert issue)", ErrExpired, id.Actor(), end)
	case !now.Before(end.Add(Grace)):
		return id, fmt.Errorf("%w: %s at %s, more than %d days ago: join again (rutter token create, rutter agent join)", ErrExpired, id.Actor(), end, int(Grace.Hours())/24)
	}
	id.Role = matrix.Expired
	return id, nil
}

// Signed returns the key id of the trusted authority that signed a certificate,
// or "" if none of them did.
func (t *Trust) Signed(c *x509.Certificate) string {
	for _, a := range t.authorities {
		if c.CheckSignatureFrom(a) == nil {
			return CertificateKeyID(a)
		}
	}
	return ""
}

// Subject returns how log.Revocation and log.Certificate name an identity.
func Subject(id matrix.Identity) string {
	if id.Role == matrix.CN || id.Role == matrix.Expired {
		return "cn:" + id.UUID.String()
	}
	return id.Role.String() + ":" + id.Name
}

// Revocations are those of the log, indexed. The zero value revokes nothing. A value is
// immutable.
type Revocations struct {
	cluster  log.UUID // of the log; zero: unknown
	subjects map[string]*log.Revocation
}

// NewRevocations indexes the revocations of the log.
func NewRevocations(list []*log.Revocation) Revocations {
	r := Revocations{subjects: make(map[string]*log.Revocation, len(list))}
	for _, one := range list {
		r.subjects[one.Subject] = one
	}
	return r
}

// Covers returns the subject of the revocation that covers a certificate, or ""
// if it is good.
func (r Revocations) Covers(c *x509.Certificate, id matrix.Identity) string {
	return r.covers(c, Subject(id))
}

func (r Revocations) covers(c *x509.Certificate, identity string) string {
	if len(r.subjects) == 0 {
		return ""
	}
	for _, subject := range []string{"serial:" + Serial(c), "key:" + CertificateKeyID(c)} {
		if r.subjects[subject] != nil {
			return subject
		}
	}
	one := r.subjects[identity]
	if one == nil || !one.Covers(Serial(c), log.TimeOf(c.NotBefore)) {
		return ""
	}
	if a, err := AfterOf(c); err == nil && one.ByOrder && a.isAtOrAfter(r.named(one)) {
		return ""
	}
	return identity
}

// CoversRecord is Covers of a certificate as the log has it.
func (r Revocations) CoversRecord(c *log.Certificate) string {
	for _, subject := range []string{"serial:" + c.Serial, "key:" + c.Key} {
		if r.subjects[subject] != nil {
			return subject
		}
	}
	if one := r.subjects[c.Identity]; one != nil && one.Covers(c.Serial, c.NotBefore) {
		return one.Subject
	}
	return ""
}

// Names reports whether there is a revocation of a subject.
func (r Revocations) Names(subject string) bool { return r.subjects[subject] != nil }

func (r Revocations) byOrder(subject string) bool { return r.subjects[subject].ByOrder }

// Revocations returns what is revoked.
func (t *Trust) Revocations() Revocations { return t.revoked }
