package vmhelper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/agent/vminfo/internal/vmtest"
	"rutter/log"
)

// stranger is a user of the machine who has no rights.
const stranger = 65534

// hostile is a client that does what it should not: text is what, and the socket.
func hostile(text string) {
	what, socket, _ := strings.Cut(text, " ")
	dial := func() net.Conn {
		conn, err := net.Dial("unix", socket) //nolint:noctx // it lasts as long as the program
		if err != nil {
			fmt.Println("no connection:", err)
			os.Exit(0)
		}
		return conn
	}
	switch what {
	case "start":
		conn := dial()
		id, _ := log.ParseUUID(vmtest.UUID(1))
		message, _ := encode(request{Protocol: protocol, Act: actStart, VM: id})
		_, _ = conn.Write(message)
		reply, err := readMessage(conn, MaxAnswer)
		fmt.Printf("%s %v\n", reply, err)
	case "many":
		held := 0
		for range 1000 {
			conn := dial()
			if what, _, err := decodeAnswerFrom(conn); err == nil && what.Error == nil {
				held++
			}
			defer conn.Close()
		}
		fmt.Println("held", held)
	case "hold":
		var all []net.Conn
		refused := 0
		for range maxOfProcess + 20 {
			conn := dial()
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if reply, err := readMessage(conn, MaxAnswer); err == nil && strings.Contains(string(reply), `"busy"`) {
				refused++
				continue
			}
			all = append(all, conn)
		}
		fmt.Println("held", len(all), "refused", refused)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// decodeAnswerFrom reads an answer that comes without a request.
func decodeAnswerFrom(conn net.Conn) (answer, bool, error) {
	reply, err := readMessage(conn, MaxAnswer)
	if err != nil {
		return answer{}, false, err
	}
	return decodeAnswer(reply)
}

// asStranger is hostile as another user, with a socket whose mode lets everyone in.
func (h *helper) asStranger(what string) string {
	h.t.Helper()
	for _, path := range []string{h.set.Socket, filepath.Dir(h.set.Socket), filepath.Dir(filepath.Dir(h.set.Socket))} {
		if err := os.Chmod(path, 0o777); err != nil {
			h.t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(h.t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), hostVariable+"="+what+" "+h.set.Socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestStrangers: another user of the node gets nothing done, however many connections it
// opens, also where the mode of the socket lets it in; root is answered meanwhile.
func TestStrangers(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "strangers")
	id := h.write(1, "")
	if got := h.asStranger("start"); !strings.Contains(got, `"codes":["peer"]`) {
		t.Errorf("a stranger's start: %s", got)
	}
	if got := h.asStranger("many"); got != "held 0\n" {
		t.Errorf("a stranger's connections: %s", got)
	}
	if h.process(id) != 0 {
		t.Error("the VM runs")
	}
	r, err := h.Probe(t.Context())
	if err != nil || r.Refused[refusedPeer] != 1001 || r.Open != 1 {
		t.Errorf("its report: %+v, %v", r, err)
	}
	is(t, "root's start", h.Start(t.Context(), id), nil)
}

// TestOneProcessHoldsNoOther: a process of root's that holds connections has no more than its
// share of them, and the agent is served.
func TestOneProcessHoldsNoOther(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "hold")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), hostVariable+"=hold "+h.set.Socket)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id := h.write(1, "")
	is(t, "started", h.Start(t.Context(), id), nil)
	h.until("refused", func(Status) bool {
		r, err := h.Probe(t.Context())
		return err == nil && r.Refused[refusedProcess] > 0
	})
	is(t, "stopped", h.Stop(t.Context(), id, true), nil)
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), fmt.Sprintf("held %d refused", maxOfProcess)) {
		t.Errorf("it said %q, want %d held", out.String(), maxOfProcess)
	}
}

// TestHostileRequests: what is no request is refused or closed, and holds nothing up.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "requests")
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("unix", h.set.Socket) //nolint:noctx // it is on this machine
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		return conn
	}
	framed := func(text string) string {
		return string([]byte{0, 0, 0, byte(len(text))}) + text
	}
	for what, c := range map[string]struct{ send, want string }{
		"HTTP":                   {"GET / HTTP/1.1\r\n\r\n", "a message of 1195725856 bytes"},
		"nothing in it":          {"\x00\x00\x00\x00", "a message of 0 bytes"},
		"huge":                   {"\xff\xff\xff\xff", "a message of 4294967295 bytes"},
		"no JSON":                {framed("]"), "not a request"},
		"no protocol":            {framed(`{"act":"status"}`), "protocol 0"},
		"a later act":            {framed(`{"protocol":9,"act":"migrate"}`), `"unknown_act"`},
		"a later field":          {framed(`{"protocol":9,"act":"status","new":{"a":[1]}}`), `"pid"`},
		"no VM":                  {framed(`{"protocol":1,"act":"start"}`), "without the UUID"},
		"a VM of nonsense":       {framed(`{"protocol":1,"act":"start","vm":"../../etc"}`), "not a request"},
		"no manifest":            {framed(`{"protocol":1,"act":"create"}`), "without a manifest"},
		"a manifest of nonsense": {framed(`{"protocol":1,"act":"create","manifest":"e30="}`), "uuid"},
	} {
		conn := dial()
		if _, err := io.WriteString(conn, c.send); err != nil {
			t.Fatal(err)
		}
		if reply, err := readMessage(conn, MaxAnswer); err != nil || !strings.Contains(string(reply), c.want) {
			t.Errorf("%s: %s, %v, want %q", what, reply, err, c.want)
		}
	}
	half, silent, slow := dial(), dial(), dial()
	if _, err := half.Write([]byte{0, 0, 0, 100, '{'}); err != nil {
		t.Fatal(err)
	}
	if err := half.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if reply, err := readMessage(half, MaxAnswer); err != nil || !strings.Contains(string(reply), "1 bytes of 100 came") {
		t.Errorf("half of a request: %s, %v", reply, err)
	}
	began := time.Now()
	for _, conn := range []net.Conn{silent, slow} { // each byte comes within the time of the whole
		go func() {
			for conn == slow {
				if _, err := conn.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(requestWithin / 20)
			}
		}()
	}
	is(t, "a probe meanwhile", func() error { _, err := h.Probe(t.Context()); return err }(), nil)
	_, err := readMessage(silent, MaxAnswer)
	if err != nil && !errors.Is(err, io.EOF) || time.Since(began) > 30*time.Second {
		t.Errorf("a client that sends nothing: %v after %v", err, time.Since(began))
	}
	_, _ = readMessage(slow, MaxAnswer) // its zeros are a length of nothing, if they came together
	h.idle()
}

// TestOtherServer: a client sends nothing to a program of another user that listens in the
// helper's place.
func TestOtherServer(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "other")
	id := h.write(1, "")
	h.signal(syscall.SIGKILL)
	if err := os.Remove(h.set.Socket); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(h.set.Socket), filepath.Dir(filepath.Dir(h.set.Socket))} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	text := fmt.Sprintf(`{"Config":{"Manifests":%q,"PIDs":%q},"Socket":%q}`, h.site.Manifests, h.site.PIDs, h.set.Socket)
	cmd.Env = append(os.Environ(), serveVariable+"="+text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h.until("another's", func(s Status) bool {
		return !s.Answers && strings.Contains(s.Failure, fmt.Sprintf("of user %d", stranger))
	})
	err := h.Start(t.Context(), id)
	is(t, "started", err, ErrNoHelper)
}
