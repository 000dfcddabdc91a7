package console

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"rutter/api/auth/matrix"
	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

// everyWay is what a page of another site does to each server of bases: forms, fetches with
// and without a question before, beacons, pictures, scripts, frames and a WebSocket. It
// returns what it learned, one line each.
const everyWay = `(async (bases) => JSON.stringify(await Promise.all(bases.map(async (base) => {
  const got = [], loads = [], body = '{"name": "evil", "uuid": "00000000-0000-4000-8000-00000000e111"}';
  const paths = ['/nic_tags', '/napi/nic_tags', '/servers/00000000-0000-4000-8000-00000000e111/sysinfo'];
  const ask = async (what, path, init) => {
    try {
      const r = await fetch(base + path, init);
      got.push([what, path, r.type, r.status, r.type === 'opaque' ? '' : (await r.text()).slice(0, 80)].join(' '));
    } catch (e) { got.push(what + ' ' + path + ' failed'); }
  };
  const once = (element, attribute, value) => new Promise((done) => {
    element.onload = element.onerror = () => done();
    setTimeout(done, 5000); // a frame whose answer is downloaded never loads
    element[attribute] = value;
    document.body.append(element);
  });
  const form = (path, enctype) => new Promise((done) => {
    const frame = document.createElement('iframe'), f = document.createElement('form'), i = document.createElement('input');
    frame.name = 'f' + Math.random();
    document.body.append(frame);
    frame.onload = () => done();
    setTimeout(done, 5000);
    Object.assign(f, {method: 'POST', action: base + path, enctype, target: frame.name});
    Object.assign(i, {name: body.slice(0, -1) + ', "x": "', value: '"}'});
    f.append(i);
    document.body.append(f);
    f.submit();
  });
  const reads = ['/snapshot', '/networks', '/manage/gc', '/napi/manage/gc'];
  for (const path of reads) {
    for (const element of ['img', 'script', 'iframe']) loads.push(once(document.createElement(element), 'src', base + path));
  }
  for (const path of paths) {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) loads.push(form(path, type));
    await ask('text', path, {method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'}, body});
    await ask('mixed', path, {method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain;application/json'}, body});
    await ask('untyped', path, {method: 'POST', mode: 'no-cors', body: new Blob([body])});
    await ask('credentials', path, {method: 'POST', mode: 'no-cors', credentials: 'include', body: new Blob([body])});
    for (const method of ['POST', 'PUT', 'DELETE']) await ask('json', path, {method, headers: {'Content-Type': 'application/json'}, body});
    navigator.sendBeacon(base + path, new Blob([body]));
  }
  for (const path of reads) {
    await ask('get', path, {});
    await ask('get with credentials', path, {credentials: 'include'});
    await ask('get unseen', path, {mode: 'no-cors'});
  }
  for (const path of ['/changefeeds', '/napi/changefeeds', '/feed', '/write']) {
    await new Promise((done) => {
      const s = new WebSocket(base.replace('http', 'ws') + path);
      s.onopen = () => { got.push('WebSocket ' + path + ' opened'); s.close(); done(); };
      s.onerror = () => done();
    });
  }
  await Promise.all(loads);
  return got;
}))))(%s)`

// ways are what a listener of the test received. It accepts WebSockets: Chromium delays
// those of a page that failed so often, some seconds each.
type ways struct {
	mu  sync.Mutex
	all []string
}

func (w *ways) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	w.all = append(w.all, r.Method+" "+media+" "+r.Header.Get("Sec-Fetch-Dest")+r.Header.Get("Upgrade"))
	if key := r.Header.Get("Sec-WebSocket-Key"); key != "" {
		conn, _, err := http.NewResponseController(answer).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, section 1.3
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	}
}

// withCertificate passes requests on to a server with TLS, with an operator's
// certificate, as the browser of an operator shows it. Nothing else of them changes.
func withCertificate(t *testing.T, c *bench.Cluster) string {
	t.Helper()
	own, err := c.Authority.Certificate(matrix.Identity{Role: matrix.Operator, Name: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(c.Servers[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		// The server is one of this test.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{*own}, InsecureSkipVerify: true}},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return s.URL
}

// A page of another site reads nothing and writes nothing, although the browser shows an
// operator's certificate, or the listener has no need of one. Nor does a page whose own
// name was moved to the server's address. The console still reads, and only reads.
func TestHostilePages(t *testing.T) {
	b, ctx := browser(t, chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1"))
	ports, err := bench.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	napi, cnapi := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	secret := rig.Cluster(t, bench.Options{Program: rutter, Servers: 1, TLS: true, Flags: []string{"--napi=" + napi, "--cnapi=" + cnapi}})
	plain := rig.Cluster(t, bench.Options{Program: rutter, Servers: 1})
	control := new(ways)
	permissive := httptest.NewServer(control)
	defer permissive.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>evil</title><body>")
	}))
	defer page.Close()
	evil := strings.Replace(page.URL, "127.0.0.1", "evil.example", 1)
	targets := []string{plain.Servers[0].URL, withCertificate(t, secret), "http://" + napi, "http://" + cnapi}

	before := heads(t, ctx, plain, secret)
	if err := b.Do(ctx, chromedp.Navigate(evil)); err != nil {
		t.Fatal(err)
	}
	bases := append([]string{permissive.URL}, targets...)
	list, err := json.Marshal(bases)
	if err != nil {
		t.Fatal(err)
	}
	var learned [][]string
	if err := json.Unmarshal([]byte(textOf(t, b, ctx, fmt.Sprintf(everyWay, list))), &learned); err != nil || len(learned) != len(bases) {
		t.Fatal(len(learned), err)
	}
	for i, base := range bases {
		for _, line := range learned[i] {
			if base != permissive.URL && !strings.HasSuffix(line, " failed") && !strings.Contains(line, " opaque 0") {
				t.Errorf("%s: a page of another site learned: %s", base, line)
			}
		}
	}
	control.check(t)
	for _, base := range targets {
		rebound(t, b, ctx, base)
	}
	if after := heads(t, ctx, plain, secret); after != before {
		t.Errorf("something was written: the heads are %s, and were %s", after, before)
	}
	for _, base := range targets[:2] {
		consoleReads(t, b, ctx, evil, base)
	}
	if after := heads(t, ctx, plain, secret); after != before {
		t.Errorf("something was written by the console's origin: the heads are %s, and were %s", after, before)
	}
}

// heads are the heads of the logs, and the tags in them.
func heads(t *testing.T, ctx context.Context, clusters ...*bench.Cluster) string {
	t.Helper()
	var all []string
	for _, c := range clusters {
		head, err := c.Client.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprint(head))
	}
	return strings.Join(all, " ")
}

// check fails unless the browser really sent what servers must refuse.
func (w *ways) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, want := range []string{
		"POST text/plain iframe", "POST application/x-www-form-urlencoded iframe", "POST multipart/form-data iframe", "POST text/plain empty", "POST  empty",
		"GET  image", "GET  script", "GET  iframe", "GET  empty", "OPTIONS  empty", "GET  websocket",
	} {
		if !slices.Contains(w.all, want) {
			t.Errorf("the page never sent %q; it sent %q", want, slices.Compact(slices.Sorted(slices.Values(w.all))))
		}
	}
}

// rebound asks a server as a page does whose name was moved to the server's address.
func rebound(t *testing.T, b *Browser, ctx context.Context, base string) {
	t.Helper()
	moved := strings.Replace(base, "127.0.0.1", "rebound.example", 1)
	if err := b.Do(ctx, chromedp.Navigate(moved+"/ping")); err != nil {
		t.Fatal(err)
	}
	if origin := textOf(t, b, ctx, "location.origin"); origin != moved {
		t.Fatalf("the page is of %s, want %s", origin, moved)
	}
	for _, path := range []string{"/snapshot", "/networks", "/log/state", "/ping", "/servers", "/console/", "/metrics"} {
		got := textOf(t, b, ctx, fmt.Sprintf("fetch(%q).then(async (r) => r.status + ' ' + await r.text())", path))
		if !strings.HasPrefix(got, "421 ") || !strings.Contains(got, "--host-name rebound.example") {
			t.Errorf("%s%s: a page with a moved name read %.200s", moved, path, got)
		}
	}
	for _, path := range []string{"/nic_tags", "/napi/nic_tags"} {
		got := textOf(t, b, ctx, fmt.Sprintf(`fetch(%q, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{"name": "evil"}'}).then((r) => r.status)`, path))
		if got != "421" {
			t.Errorf("%s%s: a page with a moved name wrote: %s", moved, path, got)
		}
	}
}

// consoleReads opens the console by a link of another site, reads, and tries to write.
func consoleReads(t *testing.T, b *Browser, ctx context.Context, evil, base string) {
	t.Helper()
	if err := b.Do(ctx, chromedp.Navigate(evil)); err != nil {
		t.Fatal(err)
	}
	textOf(t, b, ctx, fmt.Sprintf("(setTimeout(() => { location.href = %q }, 0), 1)", base+"/console"))
	for ctx.Err() == nil { // a question fails while the page changes
		if at, err := b.Text(ctx, "location.href"); err == nil && strings.HasPrefix(at, base+"/console/") {
			break
		}
	}
	await(t, b, ctx, "document.querySelector('.allwell, .problems')")
	if got := textOf(t, b, ctx, "fetch('/nic_tags').then((r) => r.status)"); got != "200" {
		t.Errorf("%s: the console reads: %s", base, got)
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		got := textOf(t, b, ctx, fmt.Sprintf(`fetch('/nic_tags/evil', {method: %q, headers: {'Content-Type': 'application/json'}, body: '{"name": "evil"}'}).then(async (r) => r.status + await r.text())`, method))
		if !strings.HasPrefix(got, "403") || !strings.Contains(got, "BrowserReadOnly") {
			t.Errorf("%s: %s by the console's origin: %s", base, method, got)
		}
	}
	if got := textOf(t, b, ctx, "fetch('/napi/manage/gc').then((r) => r.status)"); got != "403" && got != "404" {
		t.Errorf("%s: the garbage collector run by a browser: %s", base, got)
	}
}
