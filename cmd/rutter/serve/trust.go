package serve

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"rutter/api"
	"rutter/api/auth/audit"
	"rutter/api/auth/enrol"
	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/liveness"
	"rutter/cmd/rutter/storeapi"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/trust"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
)

// serverTLS is the TLS of a server: nil if it has none.
type serverTLS struct {
	folder         string
	keys           keyFiles
	clients, peers *tlsgate.Keeper
	follower       *trust.Follower
	renewers       []*tlsgate.Renewer
	enrol          *enrol.Service
	logger         *slog.Logger
	life           time.Duration // of certificates that this server issues; 0: pki.NodeLife
	jitter         func() float64
	budgets        budget.Set // of what is issued
	own            ownCertificates
	compare        *authorityWatch
	propose        func(context.Context, *log.Change) (log.Result, error)
	newID          func() (log.UUID, error)
	agreed         func() time.Time // the time that the servers agree on; nil: not known yet
}

// openServerTLS reads the files of a server; now is its machine's clock.
func openServerTLS(folder, id, passphrase string, now func() time.Time, logger *slog.Logger) (*serverTLS, error) {
	t := &serverTLS{folder: folder, logger: logger, keys: keyFiles{passphrase: passphrase}}
	var err error
	if t.clients, err = tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(folder), Name: pki.Clients, Logger: logger, Now: now, Ended: true}); err != nil {
		return nil, err
	}
	if t.peers, err = tlsgate.New(tlsgate.Config{Paths: tlsgate.PeerPaths(folder), Name: pki.Peers, Logger: logger, Now: now, Ended: true}); err != nil {
		return nil, err
	}
	for _, k := range []*tlsgate.Keeper{t.clients, t.peers} {
		if who := k.Identity(); who.Role != matrix.Server || who.Name != id {
			return nil, fmt.Errorf("the certificates in %s are of %s, and this is server:%s: issue its own (rutter cert issue server %s)", folder, who.Actor(), id, id)
		}
	}
	if err := t.checkKeys(); err != nil {
		return nil, err
	}
	return t, t.renewEnded()
}

// checkKeys refuses keys of authorities that exist and cannot be used. Without this
// check, an operator would learn of it only when the first node tries to join.
func (t *serverTLS) checkKeys() error {
	for _, name := range []string{tlsgate.CAKeyFile, tlsgate.PeerCAKeyFile} {
		path := filepath.Join(t.folder, name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := t.keys.read(path); errors.Is(err, pki.ErrPassphrase) {
			return term.Usagef("%w (or the server goes without them: rutter cert issue --without-keys)", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// attach gives the log to the parts that need it, before they run.
func (t *serverTLS) attach(store storeapi.Store, fabric *liveness.Fabric) (err error) {
	t.propose, t.newID, t.agreed = store.Propose, store.NewID, store.Now
	view := func(fn func(*projections.State, log.UUID)) {
		store.View(func(s *projections.State, head log.Cursor) { fn(s, head.Cluster) })
	}
	t.follower = &trust.Follower{View: view, Keepers: map[string]*tlsgate.Keeper{pki.Clients: t.clients, pki.Peers: t.peers}, Logger: t.logger}
	t.enrol, err = enrol.New(enrol.Config{
		Store: store, Issuer: func() (*pki.Authority, error) { return t.issuer(t.clients, tlsgate.CAKeyFile) },
		Authorities: t.authorities, Logger: t.logger, Life: t.life, Budgets: t.budgets, Now: store.Now, NewID: store.NewID,
		Leads:  func() bool { s := store.Status(); return s.Leader == s.ID },
		Voters: func() []string { return votersOf(store) }, Live: func(ctx context.Context) ([]log.UUID, error) { return liveOf(ctx, fabric) },
	})
	if err != nil {
		return err
	}
	t.compare = &authorityWatch{peers: peersAdapter{store.Store}, own: t.trusted}
	for _, one := range t.identities() {
		r, err := tlsgate.NewRenewer(tlsgate.RenewConfig{
			Keeper: one.keeper, Jitter: t.jitter, Logger: t.logger,
			Ask: func(ctx context.Context, request []byte) (*x509.Certificate, error) {
				return t.issueOwn(ctx, one, request)
			},
		})
		if err != nil {
			return err
		}
		t.renewers = append(t.renewers, r)
	}
	return nil
}

// issuer returns the authority that signs now, with its key, if the operator has given
// that key to this server.
func (t *serverTLS) issuer(k *tlsgate.Keeper, keyFile string) (*pki.Authority, error) {
	keys, err := t.keys.read(filepath.Join(t.folder, keyFile))
	if err != nil {
		return nil, fmt.Errorf("this server cannot sign certificates: %w", err)
	}
	issuing := k.Issuing()
	for _, c := range k.Authorities() {
		if key, ok := pki.Pair(c, keys); ok && (issuing == "" || pki.CertificateKeyID(c) == issuing) {
			return &pki.Authority{Certificate: c, Key: key}, nil
		}
	}
	return nil, fmt.Errorf("this server cannot sign certificates: %s has not the key of the authority that signs now: copy it from the operator's folder", keyFile)
}

// authorities are the sets that the files trust.
func (t *serverTLS) authorities() []log.Authority {
	var all []log.Authority
	for name, k := range t.follower.Keepers {
		a := log.Authority{Name: name, Issuing: k.SignedBy()}
		for _, c := range k.Authorities() {
			a.Certificates = append(a.Certificates, pki.Base64(c))
		}
		all = append(all, a)
	}
	return all
}

// run renews certificates until ctx ends.
func (t *serverTLS) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.clients.Run(ctx) })
	g.Go(func() error { return t.peers.Run(ctx) })
	g.Go(func() error { return t.follower.Run(ctx) })
	g.Go(func() error { return t.enrol.Run(ctx) })
	g.Go(func() error { return t.recordOwn(ctx) })
	g.Go(func() error { return t.compare.run(ctx) })
	for _, r := range t.renewers {
		g.Go(func() error { return r.Run(ctx) })
	}
	return g.Wait()
}

// warnings are those of /readyz?verbose; t may be nil.
func (t *serverTLS) warnings(insecure []string) []string {
	var all []string
	for _, address := range insecure {
		all = append(all, "no TLS at "+address+" (--insecure): whoever reaches it can read and write the log")
	}
	if t != nil {
		all = append(append(append(all, t.clients.Warnings()...), t.peers.Warnings()...), t.compare.warnings()...)
	}
	return all
}

// apiPort says which clients the API accepts: a client without a certificate may only
// join. Failed handshakes are recorded.
func (s *Server) apiPort() tlsgate.Port {
	return tlsgate.Port{Name: "api", OrNone: true, Renewals: true, Failed: func(remote net.Addr, err error) {
		s.audit.Note(audit.Record{Event: audit.Handshake, Remote: remote.String(), Asked: "api", Why: err.Error()})
	}}
}

// dialCN connects to a compute node's admin address, and to no other node.
func (t *serverTLS) dialCN(ctx context.Context, network, address string, cn log.UUID) (net.Conn, error) {
	return t.clients.Dial(ctx, network, address, tlsgate.Node(matrix.Identity{Role: matrix.CN, UUID: cn}))
}

// mounted adds the API paths of TLS; t may be nil.
func (t *serverTLS) mounted(mounts []api.Mount) []api.Mount {
	if t == nil {
		return mounts
	}
	return append(mounts, api.Mount{Path: enrol.Path, Table: t.enrol.Table(), Strip: true})
}

// leaf returns what returns the certificate that is shown at the API; nil if t is nil.
func (t *serverTLS) leaf() func() *x509.Certificate {
	if t == nil {
		return nil
	}
	return t.clients.Leaf
}

// ending reports whether a certificate of this server, or an authority that it trusts, has
// ended or ends soon; t may be nil.
func (t *serverTLS) ending() bool {
	return t != nil && len(t.clients.Warnings())+len(t.peers.Warnings()) > 0
}

// meters count what this server issues.
func (t *serverTLS) meters() []*budget.Meter {
	if t == nil {
		return nil
	}
	return t.enrol.Meters()
}

// collectors are those of /metrics; t may be nil.
func (t *serverTLS) collectors() []prometheus.Collector {
	if t == nil {
		return nil
	}
	return []prometheus.Collector{tlsgate.Metrics{t.clients, t.peers}}
}

// plaintext lists the addresses of a server that other machines reach without TLS.
func plaintext(cfg Options) []string {
	if cfg.TLS != "" {
		return nil
	}
	var all []string
	for _, address := range []string{cfg.API, cfg.Store.Listen} {
		if host, _, err := net.SplitHostPort(address); err == nil && !term.IsLoopback(host) {
			all = append(all, address)
		}
	}
	return all
}

// svpWarnings say which clients are answered at an SVP address that other machines
// reach.
func svpWarnings(cfg Options) []string {
	host, _, err := net.SplitHostPort(cfg.SVP)
	if err != nil || term.IsLoopback(host) {
		return nil
	}
	if cfg.TLS == "" {
		return []string{"no TLS at " + cfg.SVP + " (--svp, --insecure): whoever reaches it is answered about every vnet"}
	}
	return []string{"no TLS at " + cfg.SVP + " (--svp): whoever has the underlay or admin address of a known node is answered about that node's vnets"}
}
