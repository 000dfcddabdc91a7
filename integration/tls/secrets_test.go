package tls

import (
	"fmt"
	"io/fs"
	"net"
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

// planted are secrets by what they are.
type planted map[string]string

// in complains of each secret that a text has.
func (p planted) in(t *testing.T, where, text string) {
	t.Helper()
	for name, secret := range p {
		if strings.Contains(text, secret) {
			t.Errorf("%s has %s", where, name)
		}
	}
}

// keys plants the lines of all private keys in a folder.
func (p planted) keys(w *world, folder string) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.key"))
	w.must(err)
	if len(files) == 0 {
		w.t.Fatalf("no keys in %s", folder)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		w.must(err)
		for i, line := range strings.Split(string(text), "\n") {
			if len(line) >= 32 && !strings.HasPrefix(line, "-----") {
				p[fmt.Sprintf("line %d of %s", i+1, file)] = line
			}
		}
	}
}

// awaitListener waits until a server accepts connections.
func (w *world) awaitListener(url string) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * finishPatience); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "https://"))
		if err == nil {
			w.must(conn.Close())
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s accepts no connections: %v", url, err)
		}
	}
}

// Secrets are where they belong and nowhere else: in no output, error or log, not
// in what a server keeps or tells, and not in what its machine's others see of it.
func TestSecretsStayWhereTheyBelong(t *testing.T) {
	t.Parallel()
	const passphrase = "correct-horse-battery-staple"
	w := &world{t: t, folder: t.TempDir()}
	w.office = tlsgate.Issuer{Folder: w.path("pki"), Passphrase: passphrase}
	w.must(w.office.Init(pki.AuthorityLife))
	w.must(os.WriteFile(w.path("passphrase"), []byte(passphrase+"\n"), 0o600))
	w.must(os.WriteFile(w.path("wrong"), []byte("wrong-"+passphrase+"\n"), 0o600))
	w.issue("s1", matrix.Identity{Role: matrix.Server, Name: "s1"}, pki.Life)
	w.issue("ada", matrix.Identity{Role: matrix.Operator, Name: "ada"}, pki.Life)
	w.raft, w.urls = []string{rig.Address(t)}, []string{"https://" + rig.Address(t)}
	w.start("s1", 0, "--bootstrap", "--passphrase-file", w.path("passphrase"), "--log-level", "debug")
	w.awaitListener(w.urls[0]) // a passphrase takes time on purpose, on a busy machine more than a client waits
	w.api = w.client("ada", w.urls...)
	w.must(w.write(t.Context(), "first"))

	secrets := planted{"the passphrase": passphrase}
	secrets.keys(w, w.path("s1"))
	secrets.keys(w, w.path("ada"))
	secrets.keys(w, w.office.Folder)
	cn := log.UUID{21}
	token, hash := w.token(cn)
	_, secrets["a token's secret half"], _ = strings.Cut(token.Reveal(), ".")

	// said runs a command whose output is looked through.
	said := func(input string, good bool, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), rutter, args...)
		cmd.Env, cmd.Stdin = w.environment("ada"), strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if (err == nil) != good {
			t.Errorf("rutter %s: %v: %s", strings.Join(args, " "), err, out)
		}
		secrets.in(t, "what rutter "+args[0]+" "+args[1]+" says", string(out))
	}
	join := func(folder string) []string {
		return []string{"agent", "join", "--token-file", "-", "--server", w.urls[0], "--ca-hash", hash, "--tls-dir", w.path(folder)}
	}
	said(token.Reveal(), true, join("node")...)
	secrets.keys(w, w.path("node"))
	said(token.Reveal(), false, join("again")...)     // it is used
	said(token.Reveal()+"x", false, join("other")...) // it is none
	said("", true, "token", "list", "-o", "json")
	said("", true, "cert", "list", "-o", "json")
	said("", true, "log", "show", "-o", "json")
	said("", false, "cert", "issue", "operator", "eve", "--dir", w.office.Folder, "--out", w.path("eve"), "--passphrase-file", w.path("wrong"))
	for _, path := range []string{"/status", "/metrics", "/readyz?verbose", "/log", "/nowhere"} {
		secrets.in(t, "GET "+path, w.get("ada", path))
	}
	pid := w.servers[0].PID()
	for _, name := range []string{"cmdline", "environ", "comm"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		w.must(err)
		secrets.in(t, "the server's "+name, string(text))
	}
	logged, err := os.ReadFile(w.servers[0].LogFile)
	w.must(err)
	secrets.in(t, "the server's log", string(logged))
	files := 0
	w.must(filepath.WalkDir(w.path("data-s1"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		secrets.in(t, path, string(text))
		return err
	}))
	if files == 0 || len(logged) == 0 {
		t.Errorf("%d files and %d bytes of a log were looked through", files, len(logged))
	}
}
