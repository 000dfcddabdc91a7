package matrix

import (
	"net/url"
	"strings"
	"testing"

	"rutter/log"
)

func TestIdentityURI(t *testing.T) {
	cn := log.UUID{1, 2, 3}
	for _, want := range []Identity{
		{Role: Server, Name: "s1"},
		{Role: CN, UUID: cn},
		{Role: Operator, Name: "anna@example.org"},
		{Role: Reader, Name: "grafana"},
	} {
		u, err := want.URI()
		if err != nil {
			t.Fatalf("%v: %v", want, err)
		}
		again, err := url.Parse(u.String())
		if err != nil {
			t.Fatal(err)
		}
		got, err := FromURIs([]*url.URL{{Scheme: "https", Host: "x"}, again}, "ab")
		want.Serial = "ab"
		if err != nil || got.Role != want.Role || got.Name != want.Name || got.UUID != want.UUID || got.Serial != "ab" {
			t.Errorf("%s: got %+v, %v, want %+v", u, got, err, want)
		}
	}
	for _, id := range []Identity{{}, {Role: Local}, {Role: Foreign, Name: "x"}, {Role: Join, Name: "x"}, {Role: CN}, {Role: Operator}, {Role: Operator, Name: "a/b"}, {Role: Reader, Name: strings.Repeat("x", MaxName+1)}} {
		if u, err := id.URI(); err == nil {
			t.Errorf("%+v got the URI %s, want an error", id, u)
		}
	}
}

func TestIdentityRefusesURIs(t *testing.T) {
	for _, text := range []string{
		"rutter://operator", "rutter://operator/", "rutter://root/x", "rutter://cn/x", "rutter:operator/x",
		"rutter://operator/a/b", "rutter://u@operator/x", "rutter://operator/x?y", "rutter://operator/x#y", "rutter://operator/a%0ab", "rutter://local/x", "https://operator/x",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := FromURIs([]*url.URL{u}, ""); err == nil {
			t.Errorf("%s is %+v, want an error", text, id)
		}
	}
	two := []*url.URL{{Scheme: Scheme, Host: "operator", Path: "/a"}, {Scheme: Scheme, Host: "reader", Path: "/a"}}
	if id, err := FromURIs(two, ""); err == nil {
		t.Errorf("two identities in one certificate are %+v, want an error", id)
	}
}
