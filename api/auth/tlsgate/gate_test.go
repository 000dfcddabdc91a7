package tlsgate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	serverID   = matrix.Identity{Role: matrix.Server, Name: "s1"}
	cnID       = matrix.Identity{Role: matrix.CN, UUID: log.UUID{5}}
	operatorID = matrix.Identity{Role: matrix.Operator, Name: "ada"}
)

func newAuthority(t *testing.T, name string, now time.Time) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name, now, pki.AuthorityLife, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// identity writes an identity into a fresh folder.
func identity(t *testing.T, a *pki.Authority, id matrix.Identity, now time.Time, life time.Duration) Paths {
	t.Helper()
	p := ClientPaths(t.TempDir())
	key, err := p.NextKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Issue(pki.Order{Identity: id, Key: key.Public(), Life: life}, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(WriteCertificates(p.CA, a.Certificate), p.Install(leaf)); err != nil {
		t.Fatal(err)
	}
	return p
}

func keep(t *testing.T, p Paths) *Keeper {
	t.Helper()
	k, err := New(Config{Paths: p, Name: pki.Clients})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// listen opens a port of k that answers with what it read, and the identity.
func listen(t *testing.T, k *Keeper, port Port) string {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := k.Listener(inner, port)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, conn.(*Conn).Identity().Actor()+"\n")
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return inner.Addr().String()
}

// hear returns the first line that the other side says.
func hear(conn net.Conn) (string, error) {
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 100)
	n, err := conn.Read(b)
	return strings.TrimSpace(string(b[:n])), err
}

func TestWhoIsLetIn(t *testing.T) {
	now := time.Now()
	ours, others := newAuthority(t, pki.Clients, now.Add(-pki.Life)), newAuthority(t, pki.Clients, now)
	server := keep(t, identity(t, ours, serverID, now, pki.Life))
	anybody := listen(t, server, Port{Name: "api"})
	guests := listen(t, server, Port{Name: "api", OrNone: true})
	serversOnly := listen(t, server, Port{Name: "raft", Need: Role(matrix.Server)})

	good := keep(t, identity(t, ours, cnID, now, pki.Life))
	gone := keep(t, identity(t, ours, operatorID, now, pki.Life))
	server.Revoke(pki.NewRevocations([]*log.Revocation{{Subject: "serial:" + gone.Identity().Serial}}))
	late, early := pair(t, ours, cnID, now.Add(-2*time.Hour), time.Hour), pair(t, ours, cnID, now.Add(time.Hour), time.Hour)
	for name, c := range map[string]struct {
		address string
		config  *tls.Config
		want    string // "": refused
	}{
		"a CN":                    {anybody, good.clientConfig(nil), cnID.Actor()},
		"a CN at the servers'":    {serversOnly, good.clientConfig(nil), ""},
		"a server at the servers": {serversOnly, server.clientConfig(nil), serverID.Actor()},
		"no certificate":          {anybody, plain(nil), ""},
		"no certificate, a guest": {guests, plain(nil), "join:127.0.0.1"},
		"expired":                 {guests, plain(late), ""},
		"not yet valid":           {guests, plain(early), ""},
		"of others":               {guests, plain(pair(t, others, cnID, now, time.Hour)), ""},
		"revoked":                 {guests, gone.clientConfig(nil), ""},
		"TLS 1.2":                 {guests, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}, ""},
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
	t.Run("plain HTTP is told", func(t *testing.T) {
		conn, err := net.Dial("tcp", anybody)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
		if got, err := hear(conn); !strings.HasPrefix(got, "HTTP/1.0 400") {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func plain(c *tls.Certificate) *tls.Config {
	config := &tls.Config{InsecureSkipVerify: true}
	if c != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
	}
	return config
}

func pair(t *testing.T, a *pki.Authority, id matrix.Identity, now time.Time, life time.Duration) *tls.Certificate {
	t.Helper()
	c, _, err := identity(t, a, id, now, life).load()
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// A client believes servers of its authority only, whatever their names.
func TestWhomAClientBelieves(t *testing.T) {
	now := time.Now()
	ours, others := newAuthority(t, pki.Clients, now), newAuthority(t, pki.Clients, now)
	client := keep(t, identity(t, ours, cnID, now, pki.Life))
	for name, c := range map[string]struct {
		keeper *Keeper
		want   error
	}{
		"a server":           {keep(t, identity(t, ours, serverID, now, pki.Life)), nil},
		"a server of others": {keep(t, identity(t, others, serverID, now, pki.Life)), pki.ErrAuthority},
		"a compute node":     {keep(t, identity(t, ours, matrix.Identity{Role: matrix.CN, UUID: log.UUID{9}}, now, pki.Life)), pki.ErrRole},
		"an operator":        {keep(t, identity(t, ours, operatorID, now, pki.Life)), pki.ErrUsage},
	} {
		t.Run(name, func(t *testing.T) {
			address := listen(t, c.keeper, Port{Name: "api", OrNone: true})
			conn, err := client.Dial(t.Context(), "tcp", address, Role(matrix.Server))
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err == nil {
				conn.Close()
			}
		})
	}
}

// What is revoked while a connection is open ends it, on both sides, and no other.
func TestRevokedWhileOpen(t *testing.T) {
	now := time.Now()
	a := newAuthority(t, pki.Clients, now)
	server := keep(t, identity(t, a, serverID, now, pki.Life))
	address := listen(t, server, Port{Name: "api"})
	open := func(k *Keeper) net.Conn {
		conn, err := k.Dial(t.Context(), "tcp", address, Role(matrix.Server))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := hear(conn); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	stolen, honest := keep(t, identity(t, a, cnID, now, pki.Life)), keep(t, identity(t, a, operatorID, now, pki.Life))
	one, two := open(stolen), open(honest)
	revoke := func(k *Keeper, subject string) {
		k.Revoke(pki.NewRevocations([]*log.Revocation{{Subject: subject, IssuedBefore: log.Time(time.Now().Add(time.Second).UnixNano())}}))
	}
	revoke(server, pki.Subject(cnID))
	if _, err := hear(one); err == nil {
		t.Error("the revoked one's connection is open")
	}
	_ = two.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := two.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the honest one's connection: %v, want nothing to read", err)
	}
	revoke(honest, pki.Subject(serverID))
	if _, err := hear(two); err == nil {
		t.Error("the connection to a revoked server is open")
	}
}

// Files that are replaced are taken up; half of a replacement is not.
func TestFilesChange(t *testing.T) {
	now := time.Now()
	a := newAuthority(t, pki.Clients, now)
	p := identity(t, a, operatorID, now, pki.Life)
	clock := now
	k, err := New(Config{Paths: p, Name: pki.Clients, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	was := k.Leaf()
	other := identity(t, a, operatorID, now, 2*pki.Life)
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	look := func() *x509.Certificate {
		clock = clock.Add(2 * lookEvery)
		return k.current().certificate.Leaf
	}
	move(other.Cert, p.Cert)
	if got := look(); !got.Equal(was) {
		t.Error("a certificate without its key was taken")
	}
	move(other.Key, p.Key)
	if got := look(); got.Equal(was) {
		t.Error("the new pair was not taken")
	}
	if err := os.Chmod(p.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Paths: p}); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that all may read: %v", err)
	}
}

// A crash at any point of putting a new certificate in place leaves a pair.
func TestInstallIsSafe(t *testing.T) {
	now := time.Now()
	a := newAuthority(t, pki.Clients, now)
	p := identity(t, a, operatorID, now, pki.Life)
	key, err := p.NextKey()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.NextKey(); err != nil || !key.Public().(*ecdsa.PublicKey).Equal(again.Public()) {
		t.Errorf("asked again, it is another key: %v", err)
	}
	keep(t, p) // asked, not answered
	leaf, err := a.Issue(pki.Order{Identity: operatorID, Key: key.Public(), Life: pki.Life}, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteCertificates(p.Cert, leaf); err != nil { // and here it crashed
		t.Fatal(err)
	}
	if got := keep(t, p).Leaf(); !got.Equal(leaf) {
		t.Error("the new certificate was not taken with the key that waited")
	}
	if err := p.Install(leaf); err != nil {
		t.Fatal(err)
	}
	if got := keep(t, p).Leaf(); !got.Equal(leaf) {
		t.Error("the new certificate is not in place")
	}
	entries, err := filepath.Glob(filepath.Join(filepath.Dir(p.Cert), "*"))
	if err != nil || len(entries) != 3 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	for _, entry := range entries {
		info, err := os.Stat(entry)
		if err != nil || strings.HasSuffix(entry, ".key") != (info.Mode().Perm() == keyMode) {
			t.Errorf("%s has mode %v (%v)", entry, info.Mode(), err)
		}
	}
}

// The old authority's certificates are valid until that authority is dropped. A
// keeper refuses authorities without the one of its own certificate.
func TestRotation(t *testing.T) {
	now := time.Now()
	old, next := newAuthority(t, pki.Clients, now), newAuthority(t, pki.Clients, now)
	server := keep(t, identity(t, old, serverID, now, pki.Life))
	client := keep(t, identity(t, old, cnID, now, pki.Life))
	address := listen(t, server, Port{Name: "api"})
	try := func(k *Keeper) error {
		conn, err := k.Dial(t.Context(), "tcp", address, Role(matrix.Server))
		if err == nil {
			_, err = hear(conn)
			conn.Close()
		}
		return err
	}
	id := pki.CertificateKeyID(next.Certificate)
	if err := server.Trust([]*x509.Certificate{next.Certificate}, id); !errors.Is(err, pki.ErrAuthority) {
		t.Errorf("authorities without one's own were taken: %v", err)
	}
	both := []*x509.Certificate{old.Certificate, next.Certificate}
	if err := errors.Join(server.Trust(both, id), client.Trust(both, id), try(client)); err != nil {
		t.Fatal(err)
	}
	renewed := func(k *Keeper, id matrix.Identity) {
		r := renewer(t, k, next, id)
		if err := errors.Join(r.renew(t.Context()), try(k)); err != nil {
			t.Fatal(err)
		}
	}
	renewed(client, cnID)
	late := keep(t, identity(t, old, operatorID, now, pki.Life))
	if err := late.Trust(both, id); err != nil {
		t.Fatal(err)
	}
	conn, err := late.Dial(t.Context(), "tcp", address, Role(matrix.Server))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := hear(conn); err != nil {
		t.Fatal(err)
	}
	renewed(server, serverID)
	if err := errors.Join(server.Trust(both[1:], id), client.Trust(both[1:], id), try(client)); err != nil {
		t.Fatal(err)
	}
	if _, err := hear(conn); err == nil {
		t.Error("an open connection of the dropped authority goes on")
	}
	if err := try(late); err == nil {
		t.Error("a certificate of the dropped authority was taken")
	}
	if got := keep(t, client.cfg.Paths).Authorities(); len(got) != 1 || !got[0].Equal(next.Certificate) {
		t.Errorf("the file has %d authorities, want the new one", len(got))
	}
}

func renewer(t *testing.T, k *Keeper, a *pki.Authority, id matrix.Identity) *Renewer {
	t.Helper()
	r, err := NewRenewer(RenewConfig{Keeper: k, Jitter: func() float64 { return 0.5 }, Ask: func(_ context.Context, request []byte) (*x509.Certificate, error) {
		key, err := pki.ParseRequest(request)
		if err != nil {
			return nil, err
		}
		return a.Issue(pki.Order{Identity: id, Key: key, Life: pki.Life}, time.Now(), rand.Reader)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Files of long ago do not replace a certificate that is good by one that has ended.
func TestEndedFilesAreNotTaken(t *testing.T) {
	begin := time.Now()
	a := newAuthority(t, pki.Clients, begin.Add(-2*pki.NodeLife))
	old := identity(t, a, cnID, begin.Add(-2*pki.NodeLife), pki.NodeLife)
	k := keep(t, identity(t, a, cnID, begin, pki.Life))
	was := k.Leaf()
	for from, to := range map[string]string{old.Cert: k.cfg.Cert, old.Key: k.cfg.Key} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, keyMode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Reload(); !errors.Is(err, pki.ErrExpired) || !k.Leaf().Equal(was) {
		t.Errorf("%v; the certificate in use ends at %v", err, k.Leaf().NotAfter)
	}
	if err := renewer(t, k, a, cnID).renew(t.Context()); err != nil || k.Leaf().Equal(was) || !keep(t, k.cfg.Paths).Leaf().Equal(k.Leaf()) {
		t.Errorf("not renewed over them: %v", err)
	}
}

// Files that are damaged while a process runs are whole again after its next renewal, which uses what
// is in memory, and asks for one certificate only.
func TestRenewalMendsFiles(t *testing.T) {
	begin := time.Now()
	other := newAuthority(t, pki.Clients, begin)
	for name, damage := range map[string]func(p Paths) error{
		"the certificate is torn":      func(p Paths) error { return os.Truncate(p.Cert, 100) },
		"the key is empty":             func(p Paths) error { return os.Truncate(p.Key, 0) },
		"the key is gone":              func(p Paths) error { return os.Remove(p.Key) },
		"the next key is torn":         func(p Paths) error { return os.WriteFile(p.Key+nextKey, []byte("-----BEGIN"), keyMode) },
		"the authorities are empty":    func(p Paths) error { return os.Truncate(p.CA, 0) },
		"the authorities are torn":     func(p Paths) error { return os.Truncate(p.CA, 100) },
		"the authorities are gone":     func(p Paths) error { return os.Remove(p.CA) },
		"the authorities are old ones": func(p Paths) error { return WriteCertificates(p.CA, other.Certificate) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t, pki.Clients, begin)
			k := keep(t, identity(t, a, cnID, begin, pki.Life))
			r, asked := renewer(t, k, a, cnID), 0
			ask := r.cfg.Ask
			r.cfg.Ask = func(ctx context.Context, request []byte) (*x509.Certificate, error) {
				asked++
				return ask(ctx, request)
			}
			was := k.Leaf()
			if err := damage(k.cfg.Paths); err != nil {
				t.Fatal(err)
			}
			damaged, _ := os.ReadFile(k.cfg.CA)
			_ = k.Reload() // as the next look at the files does
			if !k.Leaf().Equal(was) || len(k.Authorities()) != 1 || !k.Authorities()[0].Equal(a.Certificate) {
				t.Fatal("what was in use is not any more")
			}
			if err := r.renew(t.Context()); err != nil || k.Leaf().Equal(was) || asked != 1 {
				t.Errorf("not renewed: %v; asked %d times", err, asked)
			}
			if kept, _ := os.ReadFile(k.cfg.CA + unusable); strings.HasPrefix(name, "the authorities") && !bytes.Equal(kept, damaged) {
				t.Error("what the file of authorities had is not kept")
			}
			if again := keep(t, k.cfg.Paths); !again.Leaf().Equal(k.Leaf()) || !again.Authorities()[0].Equal(a.Certificate) {
				t.Error("a process that begins now has other certificates")
			}
		})
	}
}

// A certificate is renewed before two thirds of its life are over. While no issuer
// answers, the request is repeated.
func TestRenewal(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		a := newAuthority(t, pki.Clients, begin)
		k := keep(t, identity(t, a, cnID, begin, pki.Life))
		r := renewer(t, k, a, cnID)
		var asked atomic.Int32
		var answer atomic.Pointer[Renewer] // who answers; nil: cut off
		r.cfg.Ask = func(ctx context.Context, request []byte) (*x509.Certificate, error) {
			asked.Add(1)
			if by := answer.Load(); by != nil {
				return by.cfg.Ask(ctx, request)
			}
			return nil, errors.New("cut off")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		sleepUntil := func(at time.Time) {
			time.Sleep(time.Until(at))
			synctest.Wait()
		}
		sleepUntil(begin.Add(pki.Life / 2))
		if asked.Load() != 0 || len(k.Warnings()) > 0 {
			t.Errorf("asked %d times by half of the life, warned of %q", asked.Load(), k.Warnings())
		}
		sleepUntil(begin.Add(pki.Life * 2 / 3))
		if asked.Load() == 0 {
			t.Error("not asked by two thirds of the life")
		}
		sleepUntil(begin.Add(pki.Life - 24*time.Hour))
		if w := k.Warnings(); len(w) != 1 || !strings.Contains(w[0], "ends in") {
			t.Errorf("a day before the end the warnings are %q", w)
		}
		was := k.Leaf()
		answer.Store(renewer(t, k, a, cnID))
		sleepUntil(begin.Add(pki.Life - 23*time.Hour))
		if k.Leaf().Equal(was) || len(k.Warnings()) > 0 {
			t.Errorf("not renewed when somebody answered; warnings %q", k.Warnings())
		}
		// The next authority signs from now on: the certificate is renewed at once.
		next := newAuthority(t, pki.Clients, time.Now())
		answer.Store(renewer(t, k, next, cnID))
		if err := k.Trust([]*x509.Certificate{a.Certificate, next.Certificate}, pki.CertificateKeyID(next.Certificate)); err != nil {
			t.Fatal(err)
		}
		sleepUntil(time.Now().Add(2 * rotateSpread))
		if k.current().trust.Signed(k.Leaf()) != pki.CertificateKeyID(next.Certificate) {
			t.Error("not renewed after the authority changed")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
