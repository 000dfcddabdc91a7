package qmp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// transcript is what a real QEMU of Debian 12 sent to qmp_capabilities, query-status, cont,
// a command that there is not, system_reset, stop, system_powerdown and quit.
var transcript = filepath.Join("testdata", "qemu-7.2.txt")

// serve is a QEMU that sends what script says to each client.
func serve(t *testing.T, script func(conn net.Conn, in *bufio.Reader)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "qmp")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				script(conn, bufio.NewReader(conn))
			}()
		}
	}()
	return socket
}

// TestTranscript: what a real QEMU sent is understood, message by message.
func TestTranscript(t *testing.T) {
	text, err := os.ReadFile(transcript)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(text)), "\n")
	socket := serve(t, func(conn net.Conn, in *bufio.Reader) {
		for i, line := range lines {
			_, _ = io.WriteString(conn, strings.TrimRight(line, "\n")+"\r\n")
			if strings.Contains(line, `"event"`) || i == len(lines)-1 {
				continue
			}
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
		}
	})
	c, err := Open(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if state, err := c.RunState(t.Context()); err != nil || state != "prelaunch" {
		t.Errorf("its state is %q, %v", state, err)
	}
	for _, command := range []string{"cont", "nothing", "system_reset", "stop", "system_powerdown", "quit"} {
		if _, err := c.Execute(t.Context(), command); errors.Is(err, ErrRefused) != (command == "nothing") || err != nil && command != "nothing" {
			t.Errorf("%s: %v", command, err)
		}
	}
	var got []string
	for range 5 {
		e, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %v %s", e.Name, e.Guest, e.Reason))
	}
	if want := []string{"RESUME false ", "RESET false host-qmp-system-reset", "STOP false ", "POWERDOWN false ", "SHUTDOWN false host-qmp-quit"}; !slices.Equal(got, want) {
		t.Errorf("events: %q", got)
	}
	if _, err := c.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at its end: %v", err)
	}
}

// TestHostile: a QEMU that a guest has taken costs its caller a bounded time and memory.
func TestHostile(t *testing.T) {
	const greeting = `{"QMP": {}}` + "\n"
	for name, c := range map[string]struct {
		script func(conn net.Conn, in *bufio.Reader)
		want   error
	}{
		"a line without an end": {func(conn net.Conn, _ *bufio.Reader) {
			for {
				if _, err := conn.Write(make([]byte, MaxLine)); err != nil {
					return
				}
			}
		}, ErrMessage},
		"no JSON":         {func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, "hello\n") }, ErrMessage},
		"another message": {func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, `{"return":{},"id":1}`+"\n") }, ErrMessage},
		"another's answer": {func(conn net.Conn, in *bufio.Reader) {
			_, _ = io.WriteString(conn, greeting+`{"return":{},"id":7}`+"\n")
			_, _ = in.ReadString('\n')
		}, ErrMessage},
		"events without an end": {func(conn net.Conn, _ *bufio.Reader) {
			_, err := io.WriteString(conn, greeting)
			for err == nil {
				_, err = io.WriteString(conn, `{"event":"STOP"}`+"\n")
			}
		}, ErrFlood},
		"an end": {func(net.Conn, *bufio.Reader) {}, io.EOF},
	} {
		if _, err := Open(t.Context(), serve(t, c.script)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// One that says nothing costs its caller's time only as long as the caller wants.
	silent := serve(t, func(_ net.Conn, in *bufio.Reader) { _, _ = in.ReadString('\n') })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, silent); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
}

// TestRealQEMU: the commands that the node uses work on the QEMU of this machine, with two
// sockets at once.
func TestRealQEMU(t *testing.T) {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skipf("needs qemu-system-x86: %v", err)
	}
	dir := t.TempDir()
	line := []string{"-nodefaults", "-display", "none", "-accel", "tcg", "-m", "16"}
	for _, name := range []string{"a", "b"} {
		line = append(line, "-chardev", "socket,id="+name+",path="+name+",server=on,wait=off", "-mon", "chardev="+name+",mode=control")
	}
	cmd := exec.Command(path, line...)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var conns []*Conn
	for _, name := range []string{"a", "b"} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			c, err := Open(t.Context(), filepath.Join(dir, name))
			if err == nil {
				conns = append(conns, c)
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	if state, err := conns[0].RunState(t.Context()); err != nil || state != "running" {
		t.Errorf("its state is %q, %v", state, err)
	}
	for _, command := range []string{"stop", "cont", "system_powerdown", "quit"} {
		if _, err := conns[0].Execute(t.Context(), command); err != nil && (command != "quit" || !errors.Is(err, io.EOF)) {
			t.Errorf("%s: %v", command, err)
		}
	}
	var got []string
	for {
		e, err := conns[1].Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("at its end: %v", err)
			}
			break
		}
		got = append(got, e.Name+" "+e.Reason)
	}
	if want := []string{"STOP ", "RESUME ", "POWERDOWN ", "SHUTDOWN host-qmp-quit"}; !slices.Equal(got, want) {
		t.Errorf("events: %q, want %q", got, want)
	}
}

// FuzzMessage: no message makes the decoder fail otherwise than by ErrMessage, or keep more
// than its bounds of a text.
func FuzzMessage(f *testing.F) {
	text, err := os.ReadFile(transcript)
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f.Add([]byte(line))
	}
	f.Add([]byte(`{"event":"GUEST_PANICKED","data":{"action":"pause","info":{"type":"hyper-v"}}}`))
	f.Add([]byte(`{"event":"X","data":[1],"timestamp":7}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parse(line)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Errorf("%q: %v", line, err)
			}
			return
		}
		if m.Event != nil {
			if e := m.event(); len(e.Name) > maxText || len(e.Reason) > maxText || strings.ContainsFunc(e.Name+e.Reason, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: %+v", line, e)
			}
		}
	})
}

// TestAnswersToNothing: a QEMU that sends answers to no command, without an end, is left at the
// first: its reader does not read them as fast as they come.
func TestAnswersToNothing(t *testing.T) {
	for _, line := range []string{`{"return":{}}`, `{"return":{},"id":1}`, `{"error":{"class":"a","desc":"b"}}`, `{"QMP":{}}`} {
		socket := serve(t, func(conn net.Conn, in *bufio.Reader) {
			_, err := io.WriteString(conn, `{"QMP":{}}`+"\n")
			if _, asked := in.ReadString('\n'); asked != nil {
				return
			}
			_, _ = io.WriteString(conn, `{"return":{},"id":1}`+"\n")
			for err == nil {
				_, err = io.WriteString(conn, line+"\n")
			}
		})
		c, err := Open(t.Context(), socket)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := c.Next()
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, ErrMessage) {
				t.Errorf("%s: %v", line, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s: it is read on and on", line)
			_ = c.Close()
			<-ended
		}
		_ = c.Close()
	}
}
