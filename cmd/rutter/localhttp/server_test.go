package localhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serveVariable makes this program a server until its standard input ends: it has the
// address at which it listens.
const serveVariable = "LOCALHTTP_TEST_SERVE"

// answerAll listens at an address, prints the address that it got, and answers 200.
func answerAll(address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(listener.Addr())
	go func() { _ = http.Serve(listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// serveAs is answerAll in a process of another user until the test ends. It returns the
// address, or "" if the machine has no such address.
func serveAs(t *testing.T, address string, uid uint32) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), serveVariable+"="+address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(line, "error:") {
		t.Logf("%s: %s", address, line) // a machine without IPv6
		return ""
	}
	return strings.TrimSpace(line)
}

// A user who listens at the port of a daemon is not taken for it.
func TestServerOfAnotherUserIsRefused(t *testing.T) {
	needsRoot(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		at := serveAs(t, address, stranger)
		if at == "" {
			continue
		}
		if got := ask(at); !strings.HasPrefix(got, "error:") || !strings.Contains(got, ErrServer.Error()) || !strings.Contains(got, "65534") {
			t.Errorf("root, at a stranger's %s: got %s", at, got)
		}
		if got := askAs(t, at, stranger+1); !strings.Contains(got, ErrServer.Error()) {
			t.Errorf("another stranger, at a stranger's %s: got %s", at, got)
		}
		if got := askAs(t, at, stranger); !strings.HasPrefix(got, "200 ") {
			t.Errorf("the stranger, at their own %s: got %s", at, got)
		}
		if root := serveAs(t, address, 0); !strings.HasPrefix(askAs(t, root, stranger), "200 ") {
			t.Errorf("a stranger, at root's %s: refused", root)
		}
	}
}

// A connection that is not accepted has no owner, and is not taken for root's.
func TestServerThatDoesNotAccept(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String()) // in any time: only what follows has a limit
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := checkServer(ctx, conn); !errors.Is(err, ErrUnknownPeer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v; want ErrUnknownPeer and the end of the time", err)
	}
}
