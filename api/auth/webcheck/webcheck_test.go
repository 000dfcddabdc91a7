package webcheck

import (
	"bufio"
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// asked reads a request as a server does.
func asked(t *testing.T, text string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return r
}

// A path with two readings is refused; what programs really ask for is not.
func TestPath(t *testing.T) {
	for _, path := range []string{
		"/", "/nics", "/console/", "/nics/90:b8:d0:00:00:01", "/grants/foreign:10.0.0.0/8", "/nics/aa?x=a%2fb", "/nic_tags/a%20b", "/a.b/..c", "/tags/%252f",
		"/vms/", "/cnapi/servers/x/vms",
	} {
		if refusal := Path(asked(t, "GET "+path+" HTTP/1.1\nHost: x")); refusal != nil {
			t.Errorf("%s: %v", path, refusal)
		}
	}
	for _, path := range []string{
		"/cnapi/servers/UUID%2f..%2f..%2f..%2fping", "/a%2Fb", "/a%5cb", "/a%5Cb", "/a\\b", "//nics", "/nics//x", "/nics//", "/./nics", "/a/..", "/a/../b", "/a/.", "/%2e%2e/ping",
		"/a/%2E/b", "/a/.%2e/b", "/a%00", "/a%0ab", "/a%7f", "*", "/a/%2e%2e%2fb",
	} {
		r := asked(t, "GET "+path+" HTTP/1.1\nHost: x")
		if refusal := Path(r); refusal == nil || refusal.Status != http.StatusBadRequest || refusal.Remedy == "" {
			t.Errorf("%s is accepted: %v", path, refusal)
		}
	}
	if refusal := Path(asked(t, "CONNECT 10.0.0.1:80 HTTP/1.1\nHost: 10.0.0.1:80")); refusal == nil {
		t.Error("CONNECT is accepted")
	}
}

// What a page of another site causes is refused with every method, and a browser never
// writes. Programs without these headers pass.
func TestOrigin(t *testing.T) {
	const page = "\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document"
	for _, c := range []struct{ name, request, code string }{
		{"curl reads", "GET /nics HTTP/1.1\nHost: a:1", ""},
		{"curl writes", "POST /nics HTTP/1.1\nHost: a:1", ""},
		{"the console reads", "GET /nics HTTP/1.1\nHost: a:1\nSec-Fetch-Site: same-origin\nSec-Fetch-Mode: cors", ""},
		{"an address that was typed", "GET /status HTTP/1.1\nHost: a:1\nSec-Fetch-Site: none" + page, ""},
		{"a link to the console", "GET /console/ HTTP/1.1\nHost: a:1\nSec-Fetch-Site: cross-site" + page, ""},
		{"a link to its files", "GET /console/reader.js HTTP/1.1\nHost: a:1\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: script", CodeOrigin},
		{"a frame with the console", "GET /console/ HTTP/1.1\nHost: a:1\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe", CodeOrigin},
		{"a form to the console", "POST /console/ HTTP/1.1\nHost: a:1\nOrigin: https://evil.example\nSec-Fetch-Site: cross-site" + page, CodeOrigin},
		{"a link to data", "GET /log/state HTTP/1.1\nHost: a:1\nSec-Fetch-Site: cross-site" + page, CodeOrigin},
		{"a link to what only begins like the console", "GET /consoles HTTP/1.1\nHost: a:1\nSec-Fetch-Site: cross-site" + page, CodeOrigin},
		{"an image", "GET /napi/manage/gc HTTP/1.1\nHost: a:1\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image", CodeOrigin},
		{"another port", "GET /nics HTTP/1.1\nHost: a:1\nSec-Fetch-Site: same-site", CodeOrigin},
		{"a fetch", "GET /nics HTTP/1.1\nHost: a:1\nOrigin: https://evil.example", CodeOrigin},
		{"a WebSocket", "GET /changefeeds HTTP/1.1\nHost: a:1\nUpgrade: websocket\nOrigin: http://evil.example", CodeOrigin},
		{"a question before a fetch", "OPTIONS /nics HTTP/1.1\nHost: a:1\nOrigin: https://evil.example\nAccess-Control-Request-Method: PUT", CodeOrigin},
		{"a form", "POST /nics HTTP/1.1\nHost: a:1\nOrigin: https://evil.example\nSec-Fetch-Site: cross-site", CodeOrigin},
		{"a form of a browser without Sec-Fetch-Site", "POST /nics HTTP/1.1\nHost: a:1\nOrigin: https://evil.example", CodeOrigin},
		{"a form of a page without an origin", "POST /nics HTTP/1.1\nHost: a:1\nOrigin: null", CodeOrigin},
		{"the same site writes", "POST /nics HTTP/1.1\nHost: a:1\nOrigin: http://a:1\nSec-Fetch-Site: same-origin", CodeReadOnly},
		{"the same site deletes", "DELETE /nics/a HTTP/1.1\nHost: a:1\nOrigin: http://a:1", CodeReadOnly},
	} {
		refusal := Origin(asked(t, c.request))
		if got := codeOf(refusal); got != c.code {
			t.Errorf("%s: %q, want %q", c.name, got, c.code)
		}
	}
}

func codeOf(refusal *Refusal) string {
	if refusal == nil {
		return ""
	}
	return refusal.Code
}

// A server is asked by its own addresses and names only.
func TestHosts(t *testing.T) {
	names, err := ParseHosts([]string{"NAPI.coal.example.com.", "192.0.2.9", "[2001:db8::1]"})
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{DNSNames: []string{"rutter-1.example.com"}, IPAddresses: []net.IP{net.ParseIP("198.51.100.7")}}
	h := NewHosts(&net.TCPAddr{IP: net.IPv4zero, Port: 7420}, Names{names, func() *x509.Certificate { return leaf }, "host-name"})
	plain := NewHosts(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7420}, Names{Setting: "host-name"})
	for _, c := range []struct {
		h        *Hosts
		at, host string
		ok       bool
	}{
		{h, "10.0.0.1", "10.0.0.1:7420", true},
		{h, "10.0.0.1", "10.0.0.2:7420", false},
		{h, "10.0.0.1", "napi.coal.example.com", true},
		{h, "10.0.0.1", "napi.COAL.example.com.:80", true},
		{h, "10.0.0.1", "192.0.2.9", true},
		{h, "10.0.0.1", "[2001:db8::1]:80", true},
		{h, "10.0.0.1", "rutter-1.example.com:7420", true},
		{h, "10.0.0.1", "198.51.100.7", true},
		{h, "10.0.0.1", "evil.example", false},
		{h, "10.0.0.1", "localhost", false},
		{h, "10.0.0.1", "0.0.0.0", false},
		{plain, "127.0.0.1", "127.0.0.1:7420", true},
		{plain, "127.0.0.1", "localhost:9999", true}, // through a forwarded port
		{plain, "127.0.0.1", "[::1]:7420", true},
		{plain, "127.0.0.1", "", true},
		{h, "fe80::1", "[fe80::1%25eth0]:7420", true},
		{h, "fe80::1", "[fe80::1%eth0]:7420", true},
		{h, "fe80::1", "[fe80::1]:7420", true},
		{h, "fe80::1", "[fe80::2%25eth0]:7420", false},
		{h, "10.0.0.1", ":7420", false},
		{h, "10.0.0.1", "::1", false},
		{plain, "127.0.0.1", "rebound.evil.example:7420", false},
		{plain, "127.0.0.1", "localhost.evil.example", false},
		{plain, "127.0.0.1", "127.0.0.1.evil.example", false},
		{plain, "127.0.0.1", "0.0.0.0:7420", false},
		{plain, "127.0.0.1", "10.0.0.1", false},
	} {
		r := asked(t, "GET /snapshot HTTP/1.1\nHost: "+c.host)
		at := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.at), 7420))
		refusal := c.h.Check(r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(at))))
		if (refusal == nil) != c.ok {
			t.Errorf("asked as %q at %s: %v, want accepted %v", c.host, c.at, refusal, c.ok)
		}
		if refusal != nil && (refusal.Status != http.StatusMisdirectedRequest || !strings.Contains(refusal.Remedy, "--host-name")) {
			t.Errorf("%q: %d, %s: the refusal does not name the setting", c.host, refusal.Status, refusal.Remedy)
		}
	}
	for _, name := range []string{"", "a/b", "a:80", "http://a", "a b", strings.Repeat("a", 254)} {
		if got, err := ParseHosts([]string{name}); err == nil {
			t.Errorf("%q is taken as %q", name, got)
		}
	}
	if _, err := ParseHosts(make([]string, MaxHosts+1)); err == nil {
		t.Error("a list over the bound is taken")
	}
}

// Types that a page can send without being asked are refused everywhere; ours must name
// theirs.
func TestBody(t *testing.T) {
	for _, c := range []struct {
		media        string
		ours, triton bool
	}{
		{"", false, true},
		{"application/json", true, true},
		{"application/json; charset=utf-8", true, true},
		{"application/merge-patch+json", true, true},
		{"text/plain", false, false},
		{"text/plain;application/json", false, false}, // a browser takes it for text/plain
		{"Text/Plain; charset=utf-8", false, false},
		{"application/x-www-form-urlencoded", false, false},
		{"multipart/form-data; boundary=x", false, false},
		{"application/octet-stream", false, true},
	} {
		r := asked(t, "POST /nics HTTP/1.1\nHost: a\nContent-Length: 2")
		if c.media != "" {
			r.Header.Set("Content-Type", c.media)
		}
		if got := Body(r, Ours) == nil; got != c.ours {
			t.Errorf("%q on our paths: accepted %v", c.media, got)
		}
		if got := Body(r, Triton) == nil; got != c.triton {
			t.Errorf("%q on Triton's: accepted %v", c.media, got)
		}
		if Body(asked(t, "POST /nics HTTP/1.1\nHost: a"), Ours) != nil {
			t.Error("a request without a body is refused")
		}
	}
}
