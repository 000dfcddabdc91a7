package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/log"
)

var (
	testServer  = matrix.Identity{Role: matrix.Server, Name: "s2"}
	testCluster = log.UUID{7}
	// firstRevocation is one of testServer, and again is the same made again.
	firstRevocation = log.Revocation{Subject: "server:s2", Created: 100, IssuedBefore: 100, ByOrder: true}
)

func again(r log.Revocation, good ...string) log.Revocation {
	r.IssuedBefore++
	r.Good = good
	return r
}

func revocations(list ...log.Revocation) Revocations {
	var all []*log.Revocation
	for i := range list {
		all = append(all, &list[i])
	}
	return NewRevocations(all).In(testCluster)
}

// issueAfter issues a certificate of testServer.
func issueAfter(t *testing.T, a *Authority, after After) *x509.Certificate {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue(Order{Identity: testServer, Key: key.Public(), Life: Life, After: after}, testNow, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGrantedAfterARevocation(t *testing.T) {
	a := authority(t, Peers)
	first, second := firstRevocation, again(firstRevocation)
	recreated := log.Revocation{Subject: first.Subject, Created: 500, IssuedBefore: 50, ByOrder: true}
	byTime := log.Revocation{Subject: first.Subject, Created: 100, IssuedBefore: log.TimeOf(testNow) + 1}
	known := revocations(first).After("server:s2")
	if want := (After{testCluster, 100, 100}); known != want {
		t.Fatalf("got %+v, want %+v", known, want)
	}
	plain, granted := issueAfter(t, a, After{}), issueAfter(t, a, known)
	granted2 := issueAfter(t, a, revocations(second).After("server:s2"))
	elsewhere := issueAfter(t, a, After{log.UUID{8}, 1 << 40, 1 << 40})
	for name, c := range map[string]struct {
		leaf    *x509.Certificate
		revoked Revocations
		covered string
	}{
		"of before":                      {plain, revocations(first), "server:s2"},
		"of before, listed":              {plain, revocations(again(first, Serial(plain))), ""},
		"granted after it":               {granted, revocations(first), ""},
		"granted after it, not listed":   {granted, revocations(log.Revocation{Subject: "server:s2", Created: 100, IssuedBefore: 100, ByOrder: true, Good: []string{"ab"}}), ""},
		"revoked again":                  {granted, revocations(second), "server:s2"},
		"revoked again, listed":          {granted, revocations(again(first, Serial(granted))), ""},
		"granted after a newer one":      {granted2, revocations(first), ""},
		"deleted and made again":         {granted2, revocations(recreated), "server:s2"},
		"after the one that replaced it": {issueAfter(t, a, revocations(recreated).After("server:s2")), revocations(second), ""},
		"by its serial":                  {granted, revocations(first, log.Revocation{Subject: "serial:" + Serial(granted)}), "serial:" + Serial(granted)},
		"by its key":                     {granted, revocations(first, log.Revocation{Subject: "key:" + CertificateKeyID(granted)}), "key:" + CertificateKeyID(granted)},
		"of a log of another cluster":    {elsewhere, revocations(first), "server:s2"},
		"the cluster is not known":       {granted, NewRevocations([]*log.Revocation{&first}), "server:s2"},
		"a time decides":                 {granted, revocations(byTime), "server:s2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.revoked.Covers(c.leaf, testServer); got != c.covered {
				t.Errorf("covered by %q, want %q", got, c.covered)
			}
			trust, err := NewTrust([]*x509.Certificate{a.Certificate}, c.revoked)
			if err != nil {
				t.Fatal(err)
			}
			_, err = trust.Verify([]*x509.Certificate{c.leaf}, x509.ExtKeyUsageServerAuth, testNow)
			if errors.Is(err, ErrRevoked) != (c.covered != "") || c.covered == "" && err != nil {
				t.Errorf("as the other side: %v", err)
			}
		})
	}
	for name, r := range map[string]Revocations{"by a time": revocations(byTime), "none": {}, "no cluster": NewRevocations([]*log.Revocation{&first}), "of another": revocations(log.Revocation{Subject: "server:s1", Created: 1, IssuedBefore: 1, ByOrder: true})} {
		if after := r.After("server:s2"); !after.IsZero() {
			t.Errorf("%s: to be granted after %+v, want none", name, after)
		}
	}
}

// A certificate that is revoked has no successor that is good, by any signature.
func TestSuccessorOfARevoked(t *testing.T) {
	a := authority(t, Peers)
	first, second := firstRevocation, again(firstRevocation)
	at1, at2 := revocations(first).After("server:s2"), revocations(second).After("server:s2")
	plain, granted, granted2 := issueAfter(t, a, After{}), issueAfter(t, a, at1), issueAfter(t, a, at2)
	for name, c := range map[string]struct {
		leaf    *x509.Certificate
		revoked Revocations
		want    After
	}{
		"never revoked":               {plain, revocations(), After{}},
		"revoked":                     {plain, revocations(first), After{}},
		"by hand, and listed since":   {plain, revocations(log.Revocation{Subject: "server:s2", Created: 100, IssuedBefore: 100, ByOrder: true, Good: []string{Serial(plain)}}), at1},
		"granted after it":            {granted, revocations(first), at1},
		"revoked again":               {granted, revocations(second), at1},
		"revoked again, listed since": {granted, revocations(again(first, Serial(granted))), at2},
		"its log is behind":           {granted2, revocations(first), at2},
		"its log is not read yet":     {granted, Revocations{}, at1},
		"its key is revoked":          {plain, revocations(log.Revocation{Subject: "server:s2", Created: 100, IssuedBefore: 100, ByOrder: true, Good: []string{Serial(plain)}}, log.Revocation{Subject: "key:" + CertificateKeyID(plain)}), After{}},
	} {
		got, err := c.revoked.Successor(c.leaf, "server:s2")
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
		if c.revoked.Covers(c.leaf, testServer) != "" && c.revoked.Covers(issueAfter(t, a, got), testServer) == "" {
			t.Errorf("%s: the next certificate of a revoked server is good", name)
		}
	}
}

// malformed are values of the extension that no issuer writes.
func malformed() map[string][]byte {
	der := func(v any) []byte {
		b, err := asn1.Marshal(v)
		if err != nil {
			panic(err)
		}
		return b
	}
	whole := der(afterDER{testCluster[:], 100, 100})
	long := append([]byte{}, whole...)
	long = append([]byte{long[0], 0x81}, long[1:]...) // the length in more bytes than it needs
	return map[string][]byte{
		"empty": {}, "cut off": whole[:len(whole)-1], "more behind it": append(append([]byte{}, whole...), 0), "BER": long,
		"a short cluster": der(afterDER{testCluster[:15], 100, 100}), "no cluster": der(afterDER{make([]byte, 16), 100, 100}),
		"no time": der(afterDER{testCluster[:], 0, 100}), "a negative time": der(afterDER{testCluster[:], 100, -1}),
		"a field more": der(struct {
			C    []byte
			A, B int64
			D    int
		}{testCluster[:], 100, 100, 1}),
		"a large number": der(struct {
			C    []byte
			A, B int64
			D    []byte
		}{testCluster[:], 1, 1, make([]byte, 1<<10)}),
	}
}

func TestMalformedAfter(t *testing.T) {
	a := authority(t, Clients)
	refused := func(name string, e pkix.Extension) {
		t.Helper()
		_, err := parseAfter(e)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "issue another") {
			t.Errorf("%s: got %v, want %v", name, err, ErrMalformed)
		}
	}
	for name, value := range malformed() {
		refused(name, pkix.Extension{Id: afterOID, Value: value})
	}
	good, err := After{testCluster, 1<<63 - 1, 1<<63 - 1}.extension()
	if err != nil || len(good.Value) != maxAfter {
		t.Errorf("the longest value has %d bytes, want %d; %v", len(good.Value), maxAfter, err)
	}
	if good.Critical {
		t.Error("older programs refuse a critical extension")
	}
	good.Critical = true
	refused("critical", good)

	// In a certificate: Verify says it, and what a keeper reads of its own.
	c := issueAfter(t, a, After{testCluster, 100, 100})
	for i, e := range c.Extensions {
		if e.Id.Equal(afterOID) {
			c.Extensions[i].Value = e.Value[1:]
		}
	}
	trust, err := NewTrust([]*x509.Certificate{a.Certificate}, Revocations{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Verify([]*x509.Certificate{c}, x509.ExtKeyUsageClientAuth, testNow); !errors.Is(err, ErrMalformed) {
		t.Errorf("the other side's: got %v, want %v", err, ErrMalformed)
	}
	if got := revocations(firstRevocation).Covers(c, testServer); got != "server:s2" {
		t.Errorf("a malformed one is covered by %q", got)
	}
	if _, err := a.Issue(Order{Identity: testServer, Key: c.PublicKey, Life: Life, After: After{Cluster: testCluster}}, testNow, rand.Reader); err == nil {
		t.Error("a certificate was issued after a revocation without a time")
	}
}

func FuzzAfter(f *testing.F) {
	for _, value := range malformed() {
		f.Add(value)
	}
	whole, err := After{testCluster, 100, 100}.extension()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Value)
	f.Fuzz(func(t *testing.T, value []byte) {
		a, err := parseAfter(pkix.Extension{Id: afterOID, Value: value})
		if err != nil {
			if !errors.Is(err, ErrMalformed) || !a.IsZero() {
				t.Errorf("got %+v, %v", a, err)
			}
			return
		}
		if again, err := a.extension(); err != nil || string(again.Value) != string(value) {
			t.Errorf("%x was read as %+v, which is %x, %v", value, a, again.Value, err)
		}
	})
}
