package tlsgate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rutter/api/auth/pki"
)

// Times of renewal.
const (
	// renewSpread is the fraction of a lifetime (1/20), after the half of it, over which
	// the renewals of many nodes are spread. So a node has nearly half of the life of its
	// certificate left to reach a server.
	renewSpread = 20
	// rotateSpread is the time over which all certificates of a retired authority are
	// renewed, so that a thousand nodes do not ask at once.
	rotateSpread = time.Minute
	// lookAgain is how long a Renewer waits at most before it asks what time it is: a clock
	// may be set meanwhile, and timers do not follow it.
	lookAgain  = 30 * time.Second
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// endedRetry is lastRetry of a certificate that has ended: its holder waits for it.
	endedRetry = time.Minute
)

// RenewConfig says how a Renewer gets certificates. Keeper, Ask and Jitter are
// required.
type RenewConfig struct {
	Keeper *Keeper
	// Ask sends a request (PKCS #10, DER) and returns the certificate.
	Ask func(ctx context.Context, request []byte) (*x509.Certificate, error)
	// Jitter returns a number in [0, 1), a new one at each call.
	Jitter func() float64
	Logger *slog.Logger // none if nil
}

// Renewer gets a new certificate for a Keeper before the old one ends, and soon after
// the authority that signed it stops signing.
type Renewer struct {
	cfg RenewConfig // immutable
	// drawn is the jitter for the certificate and the authority of drawnFor, so that a
	// planned time does not change.
	drawn    float64
	drawnFor string
}

// NewRenewer returns a Renewer that does nothing yet.
func NewRenewer(cfg RenewConfig) (*Renewer, error) {
	if cfg.Keeper == nil || cfg.Ask == nil || cfg.Jitter == nil {
		return nil, errors.New("tlsgate: a renewer needs a keeper, somebody to ask, and jitter")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Renewer{cfg: cfg}, nil
}

// Run renews until ctx ends. It retries while no server answers, also after the
// certificate has ended: servers let a compute node renew it for pki.Grace.
func (r *Renewer) Run(ctx context.Context) error {
	k := r.cfg.Keeper
	retry := firstRetry
	var renewed time.Time
	for ctx.Err() == nil {
		changed := k.change()
		wait := min(r.due().Sub(k.Now()), lookAgain)
		if rest := r.least() - time.Since(renewed); !renewed.IsZero() && wait < rest {
			wait, changed = rest, nil
		}
		if wait <= 0 {
			err := r.renew(ctx)
			if err == nil {
				retry, renewed = firstRetry, time.Now()
				continue
			}
			left := k.Leaf().NotAfter.Sub(k.Now())
			most := lastRetry
			if left <= 0 {
				most = endedRetry
			}
			retry = min(retry, most)
			r.cfg.Logger.Warn("certificate not renewed", "authority", k.cfg.Name, "error", err, "ends_in", left.Round(time.Second), "again_in", retry)
			wait = retry/2 + time.Duration(r.cfg.Jitter()*float64(retry/2))
			retry *= 2
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
			retry = firstRetry
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// least is the time between two renewals: if this machine's clock is wrong, each certificate
// that it gets may be due at once.
func (r *Renewer) least() time.Duration {
	leaf := r.cfg.Keeper.Leaf()
	return min(rotateSpread, leaf.NotAfter.Sub(pki.Issued(leaf))/renewSpread)
}

// due returns when the certificate in use must be replaced.
func (r *Renewer) due() time.Time {
	h := r.cfg.Keeper.current()
	leaf := h.certificate.Leaf
	issued := pki.Issued(leaf)
	life := leaf.NotAfter.Sub(issued)
	if what := pki.Serial(leaf) + h.issuing; r.drawnFor != what {
		r.drawn, r.drawnFor = r.cfg.Jitter(), what
	}
	if r.cfg.Keeper.Unusable() {
		return r.cfg.Keeper.Now()
	}
	due := issued.Add(life/2 + time.Duration(r.drawn*float64(life/renewSpread)))
	if h.issuing != "" && h.trust.Signed(leaf) != h.issuing {
		soon := r.cfg.Keeper.trustedAt().Add(time.Duration(r.drawn * float64(min(rotateSpread, life/renewSpread))))
		if soon.Before(due) {
			due = soon
		}
	}
	return due
}

// renew asks once, and installs the certificate that it gets.
func (r *Renewer) renew(ctx context.Context) error {
	paths := r.cfg.Keeper.cfg.Paths
	key, err := paths.NextKey()
	if err != nil {
		return err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return err
	}
	leaf, err := r.cfg.Ask(ctx, request)
	if err != nil {
		return err
	}
	h := r.cfg.Keeper.current()
	if h.trust.Signed(leaf) == "" {
		return fmt.Errorf("%w: the new certificate's", pki.ErrAuthority)
	}
	if err := paths.Install(leaf); err != nil {
		return err
	}
	if err := r.cfg.Keeper.installed(); err != nil {
		return err
	}
	r.cfg.Logger.Info("certificate renewed", "authority", r.cfg.Keeper.cfg.Name, "serial", pki.Serial(leaf), "until", leaf.NotAfter)
	return nil
}

// change returns a channel that is closed when the Keeper's identity or trust changes.
func (k *Keeper) change() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// trustedAt returns when the authorities were last changed by Trust.
func (k *Keeper) trustedAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trusted
}
