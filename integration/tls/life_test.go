package tls

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/term"
	"rutter/integration/rig"
	"rutter/log"
)

// issueAged is issue, some time ago.
func (w *world) issueAged(name string, id matrix.Identity, life, ago time.Duration) {
	w.t.Helper()
	w.must(os.MkdirAll(w.path(name), tlsgate.FolderMode))
	sets := map[string]tlsgate.Paths{pki.Clients: tlsgate.ClientPaths(w.path(name))}
	if id.Role == matrix.Server {
		sets[pki.Peers] = tlsgate.PeerPaths(w.path(name))
	}
	for set, paths := range sets {
		list, err := w.office.Authorities(set)
		w.must(err)
		key, err := paths.NextKey()
		w.must(err)
		leaf, err := list[0].Issue(pki.Order{Identity: id, Key: key.Public(), Life: life}, time.Now().Add(-ago), rand.Reader)
		w.must(err)
		w.must(errors.Join(tlsgate.WriteCertificates(paths.CA, list[0].Certificate), paths.Install(leaf)))
	}
}

// A server whose certificates end soon, and which cannot renew them, says so.
func TestExpiry(t *testing.T) {
	t.Parallel()
	w := &world{t: t, folder: t.TempDir()}
	w.office = tlsgate.Issuer{Folder: w.path("pki")}
	w.must(w.office.Init(pki.AuthorityLife))
	w.issueAged("s1", matrix.Identity{Role: matrix.Server, Name: "s1"}, time.Hour, 50*time.Minute)
	end := time.Now().Add(10 * time.Minute)
	w.raft, w.urls = []string{rig.Address(t)}, []string{"https://" + rig.Address(t)}
	w.start("s1", 0, "--bootstrap")
	w.issue("ada", matrix.Identity{Role: matrix.Operator, Name: "ada"}, pki.Life)
	w.api = w.client("ada", w.urls...)
	w.must(w.write(t.Context(), "first"))
	for _, what := range []string{"the certificate of server:s1 (clients) ends in 9m", "the certificate of server:s1 (peers) ends in 9m"} {
		if text := w.get("ada", "/readyz?verbose"); !strings.Contains(text, what) {
			t.Errorf("/readyz?verbose does not say %q: %s", what, text)
		}
	}
	metrics := w.get("ada", "/metrics")
	for _, set := range []string{pki.Clients, pki.Peers} {
		_, value, _ := strings.Cut(metrics, fmt.Sprintf(`rutter_tls_not_after_seconds{authority=%q,subject="own"} `, set))
		var at float64
		if _, err := fmt.Sscan(value, &at); err != nil || at < float64(end.Unix())-60 || at > float64(end.Unix())+60 {
			t.Errorf("the metric of the end of %s is %v (%v), want about %d", set, at, err, end.Unix())
		}
	}
	if !strings.Contains(metrics, "rutter_warnings ") || strings.Contains(metrics, "rutter_warnings 0\n") {
		t.Error("rutter_warnings counts none of them")
	}
	// With certificates that are fresh the warnings are gone, without a restart.
	w.issue("s1", matrix.Identity{Role: matrix.Server, Name: "s1"}, pki.Life)
	for deadline := time.Now().Add(finishPatience); strings.Contains(w.get("ada", "/readyz?verbose"), "ends in"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the warnings stay with the new certificates")
		}
	}
}

// get returns the text at a path of the first server.
func (w *world) get(name, path string) string {
	w.t.Helper()
	return w.getOf(w.urls[0], name, path)
}

// getOf returns the text at a path of a server.
func (w *world) getOf(url, name, path string) string {
	w.t.Helper()
	transport := &http.Transport{DialTLSContext: term.DialServer(w.keeper(name)), DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url+path, nil)
	w.must(err)
	answer, err := (&http.Client{Transport: transport}).Do(request)
	w.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	w.must(err)
	return string(text)
}

// wire forwards connections to an address while it is whole.
type wire struct {
	net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	tried int // connections while it was cut
	conns map[net.Conn]struct{}
}

func newWire(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, to: to, conns: make(map[net.Conn]struct{})}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go w.forward(conn)
		}
	}()
	t.Cleanup(func() { w.set(true); l.Close() })
	return w
}

func (w *wire) forward(a net.Conn) {
	defer a.Close()
	b, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer b.Close()
	w.mu.Lock()
	if w.cut {
		w.tried++
		w.mu.Unlock()
		return
	}
	w.conns[a], w.conns[b] = struct{}{}, struct{}{}
	w.mu.Unlock()
	go func() {
		_, _ = io.Copy(b, a)
		b.Close()
	}()
	_, _ = io.Copy(a, b)
}

// set cuts the wire, or mends it.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for conn := range w.conns {
			conn.Close()
		}
		clear(w.conns)
	}
}

// tries is how many connections were wanted while it was cut.
func (w *wire) tries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tried
}

// Lives of the nodes' certificates here: renewal is due before two thirds of it.
const (
	nearLife = 24 * time.Second // of the node that is never cut off
	farLife  = 30 * time.Second // of the one that is: 10 s are left when it first asks
)

// Agents renew their certificates; one that is cut off when that is due does so
// as soon as it is back.
func testAgents(t *testing.T, w *world) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: an agent works on the kernel's links")
	}
	broken := newWire(t, strings.TrimPrefix(w.urls[1], "https://"))
	near, far := log.UUID{12}, log.UUID{13}
	w.issue("near", matrix.Identity{Role: matrix.CN, UUID: near}, nearLife)
	w.issue("far", matrix.Identity{Role: matrix.CN, UUID: far}, farLife)
	w.agent("near", near, w.urls[0])
	due := time.Now().Add(farLife * 2 / 3)
	w.agent("far", far, "https://"+broken.Addr().String())
	w.awaitSession(far)
	broken.set(true)
	w.awaitLife("near", near)
	for tried := broken.tries(); time.Now().Before(due) || broken.tries() == tried; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(due.Add(finishPatience)) {
			t.Fatal("the node that is cut off does not try to renew")
		}
	}
	broken.set(false)
	w.awaitLife("far", far)
	w.awaitSession(far)
}

// agent starts one.
func (w *world) agent(name string, cn log.UUID, url string) {
	w.t.Helper()
	folder := w.path("agent-" + name)
	w.must(os.MkdirAll(folder, 0o700))
	launch(w.t, w.folder, "agent-"+name, "agent", "--cn", cn.String(), "--servers", url, "--tls-dir", w.path(name), "--data", folder,
		"--svp", "off", "--listen", "off", "--vminfod", "off", "--manifests", "off", "--netns", w.path("netns"), "--etc-netns", w.path("etc-netns"))
}

// awaitLife waits until the certificate in a folder is one of the servers', which
// live longer than any that is issued here by hand to a node.
func (w *world) awaitLife(name string, cn log.UUID) {
	w.t.Helper()
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(100 * time.Millisecond) {
		list, err := tlsgate.ReadCertificates(tlsgate.ClientPaths(w.path(name)).Cert)
		w.must(err)
		if left := time.Until(list[0].NotAfter); left > nodeLife-10*time.Minute && left < nodeLife {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the certificate of %s (%s) is not renewed: until %v", name, cn, list[0].NotAfter)
		}
	}
}

func (w *world) awaitSession(cn log.UUID) {
	w.t.Helper()
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(100 * time.Millisecond) {
		sessions, err := w.api.EverySession(w.t.Context())
		w.must(err)
		for _, s := range sessions {
			if s.CN == cn {
				return
			}
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the agent of %s has no session: %+v", cn, sessions)
		}
	}
}
