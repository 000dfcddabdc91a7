package localhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// askVariable makes this program a client: it has the address that is asked.
const askVariable = "LOCALHTTP_TEST_ASK"

// stranger is a user of the machine who has no rights.
const stranger = 65534

func TestMain(m *testing.M) {
	if address := os.Getenv(askVariable); address != "" {
		fmt.Print(ask(address))
		return
	}
	if address := os.Getenv(holdVariable); address != "" {
		hold(address)
		return
	}
	if address := os.Getenv(serveVariable); address != "" {
		answerAll(address)
		return
	}
	os.Exit(m.Run())
}

// ask returns the status and the body of the answer at an address, or the error.
func ask(address string) string {
	base, transport := Reach(address)
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(base + "/")
	if err != nil {
		return "error: " + err.Error()
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return fmt.Sprint(response.StatusCode, " ", strings.TrimSpace(string(b)), err)
}

// askAs is ask in a process of another user, with supplementary groups.
func askAs(t *testing.T, address string, uid uint32, groups ...uint32) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe") // the folder of this program is private
	cmd.Env = append(os.Environ(), askVariable+"="+address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: stranger, Groups: groups}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it asks as another user")
	}
}

// serve serves a handler until the test ends.
func serve(t *testing.T, handler http.Handler, listener net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, handler, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// whoAsks answers with the user of the client.
var whoAsks = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	peer, err := PeerOf(r)
	_ = json.NewEncoder(w).Encode(map[string]any{"uid": peer.UID, "known": err == nil})
})

// openFolder is a folder that each user can enter.
func openFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "rutter-socket-")
	if err == nil {
		err = os.Chmod(folder, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func TestSocketIsForRootAndItsGroup(t *testing.T) {
	needsRoot(t)
	const group = 54321
	for _, c := range []struct {
		name     string
		socket   Socket
		mode     os.FileMode
		stranger string // the answer to a stranger
		member   string // and to a member of the group
	}{
		{"root.sock", Socket{}, 0o600, "permission denied", "permission denied"},
		{"group.sock", Socket{Group: fmt.Sprint(group)}, 0o660, "permission denied", `200 {"known":true,"uid":65534}`},
	} {
		c.socket.Path = filepath.Join(openFolder(t), c.name)
		listener, err := c.socket.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		guarded, err := c.socket.Guarded(whoAsks)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, guarded, listener)
		if info, err := os.Stat(c.socket.Path); err != nil || info.Mode().Perm() != c.mode {
			t.Errorf("%s: mode %v, %v; want %v", c.name, info.Mode(), err, c.mode)
		}
		expect := func(who, got, want string) {
			t.Helper()
			if !strings.Contains(got, want) {
				t.Errorf("%s, %s: got %s, want %s", c.name, who, got, want)
			}
		}
		expect("root", ask(c.socket.Path), `200 {"known":true,"uid":0}`)
		expect("stranger", askAs(t, c.socket.Path, stranger), c.stranger)
		expect("member", askAs(t, c.socket.Path, stranger, group), c.member)
		// Not by its mode alone.
		if err := os.Chmod(c.socket.Path, 0o666); err != nil {
			t.Fatal(err)
		}
		expect("stranger at an open socket", askAs(t, c.socket.Path, stranger), "403 ")
		if c.socket.Group != "" {
			expect("member at an open socket", askAs(t, c.socket.Path, stranger, group), c.member)
		}
	}
}

func TestSocketHasOneProcess(t *testing.T) {
	s := Socket{Path: filepath.Join(t.TempDir(), "run", "agent.sock")}
	first, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(t.Context()); !errors.Is(err, ErrSocketInUse) {
		t.Errorf("a second process: got %v, want ErrSocketInUse", err)
	}
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(s.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	// A process that was killed leaves its socket.
	left, err := net.Listen("unix", s.Path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(s.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file that is no socket: got %v, want an error", err)
	}
	for _, c := range []struct {
		socket Socket
		want   error
	}{
		{Socket{Path: "agent.sock"}, ErrSocketPath},
		{Socket{Path: "/" + strings.Repeat("a", maxSocketPath)}, ErrSocketPath},
		{Socket{Path: s.Path, Group: "no such group"}, ErrGroup},
	} {
		if err := c.socket.Check(); !errors.Is(err, c.want) {
			t.Errorf("%v: got %v, want %v", c.socket, err, c.want)
		}
	}
}

// In a folder in which every user may make files, another program could pass for the agent.
func TestSocketInAFolderOfAllUsers(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		l, err := Socket{Path: filepath.Join(dir, "agent.sock")}.Listen(t.Context())
		if !errors.Is(err, ErrSocketFolder) {
			t.Errorf("a folder with mode %v: got %v, want ErrSocketFolder", mode, err)
		}
		if err == nil {
			l.Close()
		}
	}
}

func TestPeerOfTCP(t *testing.T) {
	needsRoot(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // a machine without IPv6
			continue
		}
		serve(t, whoAsks, listener)
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		for host, listens := range map[string]bool{"127.0.0.1": address != "[::1]:0", "[::1]": address != "127.0.0.1:0"} {
			if !listens {
				continue
			}
			if got := ask(host + ":" + port); !strings.Contains(got, `200 {"known":true,"uid":0}`) {
				t.Errorf("root at %s by %s: got %s", address, host, got)
			}
			if got := askAs(t, host+":"+port, stranger); !strings.Contains(got, `200 {"known":true,"uid":65534}`) {
				t.Errorf("stranger at %s by %s: got %s", address, host, got)
			}
		}
	}
}

// The kernel says that a socket without a process is root's. Such a client is unknown.
func TestPeerThatHasClosed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if peer, err := peerOf(accepted); err != nil || int(peer.UID) != os.Geteuid() {
		t.Errorf("open: got %v, %v; want user %d", peer, err, os.Geteuid())
	}
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if peer, err := peerOf(accepted); err != nil || int(peer.UID) != os.Geteuid() {
		t.Errorf("half closed: got %v, %v; want user %d", peer, err, os.Geteuid())
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if peer, err := peerOf(accepted); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("closed: got %v, %v; want ErrUnknownPeer", peer, err)
	}
	// The kernel answers with a listener where there is no connection.
	if _, err := tcpPeer(listener.Addr(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("a listener: got %v, want ErrUnknownPeer", err)
	}
}

func TestWebPagesAreRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, ReadOnly(whoAsks, "ask the socket"), listener)
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	own, _ := os.Hostname()
	for _, c := range []struct {
		method, host string
		header       string // NAME=VALUE
		want         int
	}{
		{"GET", address, "", 200},
		{"GET", "localhost:" + port, "", 200},
		{"GET", own, "", 200},
		{"GET", "[::1]:" + port, "", 200},
		{"GET", "rebound.example.com", "", 421},
		{"GET", "rebound.example.com:" + port, "Sec-Fetch-Site=same-origin", 421},
		{"GET", "10.0.0.1", "", 421},
		{"GET", address, "Sec-Fetch-Site=none", 200}, // typed by the user
		{"GET", address, "Sec-Fetch-Site=same-origin", 200},
		{"GET", address, "Sec-Fetch-Site=cross-site", 403},
		{"GET", address, "Sec-Fetch-Site=same-site", 403}, // another port of this machine
		{"GET", address, "Origin=http://evil.example.com", 403},
		{"GET", address, "Origin=null", 403},
		{"POST", address, "", 403},
		{"PUT", address, "", 403},
		{"DELETE", address, "", 403},
		{"OPTIONS *", address, "", 400},
	} {
		method, target, _ := strings.Cut(c.method, " ")
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.URL.Opaque = target
		request.Host = c.host
		if name, value, ok := strings.Cut(c.header, "="); ok {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.want || c.want != 200 && !bytes.Contains(text, []byte(`"message":"`)) {
			t.Errorf("%s, host %s, %s: got %d %s, %v; want %d", c.method, c.host, c.header, response.StatusCode, text, err, c.want)
		}
	}
}

func TestUsers(t *testing.T) {
	for text, want := range map[string]error{"": nil, "root": nil, "root, 1001": nil, "all": nil, "no-such-user": ErrUsers, "-1": ErrUsers} {
		if _, err := ParseUsers(text); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", text, err, want)
		}
	}
	needsRoot(t)
	for text, want := range map[string]bool{"root": false, "root,65534": true, "all": true} {
		users, err := ParseUsers(text)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ok, err := users.Allow(r)
			fmt.Fprintln(w, ok, err == nil)
		}), listener)
		if got := ask(listener.Addr().String()); got != "200 true true<nil>" {
			t.Errorf("%q, root: got %s", text, got)
		}
		if got := askAs(t, listener.Addr().String(), stranger); got != fmt.Sprintf("200 %v true<nil>", want) {
			t.Errorf("%q, stranger: got %s, want %v", text, got, want)
		}
	}
}
