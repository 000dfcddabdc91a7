package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

// manifest is what a bundle says of itself, as a program of others reads it.
type manifest struct {
	Parts    []struct{ Name, From, SHA256 string }
	Missing  []missing
	Complete bool
}

type missing struct{ What, Why string }

// Secrets that stand somewhere in the cluster of these tests.
const (
	passphrase = "tests-passphrase-8812"
	metadata   = "tests-metadata-6620"
)

// cluster is a running cluster with an operator's and a reader's certificate.
type cluster struct {
	*bench.Cluster
	dir, operator, reader string
}

func newCluster(t *testing.T) *cluster {
	t.Setenv("RUTTER_PASSPHRASE", passphrase)
	c := &cluster{dir: t.TempDir()}
	c.Cluster = rig.Cluster(t, bench.Options{Program: program, Dir: c.dir, TLS: true, Flags: []string{
		"--log-level=debug", "--debug-socket", c.socket("s{n}"),
	}})
	c.operator = c.issue(t, "ada", matrix.Operator, pki.Life)
	c.reader = c.issue(t, "rea", matrix.Reader, pki.Life)
	return c
}

func (c *cluster) socket(id string) string { return filepath.Join(c.dir, id+"-debug.sock") }

// issue makes a folder with a certificate.
func (c *cluster) issue(t *testing.T, name string, role matrix.Role, life time.Duration) string {
	t.Helper()
	folder := filepath.Join(c.dir, name)
	issuer := tlsgate.Issuer{Folder: filepath.Join(c.dir, "pki")}
	if _, err := issuer.Issue(folder, tlsgate.Grant{Identity: matrix.Identity{Role: role, Name: name}, Life: life}); err != nil {
		t.Fatal(err)
	}
	return folder
}

// run runs the program with the certificate in a folder.
func (c *cluster) run(t *testing.T, folder string, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RUTTER_PASSPHRASE=") }), "RUTTER_TLS_DIR="+folder, "RUTTER_SERVER="+c.Servers[0].URL)
	text, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// bundle makes a bundle and reads it.
func (c *cluster) bundle(t *testing.T, want int, args ...string) (manifest, map[string]string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	code, out := c.run(t, c.operator, append([]string{"support", "bundle", "--file", name}, args...)...)
	if code != want {
		t.Fatalf("exit code %d, want %d: %s", code, want, out)
	}
	return open(t, name)
}

// open reads a bundle, with everything in it.
func open(t *testing.T, name string) (m manifest, files map[string]string) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files = make(map[string]string)
	last := ""
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if last = strings.TrimPrefix(h.Name, "b/"); strings.HasSuffix(last, ".pb.gz") {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				t.Fatalf("%s: %v", last, err)
			}
			if text, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		files[last] = string(text)
	}
	if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil || last != "manifest.json" || len(m.Parts) != len(files)-1 {
		t.Fatalf("the manifest: %v; last is %s; %d parts, %d files", err, last, len(m.Parts), len(files))
	}
	return m, files
}

// All of it with one cluster, because its start is what takes time.
func TestBundle(t *testing.T) {
	c := newCluster(t)
	t.Run("whole", c.whole)
	t.Run("refusals", c.refusals)
	t.Run("full disk", c.fullDisk)
	t.Run("local", c.local)
	t.Run("stopped server", c.stopped)
}

// A bundle has every part of every server, although one is named, and no secret.
func (c *cluster) whole(t *testing.T) {
	code, token := c.run(t, c.operator, "token", "create", "--cn", "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01", "-o", "json")
	var shown struct{ Token string }
	if err := json.Unmarshal([]byte(token), &shown); code != 0 || err != nil || !strings.Contains(shown.Token, ".") {
		t.Fatalf("%d: %s: %v", code, token, err)
	}
	vm, err := json.Marshal(map[string]string{
		"uuid": "0e70de36-a40b-4ac0-9429-819f5ff82011", "owner_uuid": "930896af-bf8c-48d4-885c-6573a94b1853", "state": "running",
		"properties": `{"customer_metadata":{"root_pw":"` + metadata + `"}}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.Raw(t.Context(), http.MethodPost, "/vms", vm); err != nil {
		t.Fatal(err)
	}
	m, files := c.bundle(t, 0)
	for _, s := range c.Servers {
		for name, has := range map[string]string{
			"status.json": `"feature_known":7`, "readyz.txt": "head ", "cluster.json": `"members"`, "servers.json": c.Servers[2].URL, "metrics.txt": "rutter_head_seq",
			"sessions.json": "[", "runtime.txt": "disk of ", "settings.txt": `id = "` + s.ID + `"   # set`, "logs.txt": "server runs", "goroutines.txt": "goroutine ", "heap.pb.gz": "",
		} {
			text, there := files["servers/"+s.ID+"/"+name]
			if !there || !strings.Contains(text, has) {
				t.Errorf("%s of %s: %v, %.300s", name, s.ID, there, text)
			}
		}
	}
	if !m.Complete || len(m.Missing) != 0 {
		t.Errorf("missing: %+v", m.Missing)
	}
	_, secret, _ := strings.Cut(shown.Token, ".")
	for name, text := range files {
		for _, secret := range []string{passphrase, metadata, secret, "PRIVATE KEY"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has the secret %q", name, secret)
			}
		}
	}
	audited, err := os.ReadFile(filepath.Join(c.dir, "s2", "audit.ndjson"))
	if err != nil || !bytes.Contains(audited, []byte(`"event":"inspected","actor":"operator:ada"`)) || !bytes.Contains(audited, []byte("GET /support/goroutines")) {
		t.Errorf("the audit log has no such line: %v", err)
	}
}

// A reader gets nothing, nor does a certificate that has ended; a file is not overwritten.
func (c *cluster) refusals(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.tar.gz")
	ended := c.issue(t, "eve", matrix.Operator, time.Second)
	time.Sleep(1100 * time.Millisecond)
	for _, one := range []struct {
		folder, says string
		code         int
	}{{c.reader, "it takes a certificate with the role operator", 3}, {ended, "the certificate has expired", 1}} {
		code, out := c.run(t, one.folder, "support", "bundle", "--file", name)
		if _, err := os.Stat(name); code != one.code || !strings.Contains(out, one.says) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: exit code %d, file: %v: %s", one.folder, code, err, out)
		}
	}
	if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := c.run(t, c.operator, "support", "bundle", "--file", name); code != 2 || !strings.Contains(out, "is there already") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// On a full file system the command says so, and leaves nothing.
func (c *cluster) fullDisk(t *testing.T) {
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, 0); err != nil {
			t.Error(err)
		}
	})
	code, out := c.run(t, c.operator, "support", "bundle", "--file", folder+"/b.tar.gz")
	left, err := os.ReadDir(folder)
	if code != 1 || !strings.Contains(out, "no room") || len(left) != 0 || err != nil {
		t.Errorf("exit code %d, left %v %v: %s", code, left, err, out)
	}
}

// On a server's machine its socket is enough, for its user and for root.
func (c *cluster) local(t *testing.T) {
	socket := c.socket("s1")
	if info, err := os.Stat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	code, out := c.run(t, "/none", "support", "bundle", "--local", "--debug-socket", socket, "--file", name)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	m, files := open(t, name)
	if !m.Complete || len(m.Parts) != 8 {
		t.Errorf("%d parts, missing %+v", len(m.Parts), m.Missing)
	}
	for file, text := range files {
		if strings.HasSuffix(file, "/status.json") && !strings.Contains(text, `"id":"s1"`) || strings.Contains(text, passphrase) {
			t.Errorf("%s: %.300s", file, text)
		}
	}
	if code, out := c.run(t, "/none", "support", "bundle", "--local", "--debug-socket", socket+".none", "--file", name+"2"); code != 4 || !strings.Contains(out, "no debug socket") {
		t.Errorf("without a daemon: exit code %d: %s", code, out)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(os.Chmod(socket, 0o666), openFolders(socket)); err != nil {
		t.Fatal(err)
	}
	if said := asStranger(t, socket); !strings.Contains(said, "403 Forbidden") || strings.Contains(said, "server runs") {
		t.Errorf("another user gets %q", said)
	}
}

// asStranger asks at a socket as another user, and returns the answer. The thread that is
// this user ends with its goroutine.
func asStranger(t *testing.T, socket string) string {
	const nobody = 65534
	type result struct {
		text []byte
		err  error
	}
	got := make(chan result)
	go func() {
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			got <- result{err: errno}
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
		}
		if err != nil {
			got <- result{err: err}
			return
		}
		conn := os.NewFile(uintptr(fd), socket)
		_, err = io.WriteString(conn, "GET /support/logs HTTP/1.0\r\nHost: localhost\r\n\r\n")
		text, failed := io.ReadAll(conn)
		got <- result{text, errors.Join(err, failed, conn.Close())}
	}()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	return string(r.text)
}

// openFolders lets every user pass the folders above a path.
func openFolders(path string) error {
	var errs []error
	for at := filepath.Dir(path); strings.HasPrefix(at, os.TempDir()) && at != os.TempDir(); at = filepath.Dir(at) {
		errs = append(errs, os.Chmod(at, 0o755))
	}
	return errors.Join(errs...)
}

// A server that hangs is named, and delays no more than --timeout; cluster status names it
// too.
func (c *cluster) stopped(t *testing.T) {
	last := c.Servers[2]
	if err := last.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := last.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	begin := time.Now()
	const timeout, late = 8 * time.Second, 4 * time.Second // late is for a machine that is busy
	m, files := c.bundle(t, 3, "--timeout", timeout.String())
	if took := time.Since(begin); took > timeout+late {
		t.Errorf("it took %v", took)
	}
	if m.Complete || !slices.ContainsFunc(m.Missing, func(one missing) bool { return strings.HasPrefix(one.What, "servers/s3") }) {
		t.Errorf("missing: %+v", m.Missing)
	}
	for _, id := range []string{"s1", "s2"} {
		if files["servers/"+id+"/goroutines.txt"] == "" {
			t.Errorf("%s, which runs, is not in it", id)
		}
	}
	code, out := c.run(t, c.operator, "cluster", "status", "--timeout", "4s")
	if code != 3 || !strings.Contains(out, "s3") || !strings.Contains(out, "no answer") {
		t.Errorf("cluster status: exit code %d: %s", code, out)
	}
}
