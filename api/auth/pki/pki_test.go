package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log"
)

var testNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var testCN = matrix.Identity{Role: matrix.CN, UUID: log.UUID{1, 2, 3}}

func authority(t *testing.T, name string) *Authority {
	t.Helper()
	a, err := NewAuthority(name, testNow, AuthorityLife, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, id matrix.Identity, life time.Duration, now time.Time) *x509.Certificate {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue(Order{Identity: id, Key: key.Public(), Life: life}, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestVerify(t *testing.T) {
	ours, other := authority(t, Clients), authority(t, Clients)
	server := matrix.Identity{Role: matrix.Server, Name: "s1"}
	operator := matrix.Identity{Role: matrix.Operator, Name: "ada"}
	good := issue(t, ours, testCN, Life, testNow)
	named := func(subject string, before time.Time) *log.Revocation {
		return &log.Revocation{Subject: subject, IssuedBefore: log.Time(before.UnixNano())}
	}
	for name, c := range map[string]struct {
		leaf    *x509.Certificate
		usage   x509.ExtKeyUsage
		at      time.Time
		revoked *log.Revocation
		want    error
	}{
		"good":               {leaf: good},
		"good as a server":   {leaf: issue(t, ours, server, Life, testNow), usage: x509.ExtKeyUsageServerAuth},
		"at its end":         {leaf: good, at: good.NotAfter},
		"a clock behind":     {leaf: good, at: testNow.Add(-Backdate)},
		"none":               {want: ErrNone},
		"expired":            {leaf: good, at: testNow.Add(Life + time.Second), want: ErrExpired},
		"not yet":            {leaf: good, at: testNow.Add(-Backdate - time.Second), want: ErrNotYet},
		"of others":          {leaf: issue(t, other, testCN, Life, testNow), want: ErrAuthority},
		"of itself":          {leaf: ours.Certificate, want: ErrRole},
		"a person as server": {leaf: issue(t, ours, operator, Life, testNow), usage: x509.ExtKeyUsageServerAuth, want: ErrUsage},
		"serial revoked":     {leaf: good, revoked: &log.Revocation{Subject: "serial:" + Serial(good)}, want: ErrRevoked},
		"key revoked":        {leaf: good, revoked: &log.Revocation{Subject: "key:" + CertificateKeyID(good)}, want: ErrRevoked},
		"identity revoked":   {leaf: good, revoked: named(Subject(testCN), testNow.Add(time.Second)), want: ErrRevoked},
		"issued after":       {leaf: good, revoked: named(Subject(testCN), testNow)},
		"another revoked":    {leaf: good, revoked: named("cn:"+log.UUID{9}.String(), testNow.Add(time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			var list []*log.Revocation
			if c.revoked != nil {
				list = append(list, c.revoked)
			}
			trust, err := NewTrust([]*x509.Certificate{ours.Certificate}, NewRevocations(list))
			if err != nil {
				t.Fatal(err)
			}
			if c.usage == 0 {
				c.usage = x509.ExtKeyUsageClientAuth
			}
			if c.at.IsZero() {
				c.at = testNow
			}
			var chain []*x509.Certificate
			if c.leaf != nil {
				chain = []*x509.Certificate{c.leaf}
			}
			id, err := trust.Verify(chain, c.usage, c.at)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if c.want == nil && (id.Role == matrix.None || id.Serial != Serial(c.leaf)) {
				t.Errorf("identity %+v of a good certificate", id)
			}
		})
	}
}

// What a request asks for is left aside, and a key that is not ours is refused.
func TestRequests(t *testing.T) {
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ParseRequest(der)
	if err != nil || !key.PublicKey.Equal(public) {
		t.Fatalf("got %v, %v", public, err)
	}
	der[len(der)-1] ^= 1
	if _, err := ParseRequest(der); err == nil {
		t.Error("a request with a bad signature was taken")
	}
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if der, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, large); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseRequest(der); !errors.Is(err, ErrKey) {
		t.Errorf("a key on P-384: got %v, want %v", err, ErrKey)
	}
}

func TestIssueRefuses(t *testing.T) {
	a := authority(t, Clients)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Order{
		"nobody":           {Identity: matrix.Identity{}, Key: key.Public(), Life: Life},
		"for ever":         {Identity: testCN, Key: key.Public(), Life: MaxLife + 1},
		"hosts for a CN":   {Identity: testCN, Key: key.Public(), Life: Life, Hosts: []string{"cn1"}},
		"no key":           {Identity: testCN, Life: Life},
		"a local identity": {Identity: matrix.Identity{Role: matrix.Local, Name: "x"}, Key: key.Public(), Life: Life},
	} {
		if c, err := a.Issue(o, testNow, rand.Reader); err == nil {
			t.Errorf("%s: issued %v", name, c.Subject)
		}
	}
	late := testNow.Add(AuthorityLife - time.Hour)
	c, err := a.Issue(Order{Identity: testCN, Key: key.Public(), Life: Life}, late, rand.Reader)
	if err != nil || !c.NotAfter.Equal(a.Certificate.NotAfter) {
		t.Errorf("got %v, %v; want one that ends with its authority", c, err)
	}
	if _, err := a.Issue(Order{Identity: testCN, Key: key.Public(), Life: Life}, late.Add(2*time.Hour), rand.Reader); !errors.Is(err, ErrExpired) {
		t.Errorf("by an authority that ended: got %v", err)
	}
}

func TestKeysOnDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, passphrase := range []string{"", "correct horse"} {
		text, err := EncodeKey(key, passphrase)
		if err != nil {
			t.Fatal(err)
		}
		if Encrypted(text) != (passphrase != "") {
			t.Errorf("with passphrase %q: %s", passphrase, text)
		}
		keys, err := ParseKeys(text, passphrase)
		if err != nil || len(keys) != 1 || !keys[0].Equal(key) {
			t.Errorf("with passphrase %q: got %v, %v", passphrase, keys, err)
		}
		if passphrase == "" {
			continue
		}
		for _, wrong := range []string{"", "battery"} {
			if _, err := ParseKeys(text, wrong); !errors.Is(err, ErrPassphrase) {
				t.Errorf("opened with %q: %v", wrong, err)
			}
		}
	}
}

// No way of printing a token shows its secret.
func TestTokenKeepsItsSecret(t *testing.T) {
	token, err := NewToken(bytes.NewReader(bytes.Repeat([]byte{0x5a, 7, 9}, 16)))
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.SplitN(token.Reveal(), ".", 2)[1]
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "token", token)
	fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d", token, token, token, token, token, token, token)
	if err := json.NewEncoder(&out).Encode(token); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), secret) || strings.Contains(out.String(), "5a07095a0709") || strings.Contains(out.String(), "90 7 9") {
		t.Errorf("the secret stands in %s", out.String())
	}
	back, err := ParseToken(token.Reveal() + "\n")
	if err != nil || back != token || !back.Opens(token.Hash()) {
		t.Errorf("got %v, %v", back, err)
	}
	other, err := NewToken(rand.Reader)
	if err != nil || other.Opens(token.Hash()) {
		t.Errorf("another token opens it: %v", err)
	}
	for _, bad := range []string{"", "x", token.ID.String(), token.ID.String() + ".", token.Reveal() + "A", "x." + secret} {
		if _, err := ParseToken(bad); !errors.Is(err, ErrToken) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	a, err := NewAuthority(Clients, testNow, AuthorityLife, rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	key, err := EncodeKey(a.Key, "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(EncodeCertificates(a.Certificate))
	f.Add(key)
	f.Add([]byte("11111111-2222-4333-8444-555555555555.AAAA"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if list, err := ParseCertificates(text); err == nil {
			if again, err := ParseCertificates(EncodeCertificates(list...)); err != nil || len(again) != len(list) {
				t.Errorf("%d certificates were read again as %d: %v", len(list), len(again), err)
			}
		}
		if !Encrypted(text) { // opening takes a second, as it must
			_, _ = ParseKeys(text, "")
		}
		if token, err := ParseToken(string(text)); err == nil && token.Reveal() == "" {
			t.Error("an empty token")
		}
		_, _ = ParseRequest(text)
		_, _ = FromBase64(string(text))
	})
}
