package tlsgate

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	mrand "math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/log"
)

// ended opens an identity whose certificate ended some time ago.
func ended(t *testing.T, a *pki.Authority, id matrix.Identity, ago time.Duration) *Keeper {
	t.Helper()
	k, err := New(Config{Paths: identity(t, a, id, time.Now().Add(-ago-time.Hour), time.Hour), Name: pki.Clients, Ended: true})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// K3: a certificate that has ended is accepted for a renewal only, of a compute node only,
// for 90 days only, and not if it is revoked; its identity may do nothing else.
func TestEndedCertificateMayOnlyRenew(t *testing.T) {
	now := time.Now()
	a := newAuthority(t, pki.Clients, now.Add(-200*24*time.Hour))
	server := keep(t, identity(t, a, serverID, now, pki.Life))
	api := listen(t, server, Port{Name: "api", OrNone: true, Renewals: true})
	other := listen(t, server, Port{Name: "cn-api"})
	late, tooLate, revoked := ended(t, a, cnID, 30*24*time.Hour), ended(t, a, cnID, pki.Grace+time.Hour), ended(t, a, cnID, time.Hour)
	server.Revoke(pki.NewRevocations([]*log.Revocation{{Subject: "serial:" + revoked.Identity().Serial}}))
	good := keep(t, identity(t, a, cnID, now, pki.Life))
	renewing := func(k *Keeper) *tls.Config {
		config := k.clientConfig(nil)
		config.NextProtos = []string{RenewProtocol, plainProtocol}
		return config
	}
	for name, c := range map[string]struct {
		address string
		config  *tls.Config
		want    string // "": refused
	}{
		"a node that was away":              {api, renewing(late), "expired:" + cnID.Actor()},
		"for something else":                {api, late.clientConfig(nil), ""},
		"at another port":                   {other, renewing(late), ""},
		"away for too long":                 {api, renewing(tooLate), ""},
		"revoked":                           {api, renewing(revoked), ""},
		"a person":                          {api, renewing(ended(t, a, operatorID, time.Hour)), ""},
		"a server":                          {api, renewing(ended(t, a, serverID, time.Hour)), ""},
		"of others":                         {api, renewing(ended(t, newAuthority(t, pki.Clients, now.Add(-time.Hour*24)), cnID, time.Hour)), ""},
		"with a good certificate":           {api, renewing(good), cnID.Actor()},
		"without one, for a renewal":        {api, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{RenewProtocol}}, ""},
		"without one, as a node that joins": {api, plain(nil), "join:127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			conn, err := tls.Dial("tcp", c.address, c.config)
			if err == nil {
				got, err = hear(conn)
				conn.Close()
			}
			if got != c.want {
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			}
		})
	}
	t.Run("a revocation cuts it", func(t *testing.T) {
		conn, err := late.DialRenewal(t.Context(), "tcp", api, Role(matrix.Server))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got, err := hear(conn); got != "expired:"+cnID.Actor() {
			t.Fatalf("%q, %v", got, err)
		}
		server.sweepEnded() // it has ended, and stays
		server.Revoke(pki.NewRevocations([]*log.Revocation{{Subject: cnID.Actor(), ByOrder: true}}))
		if _, err := hear(conn); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the connection goes on: %v", err)
		}
	})
	rows := append(append(append(matrix.Requests(), matrix.Surfaces()...), matrix.Frames()...), matrix.Commands()...)
	for _, row := range rows {
		if may := row.For(matrix.Identity{Role: matrix.Expired, UUID: cnID.UUID}) != matrix.Deny; may != (row.What == "pki POST /renew") {
			t.Errorf("%s: may %v", row.What, may)
		}
	}
	if texts := strings.Join(late.Warnings(), "\n"); !strings.Contains(texts, "a server renews it until") {
		t.Errorf("warnings %q", texts)
	}
}

// K3: through months of virtual time with partitions, a node that is cut off for less
// than half of its certificate's life never has one that has ended; one that is cut off,
// or switched off, for longer, up to 90 days after the end, has a good one within two
// minutes of its return; after that it has to join.
func TestWeeksOfPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		a := newAuthority(t, pki.Clients, begin)
		k := keep(t, identity(t, a, cnID, begin, pki.NodeLife))
		trust, err := pki.NewTrust([]*x509.Certificate{a.Certificate}, pki.Revocations{})
		if err != nil {
			t.Fatal(err)
		}
		away, renewed := false, 0 // of this bubble, whose goroutines run in turns
		draw := mrand.New(mrand.NewPCG(17, 6))
		r, err := NewRenewer(RenewConfig{Keeper: k, Jitter: draw.Float64, Ask: func(_ context.Context, request []byte) (*x509.Certificate, error) {
			if away {
				return nil, net.ErrClosed
			}
			if _, err := trust.VerifyRenewal([]*x509.Certificate{k.Leaf()}, x509.ExtKeyUsageClientAuth, time.Now()); err != nil {
				return nil, err
			}
			key, err := pki.ParseRequest(request)
			if err != nil {
				return nil, err
			}
			renewed++
			return a.Issue(pki.Order{Identity: cnID, Key: key, Life: pki.NodeLife}, time.Now(), rand.Reader)
		}})
		if err != nil {
			t.Fatal(err)
		}
		run := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		stop := run()
		part := func(d time.Duration) {
			away = true
			time.Sleep(d)
			away = false
			synctest.Wait()
		}
		isEnded := func() bool { return time.Now().After(k.Leaf().NotAfter) }
		short := pki.NodeLife/2 - pki.NodeLife/renewSpread - lastRetry
		for time.Since(begin) < 6*7*24*time.Hour {
			time.Sleep(time.Duration(draw.Int64N(int64(4 * 24 * time.Hour))))
			part(time.Duration(draw.Int64N(int64(short))))
			if isEnded() {
				t.Fatalf("after %v, cut off for less than %v, its certificate has ended", time.Since(begin), short)
			}
			time.Sleep(lastRetry)
		}
		if weeks := renewed; weeks < 6 || weeks > 13 {
			t.Errorf("%d renewals in 6 weeks", weeks)
		}
		part(time.Until(k.Leaf().NotAfter) + 12*time.Hour)
		if time.Sleep(2 * time.Minute); isEnded() {
			t.Error("cut off for half a day longer than its certificate lived, it has none two minutes after its return")
		}
		for _, d := range []time.Duration{pki.NodeLife, 3 * pki.NodeLife, pki.Grace} {
			stop()
			time.Sleep(d)
			stop = run()
			if time.Sleep(2 * time.Minute); isEnded() {
				t.Errorf("switched off for %v, it has no certificate two minutes after its return", d)
			}
		}
		stop()
		time.Sleep(pki.Grace + pki.NodeLife)
		stop = run()
		if time.Sleep(time.Hour); !isEnded() {
			t.Error("renewed after more than 90 days")
		}
		stop()
	})
}
