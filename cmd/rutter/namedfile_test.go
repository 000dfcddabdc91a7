package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/term"
)

// namedWithin is how long a command may take that has nothing to wait for.
const namedWithin = time.Minute

// ends runs the program and returns its exit code and what it said; the test ends if
// it does not. The signal, if it is not 0, comes after that time.
func ends(t *testing.T, signal time.Duration, args ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if signal > 0 {
		time.AfterFunc(signal, cancel)
	}
	type outcome struct {
		code int
		said string
	}
	ended := make(chan outcome, 1)
	go func() {
		var out, errs bytes.Buffer
		code := run(ctx, append([]string{"rutter"}, args...), &out, &errs)
		ended <- outcome{code, out.String() + errs.String()}
	}()
	select {
	case o := <-ended:
		return o.code, o.said
	case <-time.After(namedWithin):
		t.Fatalf("rutter %s hangs", strings.Join(args, " "))
		return 0, ""
	}
}

// A named pipe in the place of a file hangs no command: where a whole file is wanted it
// is refused, and where a stream will do the wait for its other end can be ended.
func TestNamedPipes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, folder := filepath.Join(dir, "pipe"), filepath.Join(dir, "data")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, filepath.Join(folder, "changes.db"), filepath.Join(dir, "tls.key")} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := []string{
		"snapshot restore PIPE --data DIR/new --id s1 --raft 10.0.0.1:7421",
		"snapshot restore PIPE --data DIR/new --id s1 --raft 10.0.0.1:7421 --dry-run",
		"snapshot inspect PIPE",
		"snapshot inspect --data DIR/data",
		"cluster recover --data DIR/data --id s1",
		"cluster skip --data DIR/data --index 5",
		"cluster skip --data DIR/data --list",
		"cluster skip --data DIR/data --from PIPE",
		"config check PIPE",
		"server --config PIPE",
		"server --id s1 --data DIR/data --bootstrap --listen 127.0.0.1:0 --raft 127.0.0.1:0 --svp off",
		"log stats --data PIPE",
	}
	for _, line := range refused {
		args := strings.Fields(strings.NewReplacer("PIPE", pipe, "DIR", dir).Replace(line))
		if code, said := ends(t, 0, args...); code == 0 || !strings.Contains(said, "regular file") {
			t.Errorf("rutter %s: exit code %d, %s; want it to name what is no regular file", line, code, said)
		}
	}
	for _, line := range []string{
		"log import PIPE --to DIR/new",
		"log verify PIPE",
		"tag create --file PIPE -s http://127.0.0.1:1",
		"agent join --token-file PIPE --server https://127.0.0.1:1 --ca-hash sha256:00 --tls-dir DIR/tls",
	} {
		args := strings.Fields(strings.NewReplacer("PIPE", pipe, "DIR", dir).Replace(line))
		if code, said := ends(t, 50*time.Millisecond, args...); code == 0 {
			t.Errorf("rutter %s: exit code 0, %s; want it to be interrupted", line, said)
		}
	}
}

// A pipe with a process at its other end is a stream like standard input.
func TestInputFromPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(pipe, bytes.Repeat([]byte("no log"), 100), 0o600) }()
	code, said := ends(t, 0, "log", "import", pipe, "--to", filepath.Join(t.TempDir(), "new"))
	if code != term.ExitFailed || strings.Contains(said, "interrupted") || !strings.Contains(said, "format") {
		t.Errorf("exit code %d: %s; want it to have read what is no log", code, said)
	}
}

// What is no snapshot may be any file: what it has is not said.
func TestErrorsQuoteNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const secret = "secret-of-somebody-else-0123456789"
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte(secret+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"snapshot restore FILE --data DIR/new --id s1 --raft 10.0.0.1:7421",
		"snapshot inspect FILE",
		"cluster skip --data DIR --from FILE",
		"log verify FILE",
		"log import FILE --to DIR/new",
	} {
		args := strings.Fields(strings.NewReplacer("FILE", file, "DIR", dir).Replace(line))
		code, said := ends(t, 0, args...)
		if code == 0 || strings.Contains(said, secret[:4]) || strings.Contains(said, hex.EncodeToString([]byte(secret[:4]))) {
			t.Errorf("rutter %s: exit code %d, %s; want an error without what the file has", line, code, said)
		}
	}
}
