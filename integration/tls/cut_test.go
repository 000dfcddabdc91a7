package tls

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/intake"
)

// cutWithin is how soon after a revocation a connection must have ended (issue 9:
// 2 s). A short run shares the machine with other programs.
func cutWithin() time.Duration {
	if os.Getenv("RUTTER_LONG") != "" {
		return 2 * time.Second
	}
	return finishPatience
}

// open is a connection that was let in and stays, under a name for people.
type open struct {
	name string
	conn io.Reader
}

// asked sends a request over a connection of its own and returns what comes
// behind the answer's head, which must have the status.
func (w *world) asked(name, url, head string, status int) open {
	w.t.Helper()
	conn, err := term.DialServer(w.keeper(name))(w.t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
	w.must(err)
	w.t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, head+"Host: 127.0.0.1\r\n\r\n")
	w.must(err)
	w.must(conn.SetReadDeadline(time.Now().Add(finishPatience)))
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil) //nolint:bodyclose // the connection is the body
	w.must(err)
	if answer.StatusCode != status {
		w.t.Fatalf("%s: status %d, want %d", strings.SplitN(head, "\r\n", 2)[0], answer.StatusCode, status)
	}
	return open{strings.SplitN(head, "\r\n", 2)[0], r}
}

// websocket is a listener of the change feed's.
func (w *world) websocket(name, url string) open {
	w.t.Helper()
	conn, err := w.listen(name, url, "~2")
	w.must(err)
	return w.registered(conn)
}

// listen upgrades to the change feed with the certificate in a folder; "": none,
// and no TLS.
func (w *world) listen(name, url, version string) (*websocket.Conn, error) {
	transport := &http.Transport{}
	if name != "" {
		transport.DialTLSContext = term.DialServer(w.keeper(name))
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	conn, answer, err := websocket.Dial(w.t.Context(), url+"/changefeeds", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}, HTTPHeader: http.Header{"Accept-Version": {version}}})
	if err != nil && answer != nil {
		return nil, fmt.Errorf("status %d: %w", answer.StatusCode, err)
	}
	if err == nil {
		w.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, err
}

// registered is a websocket that was told the bootstrap route.
func (w *world) registered(conn *websocket.Conn) open {
	w.t.Helper()
	w.must(conn.Write(w.t.Context(), websocket.MessageText, []byte(`{"instance":"a","service":"t","resources":[{"resource":"nic_tag","subResources":["create"]}]}`)))
	_, _, err := conn.Read(w.t.Context())
	w.must(err)
	return open{"the change feed's websocket", messages{w.t.Context(), conn}}
}

// messages reads a websocket as if it were a stream.
type messages struct {
	ctx  context.Context
	conn *websocket.Conn
}

func (m messages) Read([]byte) (int, error) {
	_, _, err := m.conn.Read(m.ctx)
	return 0, err
}

// peer connects to a raft port with the certificate of a server that there is not.
func (w *world) peer(name, address string) open {
	w.t.Helper()
	keeper, err := tlsgate.New(tlsgate.Config{Paths: tlsgate.PeerPaths(w.path(name)), Name: pki.Peers})
	w.must(err)
	conn, err := tlsgate.Network{Keeper: keeper}.Dial(w.t.Context(), address)
	w.must(err)
	w.t.Cleanup(func() { conn.Close() })
	return open{"a connection of the raft port", conn}
}

// A revocation ends every sort of connection that there is, at whichever server.
func testCuts(t *testing.T, w *world) {
	cn := log.UUID{10}
	w.issue("cut-node", matrix.Identity{Role: matrix.CN, UUID: cn}, pki.Life)
	w.issue("cut-person", matrix.Identity{Role: matrix.Operator, Name: "carla"}, pki.Life)
	w.issue("cut-server", matrix.Identity{Role: matrix.Server, Name: "s9"}, pki.Life)
	all := []open{
		w.asked("cut-node", w.urls[0], "GET /feed HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: "+client.Upgrade+"\r\n", http.StatusSwitchingProtocols),
		w.asked("cut-person", w.urls[1], "GET "+intake.Path+" HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: "+intake.Protocol+"\r\n", http.StatusSwitchingProtocols),
		w.asked("cut-person", w.urls[2], "GET /log?follow=1 HTTP/1.1\r\nAccept: text/event-stream\r\n", http.StatusOK),
		w.asked("cut-person", w.urls[0], "GET /log?follow=1 HTTP/1.1\r\n", http.StatusOK),
		w.websocket("cut-person", w.urls[1]),
		w.peer("cut-server", w.raft[2]),
	}
	w.allEnd(all, func() {
		for _, who := range []string{"cn:" + cn.String(), "operator:carla", "server:s9"} {
			w.must(w.run("cert", "revoke", who, "--reason", "a test"))
		}
	})
}

// allEnd sees to it that connections are open until something is done, and ended
// soon after that.
func (w *world) allEnd(all []open, do func()) {
	t := w.t
	t.Helper()
	ended := make(chan string, len(all))
	for _, o := range all {
		go func() {
			_, _ = io.Copy(io.Discard, o.conn) // until it is cut, whatever it says then
			ended <- o.name
		}()
	}
	select {
	case name := <-ended:
		t.Fatalf("%s ended before anything was done", name)
	case <-time.After(200 * time.Millisecond):
	}
	do()
	begun, late := time.Now(), time.After(cutWithin())
	for left := len(all); left > 0; left-- {
		select {
		case name := <-ended:
			t.Logf("%s: %v", name, time.Since(begun).Round(time.Millisecond))
		case <-late:
			t.Fatalf("%d connections go on %v later", left, cutWithin())
		}
	}
}

// What a reader may see is asked when it connects, and again when its grant is
// made, changed or withdrawn: whatever it has open then ends. Other readers go on.
func testGrantCuts(t *testing.T, w *world) {
	w.issue("tenant", matrix.Identity{Role: matrix.Reader, Name: "acme"}, pki.Life)
	w.issue("free", matrix.Identity{Role: matrix.Reader, Name: "free"}, pki.Life)
	other := w.asked("free", w.urls[1], followLog, http.StatusOK)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, other.conn) // until the test ends
	}()
	for i, step := range [][]string{
		{"set", "reader:acme", "--owner", "564d69b1-a178-3fbe-b36f-3f2b7fd7ed31"},
		{"set", "reader:acme", "--owner", "930896af-bf8c-48d4-885c-6573a94b1853"},
		{"remove", "reader:acme"},
	} {
		var all []open
		for _, url := range w.urls {
			all = append(all, w.asked("tenant", url, followLog, http.StatusOK))
			if i == 0 { // it sees everything until it is limited
				all = append(all, w.websocket("tenant", url))
			}
		}
		w.allEnd(all, func() { w.must(w.run(append([]string{"grant"}, step...)...)) })
	}
	select {
	case <-ended:
		t.Error("a reader whose grant nobody touched was cut off")
	default:
	}
}

// A program without a certificate whose grant is withdrawn, or leaves it nothing on
// the surface, loses the change feed that it has open; one whose grant still has the
// surface goes on.
func testProgramCuts(t *testing.T, w *world) {
	const program = "foreign:127.0.0.1"
	for _, withdraw := range [][]string{{"remove", program}, {"set", program, "--read", "vmapi"}} {
		w.must(w.run("grant", "set", program, "--read", "napi"))
		all := make([]open, 0, len(w.napi))
		for _, address := range w.napi {
			all = append(all, w.registered(w.awaitProgram(address)))
		}
		w.must(w.run("grant", "set", program, "--read", "napi,vmapi", "--comment", "it keeps what it has"))
		w.allEnd(all, func() { w.must(w.run(append([]string{"grant"}, withdraw...)...)) })
	}
	for _, address := range w.napi {
		if _, err := w.listen("", "http://"+address, "~2"); err == nil || !strings.Contains(err.Error(), "status 403") {
			t.Errorf("a program without a grant is let in again: %v", err)
		}
	}
}

// awaitProgram waits until a program of this machine is let in.
func (w *world) awaitProgram(address string) *websocket.Conn {
	w.t.Helper()
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(50 * time.Millisecond) {
		conn, err := w.listen("", "http://"+address, "~2")
		if err == nil {
			return conn
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the granted program is not let in at %s: %v", address, err)
		}
	}
}

// followLog asks for the log as it grows.
const followLog = "GET /log?follow=1 HTTP/1.1\r\n"

// A command with a certificate that is good no more ends with the reason, and
// does not go on asking.
func testRefusedCommand(t *testing.T, w *world) {
	w.issue("gone", matrix.Identity{Role: matrix.Operator, Name: "gus"}, pki.Life)
	w.must(w.run("cert", "revoke", "operator:gus"))
	for _, url := range w.urls { // each server hears of it within a moment
		w.awaitShut(strings.TrimPrefix(url, "https://"), w.pair("gone"))
	}
	w.issue("node2", matrix.Identity{Role: matrix.CN, UUID: log.UUID{11}}, pki.Life)
	w.issueAged("aged", matrix.Identity{Role: matrix.Reader, Name: "old"}, time.Hour, 2*time.Hour)
	other := tlsgate.Issuer{Folder: w.path("otherpki")}
	w.must(other.Init(pki.AuthorityLife))
	_, err := other.Issue(w.path("stranger"), tlsgate.Grant{Identity: matrix.Identity{Role: matrix.Operator, Name: "eve"}})
	w.must(err)
	for name, c := range map[string]struct {
		folder string
		code   int
		want   []string
	}{
		"revoked":          {"gone", 3, []string{"revoked", "operator:gus", "rutter cert issue"}},
		"of another role":  {"node2", 3, []string{"operator"}},
		"ended":            {"aged", 1, []string{"expired", "reader:old", "rutter cert issue"}},
		"of other cluster": {"stranger", 3, []string{"authority", "right cluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), rutter, "tag", "create", "name=never")
			cmd.Env = w.environment(c.folder)
			begun := time.Now()
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != c.code {
				t.Errorf("%v, want exit code %d: %s", err, c.code, out)
			}
			for _, part := range c.want {
				if !strings.Contains(string(out), part) {
					t.Errorf("it says %q, without %q", out, part)
				}
			}
			if took := time.Since(begun); took > 20*time.Second { // a request goes on for 30 s else
				t.Errorf("it went on for %v", took)
			}
		})
	}
}

// A server whose certificates are revoked is alone, the others go on; with new
// ones it is back.
func testRevokedServer(t *testing.T, w *world) {
	w.must(w.run("cert", "revoke", "server:s3", "--reason", "a test"))
	w.awaitShut(w.raft[0], w.peerPair("s3"))
	two := w.client("ada", w.urls[0], w.urls[1])
	var head log.Seq
	behind := func() bool {
		got, err := w.client("ada", w.urls[2]).Head(w.short())
		return err != nil || got < head
	}
	// The connections that it has are ended within a moment: then it hears of nothing.
	for n, alone := 0, false; !alone; n++ {
		if n == 100 {
			t.Fatalf("the revoked server is at %d, as far as the others", head)
		}
		_, err := two.Create(t.Context(), "/nic_tags", fmt.Appendf(nil, `{"name": "of_two_%d"}`, n))
		w.must(err)
		head, err = two.Head(t.Context())
		w.must(err)
		time.Sleep(200 * time.Millisecond) // for it to follow, were it not alone
		alone = behind()
	}
	w.issue("s3", matrix.Identity{Role: matrix.Server, Name: "s3"}, pki.Life)
	w.must(w.run("cert", "record", w.path("s3"))) // it was issued by hand, after the revocation
	for deadline := time.Now().Add(finishPatience); ; {
		if got, err := w.client("ada", w.urls[2]).Head(w.short()); err == nil && got >= head {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not come back with its new certificates")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// short is a time in which a server that is there answers.
func (w *world) short() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
	w.t.Cleanup(cancel)
	return ctx
}
