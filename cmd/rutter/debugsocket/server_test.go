package debugsocket

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rutter/api/support"
	"rutter/cmd/rutter/localhttp"
)

// asOther is set in the process that asks as another user; its value is the socket.
const asOther = "RUTTER_TEST_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(asOther); path != "" {
		os.Exit(askAsOther(path))
	}
	os.Exit(m.Run())
}

// askAsOther asks for goroutines, and writes the status of the answer, or why there is none.
func askAsOther(path string) int {
	web := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	answer, err := web.Get("http://debug/support/" + support.Goroutines)
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
		return 0
	}
	answer.Body.Close()
	_, _ = os.Stdout.WriteString(answer.Status)
	return 0
}

// The socket answers its own user and root only, also if its file is open to all.
func TestSocketIsForItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's process takes root")
	}
	folder, err := os.MkdirTemp("/tmp", "rutter-debug") // another user reaches it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, Name)
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "asks")
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	server, err := Open(ctx, Options{Socket: localhttp.Socket{Path: path}, Asked: true}, support.New(support.Config{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	ask := func(uid uint32) string {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), asOther+"="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	const other = 65534
	if got := ask(0); got != "200 OK" {
		t.Errorf("root: %s", got)
	}
	if got := ask(other); !strings.Contains(got, "permission denied") {
		t.Errorf("another user: %s", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := ask(other); !strings.HasPrefix(got, "403") {
		t.Errorf("another user, of a file that is open to all: %s", got)
	}
}
