package serve

import (
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/trust"
	"rutter/log"
	"rutter/projections"
)

// A server that has the authorities' keys signs its next certificates itself. It does not
// vouch for itself with them: a revoked one comes to none that others accept.
func TestOwnCertificateVouchesForNothing(t *testing.T) {
	office := tlsgate.Issuer{Folder: filepath.Join(t.TempDir(), "pki")}
	if err := office.Init(pki.AuthorityLife); err != nil {
		t.Fatal(err)
	}
	id, cluster := matrix.Identity{Role: matrix.Server, Name: "s2"}, log.UUID{7}
	first := &log.Revocation{Subject: "server:s2", Created: 100, IssuedBefore: 100, ByOrder: true}
	second := &log.Revocation{Subject: "server:s2", Created: 100, IssuedBefore: 101, ByOrder: true}
	of := func(list ...*log.Revocation) pki.Revocations { return pki.NewRevocations(list).In(cluster) }
	for name, c := range map[string]struct {
		has, want pki.After
		log       []*log.Revocation // nil: there is no log yet, at the start
	}{
		"at the start":  {of(first).After("server:s2"), of(first).After("server:s2"), nil},
		"revoked":       {pki.After{}, pki.After{}, []*log.Revocation{first}},
		"good":          {of(first).After("server:s2"), of(first).After("server:s2"), []*log.Revocation{first}},
		"revoked again": {of(first).After("server:s2"), of(first).After("server:s2"), []*log.Revocation{second}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "s2")
			if _, err := office.Issue(folder, tlsgate.Grant{Identity: id, WithKeys: true, After: c.has}); err != nil {
				t.Fatal(err)
			}
			s, err := openServerTLS(folder, "s2", "", time.Now, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if c.log != nil {
				state := projections.NewState()
				for i, r := range c.log {
					if err := state.Load(projections.Record{Object: r, Seq: log.Seq(i + 1)}); err != nil {
						t.Fatal(err)
					}
				}
				s.follower = &trust.Follower{View: func(fn func(*projections.State, log.UUID)) { fn(state, cluster) }}
			}
			for _, one := range s.identities() {
				next := signedBy(t, s, one)
				if after, err := pki.AfterOf(next); err != nil || after != c.want {
					t.Errorf("%s: the next one says %+v, %v; want %+v", one.name, after, err, c.want)
				}
				revoked := of(c.log...)
				if revoked.Covers(one.keeper.Leaf(), id) != "" && revoked.Covers(next, id) == "" {
					t.Errorf("%s: a revoked server made itself a certificate that is good", one.name)
				}
			}
		})
	}
}

func signedBy(t *testing.T, s *serverTLS, one ownIdentity) *x509.Certificate {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := s.signOwn(one, request)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
