package localhttp

import (
	"bufio"
	"context"
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

// holdVariable makes this program a client that holds connections: it has the address.
const holdVariable = "LOCALHTTP_TEST_HOLD"

// hold opens connections until one is not answered, maxOthers at most, says how many were,
// and holds them until its input ends.
func hold(address string) {
	var held []net.Conn
	for len(held) < maxOthers {
		conn, err := net.Dial("tcp", address) //nolint:noctx // it lasts as long as the program
		if err != nil {
			break
		}
		if _, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err == nil {
			_, err = http.ReadResponse(bufio.NewReader(conn), nil)
		}
		if err != nil {
			_ = conn.Close()
			break
		}
		held = append(held, conn)
	}
	fmt.Println(len(held))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// holder starts hold as a user, and returns how many connections it has, and what ends it.
func holder(t *testing.T, address string, uid uint32) (held string, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), holdVariable+"="+address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: stranger}}
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
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// A user of the machine that holds connections has no more than its share, all users
// together leave the daemon its files, and root is always answered.
func TestConnectionsOfUsersAreBounded(t *testing.T) {
	needsRoot(t)
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: whoAsks, ReadHeaderTimeout: time.Minute} // it closes none that is held
	Protect(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		<-served
	})
	address := listener.Addr().String()
	var ends []func()
	for n := range uint32(maxOthers/maxOfUser + 1) {
		held, end := holder(t, address, stranger-n)
		ends = append(ends, end)
		want := fmt.Sprint(maxOfUser)
		if n == maxOthers/maxOfUser {
			want = "0"
		}
		if held != want {
			t.Errorf("user %d holds %s connections, want %s", n, held, want)
		}
		if got := ask(address); !strings.Contains(got, `200 {"known":true,"uid":0}`) {
			t.Errorf("root: got %s", got)
		}
	}
	for _, end := range ends {
		end()
	}
	for { // until the server has seen that they are gone
		got := askAs(t, address, stranger)
		if strings.HasPrefix(got, "200 ") {
			break
		}
		if !strings.HasPrefix(got, "error: ") {
			t.Fatalf("stranger: got %s", got)
		}
	}
}
