package tlsgate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
)

// Times of a Keeper.
const (
	lookEvery  = time.Second      // for changes of the files
	sweepEvery = 10 * time.Second // for connections whose certificate has ended
	// warnBefore is how long before the end of a certificate Warnings lists it. A
	// certificate with a short lifetime is listed in its last third, which renewal
	// normally prevents.
	warnBefore = 30 * 24 * time.Hour
)

// Config configures a Keeper. Paths are required.
type Config struct {
	Paths
	// Name of the authorities in messages: pki.Clients or pki.Peers.
	Name   string
	Logger *slog.Logger // none if nil
	// Now is the machine's clock, by which certificates begin and end; time.Now if nil.
	Now func() time.Time
	// Ended: New accepts a certificate that has ended, for processes that continue
	// without servers until they get another.
	Ended bool
}

// held is what a Keeper has in use. It is replaced, never changed.
type held struct {
	certificate tls.Certificate
	identity    matrix.Identity
	trust       *pki.Trust
	issuing     string // the key id of the authority that signs now; "" if unknown
}

// Keeper keeps an identity and a trust. See the package comment.
type Keeper struct {
	cfg   Config // immutable
	held  atomic.Pointer[held]
	stats stats

	mu      sync.Mutex // protects what follows, and the replacing of held
	looked  time.Time
	stamps  [3]stamp
	failing bool // the files have changed and cannot be used
	conns   map[*Conn]struct{}
	changed chan struct{} // closed when held is replaced
	trusted time.Time     // when the authorities were last changed by Trust
}

// stamp identifies a version of a file.
type stamp struct {
	time time.Time
	size int64
}

// New reads the files. A defect is an error here. Later, if the files become unusable,
// the last good ones stay in use.
func New(cfg Config) (*Keeper, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	k := &Keeper{cfg: cfg, conns: make(map[*Conn]struct{}), changed: make(chan struct{})}
	h, err := k.read(&held{})
	if err != nil {
		return nil, err
	}
	k.held.Store(h)
	k.stamps, k.looked = k.stamp(), cfg.Now()
	if at := cfg.Now(); at.After(h.certificate.Leaf.NotAfter) && !cfg.Ended {
		return nil, fmt.Errorf("%w: %s: %s at %s: get another (rutter cert issue, or rutter agent join)", pki.ErrExpired, cfg.Cert, h.identity.Actor(), h.certificate.Leaf.NotAfter)
	}
	return k, nil
}

// read reads the files, and keeps from old what is not in them.
func (k *Keeper) read(old *held) (*held, error) {
	certificate, authorities, err := k.cfg.load()
	if err != nil {
		return nil, err
	}
	var revoked pki.Revocations
	if old.trust != nil {
		revoked = old.trust.Revocations()
	}
	trust, err := pki.NewTrust(authorities, revoked)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, k.cfg.CA, err)
	}
	id, err := matrix.FromURIs(certificate.Leaf.URIs, pki.Serial(certificate.Leaf))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, k.cfg.Cert, err)
	}
	if _, err := pki.AfterOf(certificate.Leaf); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, k.cfg.Cert, err)
	}
	if trust.Signed(certificate.Leaf) == "" {
		return nil, fmt.Errorf("%w: %s: none of the authorities in %s signed it", ErrFile, k.cfg.Cert, k.cfg.CA)
	}
	return &held{certificate: certificate, identity: id, trust: trust, issuing: old.issuing}, nil
}

func (k *Keeper) stamp() (stamps [3]stamp) {
	for i, path := range []string{k.cfg.Cert, k.cfg.Key, k.cfg.CA} {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// current returns what is in use, and checks the files before if that is due.
func (k *Keeper) current() *held {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.cfg.Now(); now.Sub(k.looked) >= lookEvery || now.Before(k.looked) {
		k.looked = now
		if stamps := k.stamp(); stamps != k.stamps {
			k.reload(stamps)
		}
	}
	return k.held.Load()
}

// Reload reads the files now, for example after this process replaced them.
func (k *Keeper) Reload() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reload(k.stamp())
}

// unusable ends the name of a file that keeps what a file of authorities had.
const unusable = ".unusable"

// installed reads the files after a certificate that the authorities in memory trust was put among
// them. If the file of authorities is damaged, or would not trust it, those in memory are written
// again: else each renewal would get a certificate that cannot be used, until the last one has ended.
// What the file had is kept beside it, because an operator may have put it there.
func (k *Keeper) installed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.reload(k.stamp())
	if err == nil {
		return nil
	}
	if text, failed := os.ReadFile(k.cfg.CA); failed == nil && len(text) > 0 {
		if failed = write(k.cfg.CA+unusable, text, certMode); failed != nil {
			return errors.Join(err, failed)
		}
	}
	if failed := WriteCertificates(k.cfg.CA, k.held.Load().trust.Authorities()...); failed != nil {
		return errors.Join(err, failed)
	}
	if err := k.reload(k.stamp()); err != nil {
		return err
	}
	k.cfg.Logger.Warn("the file of authorities could not be used, and was written again with those in use", "authority", k.cfg.Name, "file", k.cfg.CA, "because", err)
	return nil
}

func (k *Keeper) reload(stamps [3]stamp) error {
	old := k.held.Load()
	h, err := k.read(old)
	if now := k.cfg.Now(); err == nil && now.After(h.certificate.Leaf.NotAfter) && !now.After(old.certificate.Leaf.NotAfter) {
		err = fmt.Errorf("%w: %w: %s: at %s, and the one in use has not", ErrFile, pki.ErrExpired, k.cfg.Cert, h.certificate.Leaf.NotAfter)
	}
	if err != nil {
		if !k.failing { // they may be half written: the next check tries again
			k.cfg.Logger.Warn("certificates cannot be read, those of before stay in use", "authority", k.cfg.Name, "error", err)
		}
		k.failing = true
		return err
	}
	k.failing, k.stamps = false, stamps
	k.replace(h)
	k.cfg.Logger.Info("certificates were read again", "authority", k.cfg.Name, "identity", h.identity.Actor(), "serial", h.identity.Serial, "until", h.certificate.Leaf.NotAfter)
	return nil
}

// replace puts h in use, and closes the connections that it does not allow.
func (k *Keeper) replace(h *held) {
	old := k.held.Swap(h)
	close(k.changed)
	k.changed = make(chan struct{})
	if old.trust != h.trust {
		k.sweep(func(c *Conn) error {
			_, err := c.verify(h.trust, k.cfg.Now())
			return err
		})
	}
}

// sweep closes the connections for which judge returns an error. The caller holds k.mu.
func (k *Keeper) sweep(judge func(*Conn) error) {
	for c := range k.conns {
		if c.leaf == nil {
			continue // without an identity, as while a node joins
		}
		if err := judge(c); err != nil {
			k.stats.cut.Add(1)
			k.cfg.Logger.Warn("connection closed: its certificate is good no more", "identity", c.id.Actor(), "serial", c.id.Serial, "remote", c.RemoteAddr(), "error", err)
			delete(k.conns, c)
			c.cut()
		}
	}
}

// Trust takes the authorities of a set and the key id of the signing one from the log,
// and writes them to the file. It refuses authorities that would not trust the Keeper's
// own certificate, because then no other process would accept this one.
func (k *Keeper) Trust(authorities []*x509.Certificate, issuing string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.held.Load()
	same := old.issuing == issuing && slices.EqualFunc(old.trust.Authorities(), authorities, (*x509.Certificate).Equal)
	if same {
		return nil
	}
	trust, err := pki.NewTrust(authorities, old.trust.Revocations())
	if err != nil {
		return err
	}
	if trust.Signed(old.certificate.Leaf) == "" {
		return fmt.Errorf("%w: the log's authorities %q would not trust this process itself: it keeps those of %s", pki.ErrAuthority, k.cfg.Name, k.cfg.CA)
	}
	if err := WriteCertificates(k.cfg.CA, authorities...); err != nil {
		return err
	}
	h := *old
	h.trust, h.issuing = trust, issuing
	k.stamps, k.trusted = k.stamp(), k.cfg.Now()
	k.replace(&h)
	k.cfg.Logger.Info("authorities changed", "authority", k.cfg.Name, "trusted", len(authorities), "issuing", issuing)
	return nil
}

// Revoke replaces all revocations by those of the log.
func (k *Keeper) Revoke(revoked pki.Revocations) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := *k.held.Load()
	h.trust = h.trust.With(revoked)
	k.held.Store(&h)
	k.sweep(func(c *Conn) error {
		if why := revoked.Covers(c.leaf, c.id); why != "" {
			return fmt.Errorf("%w: %s", pki.ErrRevoked, why)
		}
		return nil
	})
}

// Run checks the files and the open connections until ctx ends. Without it the files
// are checked only at new connections.
func (k *Keeper) Run(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			k.current()
		case <-sweep.C:
			k.sweepEnded()
		}
	}
}

func (k *Keeper) sweepEnded() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.cfg.Now()
	k.sweep(func(c *Conn) error {
		end := c.leaf.NotAfter
		if c.id.Role == matrix.Expired {
			end = end.Add(pki.Grace)
		}
		if now.After(end) {
			return pki.ErrExpired
		}
		return nil
	})
	for _, w := range k.warnings() {
		if errors.Is(w.kind, pki.ErrExpired) {
			k.cfg.Logger.Error(w.text)
		}
	}
}

// Now returns the time by the Keeper's clock.
func (k *Keeper) Now() time.Time { return k.cfg.Now() }

// Unusable reports whether the Keeper's own certificate has ended by its clock, or has not
// begun: then a wrong clock made it.
func (k *Keeper) Unusable() bool {
	leaf, now := k.Leaf(), k.cfg.Now()
	return now.After(leaf.NotAfter) || now.Before(leaf.NotBefore)
}

// Identity returns the identity in the Keeper's own certificate.
func (k *Keeper) Identity() matrix.Identity { return k.held.Load().identity }

// Leaf returns the Keeper's own certificate, which callers must not change.
func (k *Keeper) Leaf() *x509.Certificate { return k.held.Load().certificate.Leaf }

// Authorities returns the trusted authorities. Callers must not change them.
func (k *Keeper) Authorities() []*x509.Certificate { return k.held.Load().trust.Authorities() }

// Issuing returns the key id of the authority that signs now, or "" if it is not in the
// log yet.
func (k *Keeper) Issuing() string { return k.held.Load().issuing }

// SignedBy returns the key id of the authority that signed the Keeper's own
// certificate.
func (k *Keeper) SignedBy() string {
	h := k.held.Load()
	return h.trust.Signed(h.certificate.Leaf)
}

// warning is something that an operator must act on.
type warning struct {
	kind error
	text string
}

// Warnings lists what ends soon or has ended, for /readyz and logs.
func (k *Keeper) Warnings() []string {
	var texts []string
	for _, w := range k.warnings() {
		texts = append(texts, w.text)
	}
	return texts
}

func (k *Keeper) warnings() (all []warning) {
	h, now := k.held.Load(), k.cfg.Now()
	look := func(what string, c *x509.Certificate, remedy string) {
		left, life := c.NotAfter.Sub(now), c.NotAfter.Sub(pki.Issued(c))
		switch {
		case left <= 0:
			all = append(all, warning{pki.ErrExpired, fmt.Sprintf("%s has expired at %s: %s", what, c.NotAfter.Format(time.RFC3339), remedy)})
		case left < min(warnBefore, life/3):
			all = append(all, warning{nil, fmt.Sprintf("%s ends in %s, at %s: %s", what, left.Round(time.Second), c.NotAfter.Format(time.RFC3339), remedy)})
		}
	}
	remedy := "it was not renewed: see the log, or issue another"
	if until := h.certificate.Leaf.NotAfter.Add(pki.Grace); h.identity.Role == matrix.CN {
		remedy = "it was not renewed: see the log; a server renews it until " + until.Format(time.RFC3339) + ", after that join again (rutter token create, rutter agent join)"
	}
	look(fmt.Sprintf("the certificate of %s (%s)", h.identity.Actor(), k.cfg.Name), h.certificate.Leaf, remedy)
	for _, a := range h.trust.Authorities() {
		look("the authority "+a.Subject.CommonName, a, "rotate it: rutter cert rotate")
	}
	return all
}
