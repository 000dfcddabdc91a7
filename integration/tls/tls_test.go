package tls

import (
	"context"
	stdtls "crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/pkiclient"
	"rutter/cmd/rutter/subprocess"
	"rutter/cmd/rutter/term"
	"rutter/integration/rig"
	"rutter/log"
)

// rutter is the program, which TestMain builds.
var rutter string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &rutter)) }

// life of the servers' certificates here: renewal after a change of authority is
// spread over a twentieth of it.
const life = 3 * time.Minute

// nodeLife is that of the certificates that the servers issue to compute nodes.
const nodeLife = time.Hour

// finishPatience is how long all servers may take to renew after a rotation.
const finishPatience = time.Minute

// world is a cluster of three with an operator.
type world struct {
	t       *testing.T
	folder  string
	office  tlsgate.Issuer
	raft    []string
	urls    []string
	napi    []string // of listeners without TLS, which let clients in only by grants
	servers []*subprocess.Process
	api     *client.Client
}

func (w *world) path(names ...string) string {
	return filepath.Join(append([]string{w.folder}, names...)...)
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, folder: t.TempDir()}
	w.office = tlsgate.Issuer{Folder: w.path("pki")}
	if err := w.office.Init(pki.AuthorityLife); err != nil {
		t.Fatal(err)
	}
	var peers []string
	for i := range 3 {
		w.raft = append(w.raft, rig.Address(t))
		w.urls = append(w.urls, "https://"+rig.Address(t))
		w.napi = append(w.napi, rig.Address(t))
		peers = append(peers, fmt.Sprintf("s%d=%s", i+1, w.raft[i]))
	}
	for i := range 3 {
		id := fmt.Sprintf("s%d", i+1)
		w.issue(id, matrix.Identity{Role: matrix.Server, Name: id}, life)
		w.start(id, i, "--peers", strings.Join(peers, ","), "--napi", w.napi[i], "--triton-allow", "192.0.2.0/24=read")
	}
	w.issue("ada", matrix.Identity{Role: matrix.Operator, Name: "ada"}, pki.Life)
	w.api = w.client("ada", w.urls...)
	w.must(w.write(t.Context(), "first"))
	for _, url := range w.urls {
		w.awaitOffice(url)
	}
	return w
}

// awaitOffice waits until a server knows the authorities, and so can sign.
func (w *world) awaitOffice(url string) {
	w.t.Helper()
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(50 * time.Millisecond) {
		text := w.getOf(url, "ada", "/pki/bundle")
		if strings.Contains(text, "BEGIN CERTIFICATE") {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s signs nothing: %s", url, text)
		}
	}
}

// launch starts rutter, which is stopped with the test; what it says goes to
// NAME.log in the folder.
func launch(t *testing.T, folder, name string, args ...string) *subprocess.Process {
	t.Helper()
	p := &subprocess.Process{Name: name, Program: rutter, LogFile: filepath.Join(folder, name+".log"), Args: args}
	rig.Start(t, p)
	return p
}

// start starts a server with the certificates in the folder of its name.
func (w *world) start(id string, i int, args ...string) {
	w.t.Helper()
	w.servers = append(w.servers, launch(w.t, w.folder, id, append([]string{
		"server", "--id", id, "--data", w.path("data-" + id), "--listen", strings.TrimPrefix(w.urls[i], "https://"),
		"--raft", w.raft[i], "--svp", "off", "--tls-dir", w.path(id), "--cert-life", nodeLife.String(),
	}, args...)...))
}

// in is the same world for a part of the test.
func (w *world) in(t *testing.T) *world {
	part := *w
	part.t = t
	return &part
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// issue gives an identity a folder of certificates.
func (w *world) issue(name string, id matrix.Identity, life time.Duration) {
	w.t.Helper()
	_, err := w.office.Issue(w.path(name), tlsgate.Grant{Identity: id, Life: life, WithKeys: true})
	w.must(err)
}

func (w *world) keeper(name string) *tlsgate.Keeper {
	w.t.Helper()
	k, err := tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(w.path(name)), Name: pki.Clients})
	w.must(err)
	return k
}

// client is one with the certificate in a folder.
func (w *world) client(name string, urls ...string) *client.Client {
	w.t.Helper()
	c, err := client.New(client.Config{Servers: urls, DialTLS: term.DialServer(w.keeper(name))})
	w.must(err)
	w.t.Cleanup(c.Close)
	return c
}

// write makes a NIC tag.
func (w *world) write(ctx context.Context, name string) error {
	_, err := w.api.Create(ctx, "/nic_tags", fmt.Appendf(nil, `{"name": %q}`, name))
	return err
}

// run runs a command as the operator.
func (w *world) run(args ...string) error {
	cmd := exec.CommandContext(w.t.Context(), rutter, args...)
	cmd.Env = w.environment("ada")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("rutter %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// environment is that of a command with the certificate in a folder.
func (w *world) environment(name string) []string {
	return append(os.Environ(), "RUTTER_TLS_DIR="+w.path(name), "RUTTER_SERVER="+strings.Join(w.urls, ","))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"ports", testPorts},
		{"tokens", testTokens},
		{"revocation", testRevocation},
		{"cuts", testCuts},
		{"grants", testGrantCuts},
		{"programs", testProgramCuts},
		{"others' objects", testOthers},
		{"placement", testPlacement},
		{"commands", testRefusedCommand},
		{"rotation", testRotation},
		{"agents", testAgents},
		{"revoked server", testRevokedServer},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, w.in(t)) })
	}
}

// said connects with a certificate and returns why the other side refused it, nil if it
// did not within a time.
func said(address string, certificate *stdtls.Certificate, within time.Duration) error {
	config := &stdtls.Config{InsecureSkipVerify: true}
	if certificate != nil { // whatever authorities are asked for
		config.GetClientCertificate = func(*stdtls.CertificateRequestInfo) (*stdtls.Certificate, error) { return certificate, nil }
	}
	conn, err := stdtls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(within))
	if _, err = conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // let in: it waits for our first byte
	}
	return err
}

// The raft port takes servers' peer certificates, and nothing of the API's authority.
func testPorts(t *testing.T, w *world) {
	w.issue("node", matrix.Identity{Role: matrix.CN, UUID: log.UUID{7}}, pki.Life)
	for name, c := range map[string]struct {
		certificate *stdtls.Certificate
		in          bool
	}{
		"nobody":                   {nil, false},
		"an operator":              {w.load(tlsgate.ClientPaths(w.path("ada"))), false},
		"a compute node":           {w.load(tlsgate.ClientPaths(w.path("node"))), false},
		"a server's for the API":   {w.load(tlsgate.ClientPaths(w.path("s2"))), false},
		"a server's for its peers": {w.load(tlsgate.PeerPaths(w.path("s2"))), true},
	} {
		within := finishPatience
		if c.in {
			within = time.Second // it cannot be waited for that nothing comes
		}
		if err := said(w.raft[0], c.certificate, within); (err == nil) != c.in {
			t.Errorf("%s at the raft port: %v, want in %v", name, err, c.in)
		}
	}
	api := strings.TrimPrefix(w.urls[0], "https://")
	if err := said(api, w.load(tlsgate.PeerPaths(w.path("s2"))), finishPatience); err == nil {
		t.Error("a peer certificate was taken at the API")
	}
	conn, err := stdtls.Dial("tcp", api, &stdtls.Config{InsecureSkipVerify: true})
	w.must(err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /nics HTTP/1.0\r\n\r\n")
	w.must(err)
	if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), " 403 ") {
		t.Errorf("without a certificate: %q, %v; want 403", answer, err)
	}
}

// token makes a token, and returns it with the hash of the authority.
func (w *world) token(cn log.UUID) (pki.Token, string) {
	w.t.Helper()
	out := exec.CommandContext(w.t.Context(), rutter, "token", "create", "--cn", cn.String(), "-o", "json")
	out.Env = w.environment("ada")
	text, err := out.Output()
	w.must(err)
	var made struct {
		Token string `json:"token"`
		Hash  string `json:"ca_hash"`
	}
	w.must(json.Unmarshal(text, &made))
	token, err := pki.ParseToken(made.Token)
	w.must(err)
	return token, made.Hash
}

// A token buys one machine one certificate, whichever servers are asked.
func testTokens(t *testing.T, w *world) {
	token, hash := w.token(log.UUID{8})
	if _, err := pkiclient.Join(t.Context(), w.urls[0], token, "sha256:"+strings.Repeat("0", 64), w.path("wrong")); !errors.Is(err, pkiclient.ErrHash) {
		t.Errorf("with another cluster's hash: %v", err)
	}
	var wg sync.WaitGroup
	var joined atomic.Int32
	for i, url := range w.urls {
		wg.Go(func() {
			if _, err := pkiclient.Join(t.Context(), url, token, hash, w.path(fmt.Sprintf("racer%d", i))); err == nil {
				joined.Add(1)
			} else if !strings.Contains(err.Error(), "token is not good") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := joined.Load(); n != 1 {
		t.Errorf("%d of three machines joined with one token at once, want 1", n)
	}
	other, _ := pki.NewToken(nil)
	if _, err := pkiclient.Join(t.Context(), w.urls[1], other, hash, w.path("guess")); err == nil {
		t.Error("a token that nobody made was taken")
	}
}

// A revoked node's feed ends, and it is not let in again; others go on.
func testRevocation(t *testing.T, w *world) {
	cn := log.UUID{9}
	token, hash := w.token(cn)
	_, err := pkiclient.Join(t.Context(), w.urls[1], token, hash, w.path("stolen"))
	w.must(err)
	api := w.client("stolen", w.urls[2])
	feed, err := api.Feed(t.Context(), w.urls[2])
	w.must(err)
	defer feed.Close()
	ended := make(chan time.Time, 1)
	go func() {
		_, _ = io.Copy(io.Discard, feed)
		ended <- time.Now()
	}()
	select {
	case <-ended:
		t.Fatal("the feed ended before anything was revoked")
	case <-time.After(50 * time.Millisecond):
	}
	w.must(w.run("cert", "revoke", "cn:"+cn.String(), "--reason", "stolen"))
	begun := time.Now()
	select {
	case at := <-ended:
		t.Logf("the feed of the revoked node ended after %v", at.Sub(begun))
	case <-time.After(cutWithin()):
		t.Errorf("the feed of the revoked node goes on after %v", cutWithin())
	}
	for _, url := range w.urls {
		w.awaitShut(strings.TrimPrefix(url, "https://"), w.pair("stolen"))
	}
	w.must(w.write(t.Context(), "after_revocation"))
}

// awaitShut waits until a port refuses a certificate that was revoked: its server
// hears of it within a moment.
func (w *world) awaitShut(address string, certificate *stdtls.Certificate) {
	w.t.Helper()
	for deadline := time.Now().Add(finishPatience); said(address, certificate, time.Second) == nil; {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s lets a revoked certificate in", address)
		}
	}
}

func (w *world) pair(name string) *stdtls.Certificate {
	return w.load(tlsgate.ClientPaths(w.path(name)))
}

func (w *world) peerPair(name string) *stdtls.Certificate {
	return w.load(tlsgate.PeerPaths(w.path(name)))
}

func (w *world) load(p tlsgate.Paths) *stdtls.Certificate {
	w.t.Helper()
	c, err := stdtls.LoadX509KeyPair(p.Cert, p.Key)
	w.must(err)
	return &c
}

// Both sets of authorities are replaced while a client writes; no write fails.
func testRotation(t *testing.T, w *world) {
	// The machine that joined before is gone, and would never renew.
	w.must(w.run("cert", "revoke", "cn:"+log.UUID{8}.String()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var written, failed atomic.Int32
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := w.write(ctx, fmt.Sprintf("tag%d", i)); err != nil && ctx.Err() == nil {
				failed.Add(1)
				t.Error(err)
			}
			written.Add(1)
		}
	})
	for _, name := range []string{pki.Clients, pki.Peers} {
		step := func(step string) error {
			return w.run("cert", "rotate", step, "--authority", name, "--dir", w.office.Folder)
		}
		w.must(step("begin"))
		for i := range w.servers {
			w.must(w.office.HandOver(name, w.path(fmt.Sprintf("s%d", i+1))))
		}
		w.must(step("issue"))
		if name == pki.Clients { // the operator's own, in place: clients take it up
			w.issue("ada2", matrix.Identity{Role: matrix.Operator, Name: "ada"}, pki.Life)
			moveAll(t, w.path("ada2"), w.path("ada"))
		}
		deadline := time.Now().Add(finishPatience)
		err := step("finish")
		for err != nil && strings.Contains(err.Error(), "without a certificate of the new authority") && time.Now().Before(deadline) {
			time.Sleep(200 * time.Millisecond)
			err = step("finish")
		}
		w.must(err)
	}
	cancel()
	wg.Wait()
	if written.Load() == 0 || failed.Load() > 0 {
		t.Errorf("%d of %d writes failed", failed.Load(), written.Load())
	}
	t.Logf("%d writes during two rotations, %d failed", written.Load(), failed.Load())
}

func moveAll(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{tlsgate.CAFile, tlsgate.KeyFile, tlsgate.CertFile} {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			t.Fatal(err)
		}
	}
}
