package tlsgate

import (
	"context"
	"crypto/x509"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/auth/pki"
)

// A clock that was behind when the renewer began to wait, and is set, does not delay the
// renewal; with one that is ahead each certificate is due at once, and is not asked for
// without a pause.
func TestRenewalByAWrongClock(t *testing.T) {
	const life = time.Hour
	for name, c := range map[string]struct {
		off         time.Duration
		least, most int32         // certificates in an hour
		lasts       time.Duration // of the wrong clock
	}{
		"behind, and set": {-48 * time.Hour, 1, 2, time.Minute},
		"ahead":           {pki.Life * 2 / 3, 2, int32(time.Hour/rotateSpread) + 1, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t, pki.Clients, time.Now())
				var off atomic.Int64
				k, err := New(Config{Paths: identity(t, a, cnID, time.Now(), life), Name: pki.Clients, Ended: true, Now: func() time.Time {
					return time.Now().Add(time.Duration(off.Load()))
				}})
				if err != nil {
					t.Fatal(err)
				}
				off.Store(int64(c.off))
				if c.off < 0 { // the certificate must have begun by this clock
					k.cfg.Paths = identity(t, a, cnID, time.Now().Add(c.off), life-c.off)
					if err := k.Reload(); err != nil {
						t.Fatal(err)
					}
				}
				r := renewer(t, k, a, cnID)
				ask := r.cfg.Ask
				var asked atomic.Int32
				r.cfg.Ask = func(ctx context.Context, request []byte) (*x509.Certificate, error) {
					asked.Add(1)
					return ask(ctx, request)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- r.Run(ctx) }()
				time.Sleep(c.lasts)
				off.Store(0)
				time.Sleep(time.Hour - c.lasts)
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if n := asked.Load(); n < c.least || n > c.most {
					t.Errorf("%d certificates in an hour, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}
