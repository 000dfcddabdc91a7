package tls

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/integration/rig"
	"rutter/log"
)

// endedLife and endedAgo are of certificates that ended half a minute ago.
const (
	endedLife = 30 * time.Second
	endedAgo  = time.Minute
)

// K3: servers that were all off until their certificates had ended, and a node that was,
// come back by themselves; a revoked one does not. What the way back is says each of them.
func TestAwayForLong(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: an agent works on the kernel's links")
	}
	w := &world{t: t, folder: t.TempDir()}
	w.office = tlsgate.Issuer{Folder: w.path("pki")}
	w.must(w.office.Init(pki.AuthorityLife))
	ids, peers := []string{"s1", "s2", "s3"}, []string{}
	for i, id := range ids {
		w.issue(id, matrix.Identity{Role: matrix.Server, Name: id}, pki.Life) // its keys too
		w.issueAged(id, matrix.Identity{Role: matrix.Server, Name: id}, endedLife, endedAgo)
		w.raft, w.urls = append(w.raft, rig.Address(t)), append(w.urls, "https://"+rig.Address(t))
		peers = append(peers, id+"="+w.raft[i])
	}
	for i, id := range ids {
		w.start(id, i, "--peers", strings.Join(peers, ","))
	}
	w.issue("ada", matrix.Identity{Role: matrix.Operator, Name: "ada"}, pki.Life)
	w.api = w.client("ada", w.urls...)
	w.must(w.write(t.Context(), "back"))
	for _, url := range w.urls {
		w.awaitOffice(url)
	}

	honest, stolen := log.UUID{21}, log.UUID{22}
	for name, cn := range map[string]log.UUID{"honest": honest, "stolen": stolen} {
		w.issueAged(name, matrix.Identity{Role: matrix.CN, UUID: cn}, endedLife, endedAgo)
	}
	w.must(w.run("cert", "revoke", "cn:"+stolen.String(), "--reason", "stolen while it was away"))
	w.onlyRenews("honest")
	w.agent("honest", honest, w.urls[0])
	w.agent("stolen", stolen, w.urls[0])
	w.awaitSession(honest)
	await(t, filepath.Join(w.folder, "agent-stolen.log"), "join anew")
	sessions, err := w.api.EverySession(t.Context())
	w.must(err)
	for _, s := range sessions {
		if s.CN == stolen {
			t.Errorf("the revoked node is back: %+v", s)
		}
	}
	// The way back of a node that was revoked by mistake: a token.
	token, hash := w.token(stolen)
	join := exec.CommandContext(t.Context(), rutter, "agent", "join", "--token-file", "-", "--server", w.urls[1], "--ca-hash", hash, "--tls-dir", w.path("stolen"))
	join.Stdin = strings.NewReader(token.Reveal())
	if out, err := join.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.awaitSession(stolen)
	w.waysBack()
}

// onlyRenews asks for other things with an ended certificate, in the way of a renewal.
func (w *world) onlyRenews(name string) {
	w.t.Helper()
	k, err := tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(w.path(name)), Name: pki.Clients, Ended: true})
	w.must(err)
	for _, path := range []string{"/feed", "/livez", "/pki/bundle", "/nics", "/no/such"} {
		conn, err := k.DialRenewal(w.t.Context(), "tcp", strings.TrimPrefix(w.urls[0], "https://"), tlsgate.Role(matrix.Server))
		w.must(err)
		_, err = io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n")
		w.must(err)
		answer, err := io.ReadAll(conn)
		if err = errors.Join(err, conn.Close()); err != nil || !strings.Contains(string(answer), " 403 ") {
			w.t.Errorf("%s: %q, %v; want 403", path, answer, err)
		}
	}
}

// waysBack is how each comes back that was revoked by mistake, or is the last one.
func (w *world) waysBack() {
	t := w.t
	refused := func(want string, args ...string) {
		t.Helper()
		if err := w.run(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rutter %s: %v, want %q", strings.Join(args, " "), err, want)
		}
	}
	// K4: the last operator, and a second server of three.
	refused("would revoke the certificate that this request is made with", "cert", "revoke", "operator:ada")
	w.must(w.run("cert", "revoke", "server:s3", "--reason", "a mistake"))
	w.awaitShut(w.raft[0], w.peerPair("s3"))
	refused("rutter cluster remove s2", "cert", "revoke", "server:s2")
	w.must(w.write(t.Context(), "two_of_three"))
	// A server: another certificate, recorded by an operator.
	w.issue("s3", matrix.Identity{Role: matrix.Server, Name: "s3"}, pki.NodeLife)
	w.awaitShut(w.raft[0], w.peerPair("s3"))
	w.must(w.run("cert", "record", w.path("s3")))
	for deadline := time.Now().Add(finishPatience); w.differs(w.urls[2]); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server does not come back with its new certificates")
		}
	}
	// Operators: all are lost. Another is issued where the authorities' keys are, which is
	// on each server too; without a record it is refused if its name was revoked.
	w.must(w.run("cert", "revoke", "operator:ada", "--yes"))
	w.awaitShut(strings.TrimPrefix(w.urls[0], "https://"), w.pair("ada"))
	_, err := (tlsgate.Issuer{Folder: w.path("s1")}).Issue(w.path("eva"), tlsgate.Grant{Identity: matrix.Identity{Role: matrix.Operator, Name: "eva"}})
	w.must(err)
	w.must(w.runAs("eva", "cert", "record", w.path("eva")))
	w.issue("ada", matrix.Identity{Role: matrix.Operator, Name: "ada"}, pki.Life)
	if err := w.runAs("ada", "cert", "list"); err == nil {
		t.Error("a certificate of a revoked name is good before it is recorded")
	}
	w.must(w.runAs("eva", "cert", "record", w.path("ada")))
	for deadline := time.Now().Add(finishPatience); w.runAs("ada", "cert", "list") != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the recorded certificate is refused")
		}
	}
}

// differs reports whether a server is behind the first one, or away.
func (w *world) differs(url string) bool {
	want, err := w.client("ada", w.urls[0]).Head(w.short())
	if err != nil {
		return true
	}
	got, err := w.client("ada", url).Head(w.short())
	return err != nil || got < want
}

// runAs runs a command with the certificate in a folder.
func (w *world) runAs(name string, args ...string) error {
	cmd := exec.CommandContext(w.t.Context(), rutter, args...)
	cmd.Env = w.environment(name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}

// K5: a token on a command line is refused, of whichever command, and says what to do.
func TestTokensAreNotOnCommandLines(t *testing.T) {
	t.Parallel()
	token, err := pki.NewToken(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"agent", "join", "--token", token.Reveal()},
		{"agent", "join", "--token=" + token.Reveal()},
		{"token", "revoke", token.Reveal()},
		{"nic", "list", "uuid=" + token.Reveal()},
		{token.Reveal()},
	} {
		out, err := exec.CommandContext(t.Context(), rutter, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "rutter token revoke "+token.ID.String()) || strings.Contains(string(out), token.Reveal()) {
			t.Errorf("%v: %v, %s", args[:min(len(args), 2)], err, out)
		}
	}
}

// K6: a server that trusts other authorities than the others, as one whose file was put
// back from a copy, is named by each of them.
func TestAuthoritiesThatDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := tlsgate.Issuer{Folder: w.path("otherpki")}
	w.must(other.Init(pki.AuthorityLife))
	theirs, err := other.Authorities(pki.Clients)
	w.must(err)
	ours, err := w.office.Authorities(pki.Clients)
	w.must(err)
	// Before the log has the authorities, it would get them from s2, if that is the leader.
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(50 * time.Millisecond) {
		var published []log.Authority
		w.must(json.Unmarshal([]byte(w.getOf(w.urls[1], "ada", "/pki/authorities")), &published))
		if len(published) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has the authorities %+v", published)
		}
	}
	ca := tlsgate.ClientPaths(w.path("s2")).CA
	const want = "server s2 trusts other authorities (clients)"
	for deadline := time.Now().Add(finishPatience); !strings.Contains(w.get("ada", "/readyz?verbose"), want); time.Sleep(200 * time.Millisecond) {
		// Again and again: the server writes the log's authorities there once.
		w.must(tlsgate.WriteCertificates(ca, ours[0].Certificate, theirs[0].Certificate))
		if time.Now().After(deadline) {
			t.Fatalf("/readyz?verbose does not say %q: %s", want, w.get("ada", "/readyz?verbose"))
		}
	}
	if text := w.get("ada", "/metrics"); strings.Contains(text, "rutter_warnings 0\n") {
		t.Error("rutter_warnings counts nothing")
	}
	var ready struct{ Ready bool }
	w.must(json.Unmarshal([]byte(w.get("ada", "/status")), &ready))
	if !ready.Ready {
		t.Error("a server is not ready because another trusts other authorities")
	}
}
