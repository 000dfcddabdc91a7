package serve

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"rutter/api/auth/enrol"
	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/liveness"
	"rutter/cmd/rutter/storeapi"
	"rutter/log"
	"rutter/projections"
)

// ownIdentity is one of the two identities of a server, with the file of the keys that
// sign its certificates.
type ownIdentity struct {
	keeper  *tlsgate.Keeper
	paths   tlsgate.Paths
	keyFile string
	name    string // of the authorities
}

func (t *serverTLS) identities() []ownIdentity {
	return []ownIdentity{
		{t.clients, tlsgate.ClientPaths(t.folder), tlsgate.CAKeyFile, pki.Clients},
		{t.peers, tlsgate.PeerPaths(t.folder), tlsgate.PeerCAKeyFile, pki.Peers},
	}
}

// ownCertificates are those that were issued while the log could not be written: by
// serial, the one that was issued before, with the log, and that it follows from.
type ownCertificates struct {
	mu       sync.Mutex // protects replaced
	replaced map[string]*x509.Certificate
}

func (o *ownCertificates) put(c, replaces *x509.Certificate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.replaced == nil {
		o.replaced = make(map[string]*x509.Certificate)
	}
	if recorded := o.replaced[pki.Serial(replaces)]; recorded != nil {
		replaces = recorded
	}
	o.replaced[pki.Serial(c)] = replaces
}

func (o *ownCertificates) of(c *x509.Certificate) *x509.Certificate {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.replaced[pki.Serial(c)]
}

// renewEnded replaces certificates that ended while the server was off, at most
// pki.Grace ago, if it has the authorities' keys. Without it no server would let this one
// in, and servers that were all off could not write the log. The log gets the new ones as
// soon as it can be written; if this server is revoked, the others refuse both.
func (t *serverTLS) renewEnded() error {
	for _, one := range t.identities() {
		leaf, now := one.keeper.Leaf(), one.keeper.Now()
		if !now.After(leaf.NotAfter) {
			continue
		}
		by := fmt.Sprintf("issue another (rutter cert issue server %s --out FOLDER), and record it (rutter cert record FOLDER)", one.keeper.Identity().Name)
		if !now.Before(leaf.NotAfter.Add(pki.Grace)) {
			return fmt.Errorf("%w: %s: it ended at %s, more than %d days ago: %s", pki.ErrExpired, one.paths.Cert, leaf.NotAfter, int(pki.Grace.Hours())/24, by)
		}
		key, err := one.paths.NextKey()
		if err != nil {
			return err
		}
		request, err := pki.NewRequest(key)
		if err != nil {
			return err
		}
		c, _, err := t.signOwn(one, request)
		if err != nil {
			return fmt.Errorf("%w: %s: it ended at %s, and %w: %s", pki.ErrExpired, one.paths.Cert, leaf.NotAfter, err, by)
		}
		t.own.put(c, leaf)
		if err := errors.Join(one.paths.Install(c), one.keeper.Reload()); err != nil {
			return err
		}
		t.logger.Warn("the certificate had ended and was renewed", "authority", one.name, "ended", leaf.NotAfter, "until", c.NotAfter)
	}
	return nil
}

// signOwn signs this server's next certificate, with the names of the present one.
func (t *serverTLS) signOwn(one ownIdentity, request []byte) (*x509.Certificate, *pki.Authority, error) {
	issuer, err := t.issuer(one.keeper, one.keyFile)
	if err != nil {
		return nil, nil, err
	}
	key, err := pki.ParseRequest(request)
	if err != nil {
		return nil, nil, err
	}
	old, most := one.keeper.Leaf(), t.life
	if most == 0 {
		most = pki.NodeLife
	}
	hosts := append([]string{}, old.DNSNames...)
	for _, ip := range old.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	after, err := t.afterOwn(one.keeper.Identity(), old)
	if err != nil {
		return nil, nil, err
	}
	order := pki.Order{Identity: one.keeper.Identity(), Key: key, Life: min(old.NotAfter.Sub(pki.Issued(old)), most), Hosts: hosts, After: after}
	now := one.keeper.Now()
	if t.agreed != nil {
		now = t.agreed()
	}
	c, err := issuer.Issue(order, now, rand.Reader)
	return c, issuer, err
}

// afterOwn returns after which revocation of this server its next certificate is granted. A
// server that is revoked must not vouch for itself: what the present certificate says is
// copied, unless that is good by a newer revocation in this server's log. At the start there
// is no log yet.
func (t *serverTLS) afterOwn(id matrix.Identity, old *x509.Certificate) (after pki.After, err error) {
	if t.follower == nil {
		return pki.AfterOf(old)
	}
	t.follower.View(func(s *projections.State, cluster log.UUID) {
		var list []*log.Revocation
		for r := range s.List(log.KindRevocation) {
			list = append(list, r.Object.(*log.Revocation))
		}
		after, err = pki.NewRevocations(list).In(cluster).Successor(old, pki.Subject(id))
	})
	return after, err
}

// issueOwn signs this server's next certificate, and records it. When the present one has
// ended, or a wrong clock made it and it has not begun, and the log cannot be written, the
// next one is recorded later: servers that were cut off from each other for longer than their
// certificates live must find together again.
func (t *serverTLS) issueOwn(ctx context.Context, one ownIdentity, request []byte) (*x509.Certificate, error) {
	c, issuer, err := t.signOwn(one, request)
	if err != nil {
		return nil, err
	}
	old := one.keeper.Leaf()
	err = t.record(ctx, c, one.keeper.Identity(), one.name, issuer.Certificate, old)
	var refusal *log.Refusal
	if err != nil && !errors.As(err, &refusal) && one.keeper.Unusable() {
		t.own.put(c, old)
		return c, nil
	}
	return c, err
}

// recordTime bounds the record of one certificate.
const recordTime = 10 * time.Second

// record writes a certificate of this server into the log; replaces is the one by which
// it was asked for, nil if it was issued by hand.
func (t *serverTLS) record(ctx context.Context, c *x509.Certificate, id matrix.Identity, name string, issuer, replaces *x509.Certificate) error {
	changeID, err := t.newID()
	if err != nil {
		return err
	}
	op := enrol.Recording(c, id, name, issuer)
	confined := false
	t.follower.View(func(s *projections.State, _ log.UUID) { confined = s.Feature() >= log.FeatureConfined })
	if confined && replaces != nil {
		o := op.Object.(*log.Certificate)
		o.Replaces, o.ReplacesKey = pki.Serial(replaces), pki.CertificateKeyID(replaces)
	}
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	result, err := t.propose(ctx, &log.Change{ID: changeID, Actor: id.Actor(), Ops: []log.Op{op}})
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	return err
}

// recordEvery is the time between two looks at whether this server's certificates are
// recorded.
const recordEvery = time.Second

// recordOwn records the certificates that this server has and that are not in the log:
// those with which it was started, and those that were issued without the log.
func (t *serverTLS) recordOwn(ctx context.Context) error {
	done := make(map[string]string) // serials, by name of the authorities
	for ctx.Err() == nil {
		for _, one := range t.identities() {
			serial := pki.Serial(one.keeper.Leaf())
			if done[one.name] != serial && t.recorded(ctx, one) {
				done[one.name] = serial
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(recordEvery):
		}
	}
	return nil
}

func (t *serverTLS) recorded(ctx context.Context, one ownIdentity) (there bool) {
	leaf := one.keeper.Leaf()
	byHand := t.own.of(leaf) == nil
	if after, err := pki.AfterOf(leaf); byHand && (err != nil || !after.IsZero()) {
		return true // this server was revoked, and its log may be behind: only an operator's record makes it good
	}
	t.follower.View(func(s *projections.State, _ log.UUID) {
		_, there = s.Get(log.KindCertificate, pki.Serial(leaf))
		if r, ok := s.Get(log.KindRevocation, pki.Subject(one.keeper.Identity())); ok && byHand && r.Object.(*log.Revocation).ByOrder {
			there = true // only an operator's record makes it good
		}
	})
	if there {
		return true
	}
	for _, a := range one.keeper.Authorities() {
		if pki.CertificateKeyID(a) == one.keeper.SignedBy() {
			err := t.record(ctx, leaf, one.keeper.Identity(), one.name, a, t.own.of(leaf))
			var refusal *log.Refusal
			return err == nil || errors.As(err, &refusal)
		}
	}
	return true
}

// votersOf are the servers that vote.
func votersOf(store storeapi.Store) (ids []string) {
	for _, m := range store.Status().Members {
		if m.Voter {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// liveOf are the compute nodes that have a session with any server.
func liveOf(ctx context.Context, fabric *liveness.Fabric) (cns []log.UUID, err error) {
	known, err := fabric.List(ctx)
	for _, k := range known {
		if k.Alive && !k.Beats {
			cns = append(cns, k.CN)
		}
	}
	return cns, err
}
