package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silentServer accepts connections, and behaves as then says: it is called for each.
func silentServer(t *testing.T, then func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go then(conn)
		}
	}()
	return l.Addr().String()
}

func saysNothing(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// fullServer is a listener whose queue is full: the kernel drops further SYNs.
func fullServer(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for { // until a connection is not taken any more
		conn, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
}

// tooLate is how long after --timeout a command counts as one that does not keep to it.
// It is 100 ms on a machine that has time; this is for one that is busy.
const tooLate = 3 * time.Second

// rutterFor runs the program, and returns how long it took besides.
func rutterFor(t *testing.T, args ...string) (took time.Duration, code int, stdout, stderr string) {
	begin := time.Now()
	code, stdout, stderr = rutter(t, args...)
	return time.Since(begin), code, stdout, stderr
}

// issueOperator makes a folder with the certificate of an operator.
func issueOperator(t *testing.T) string {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"cert", "init", "--dir", dir + "/pki"},
		{"cert", "issue", "operator", "ada", "--dir", dir + "/pki", "--out", dir + "/tls"},
	} {
		if code, _, stderr := rutter(t, args...); code != 0 {
			t.Fatalf("%v: %s", args, stderr)
		}
	}
	return dir + "/tls"
}

const aUUID = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"

// Commands end by --timeout, whatever the servers do: say nothing, drop connections, send
// half an answer, or are silent in TLS. It took 31 s.
func TestTimeoutIsKept(t *testing.T) {
	half := silentServer(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"ha")
		saysNothing(conn)
	})
	certificate := issueOperator(t)
	servers := map[string][]string{
		"silent": {"-s", "http://" + silentServer(t, saysNothing)},
		"full":   {"-s", "http://" + fullServer(t)},
		"half":   {"-s", "http://" + half},
		"TLS":    {"-s", "https://" + silentServer(t, saysNothing), "--tls-dir", certificate},
	}
	commands := []string{
		"network list", "vm lookup", "nic get 90:b8:d0:00:00:01", "cn sessions", "cn show " + aUUID, "log tail", "log show 5",
		"log state", "log history nic 90:b8:d0:00:00:01", "log verify", "log stats", "trace a b", "lookup vl3 1 10.0.0.1", "cluster status",
		"wait", "nic delete 90:b8:d0:00:00:01", "tag create name=a --wait fabric", "task wait " + aUUID, "snapshot save " + t.TempDir() + "/s", "token list",
	}
	const timeout = 300 * time.Millisecond
	var all sync.WaitGroup
	for kind, flags := range servers {
		for _, command := range commands {
			all.Go(func() {
				args := append(append(strings.Fields(command), "--timeout", timeout.String()), flags...)
				took, code, stdout, stderr := rutterFor(t, args...)
				wrong := code != 4 && !(kind == "half" && code == 1) // half an answer may be read as a wrong one
				if took > timeout+tooLate || wrong || stdout != "" && command != "cluster status" {
					t.Errorf("%s, %s: ended with %d %s after --timeout, and printed %q %q", kind, command, code, took-timeout, stdout, stderr)
				}
			})
		}
	}
	all.Wait()
}

// A server that does not answer is named once, on standard error, and a read is answered by
// another server while the first is still waited for.
func TestSilentServerIsNamed(t *testing.T) {
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `[{"name":"external","mtu":1500}]`)
	}))
	t.Cleanup(answers.Close)
	for kind, silent := range map[string]string{"silent": silentServer(t, saysNothing), "full": fullServer(t)} {
		took, code, stdout, stderr := rutterFor(t, "tag", "list", "-o", "json", "-s", "http://"+silent, "-s", answers.URL)
		if code != 0 || !strings.Contains(stdout, "external") || strings.Contains(stdout, "answered") {
			t.Errorf("%s: %d, %q %q", kind, code, stdout, stderr)
		}
		if n := strings.Count(stderr, "http://"+silent+" has not answered for 1s: asking the next one"); n != 1 {
			t.Errorf("%s: named %d times in %q", kind, n, stderr)
		}
		if took > 1*time.Second+tooLate {
			t.Errorf("%s: it took %s", kind, took)
		}
	}
}

// A write goes to the next server with the same change id if the first does not answer at
// all, and stays with a server that is slow and alive.
func TestWriteOfASilentServer(t *testing.T) {
	ids := make(chan string, 10)
	slow := func(long time.Duration) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/livez" {
				fmt.Fprint(w, "ok\n")
				return
			}
			ids <- r.Header.Get("Rutter-Change-Id")
			select {
			case <-time.After(long):
			case <-r.Context().Done():
			}
			fmt.Fprint(w, `{"name":"external","mtu":1500}`)
		}))
		t.Cleanup(s.Close)
		return s
	}
	quick := slow(0)
	_, code, _, stderr := rutterFor(t, "tag", "create", "name=external", "-s", slow(2*time.Second).URL, "-s", quick.URL)
	if code != 0 || len(ids) != 1 || stderr != "" {
		t.Errorf("a slow server: %d, %d requests, %q", code, len(ids), stderr)
	}
	for len(ids) > 0 {
		<-ids
	}
	silent := silentServer(t, func(conn net.Conn) {
		if request, err := http.ReadRequest(bufio.NewReader(conn)); err == nil && request.URL.Path != "/livez" {
			ids <- request.Header.Get("Rutter-Change-Id")
		}
		saysNothing(conn)
	})
	took, code, _, stderr := rutterFor(t, "tag", "create", "name=external", "-s", "http://"+silent, "-s", quick.URL)
	if code != 0 || len(ids) != 2 || !strings.Contains(stderr, silent+" has not answered") || took > time.Second+tooLate {
		t.Errorf("a silent server: %d after %s, %d requests, %q", code, took, len(ids), stderr)
	} else if first, second := <-ids, <-ids; first != second || first == "" {
		t.Errorf("the change ids are %q and %q", first, second)
	}
}
