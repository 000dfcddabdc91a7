package changefeed

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// served runs a Service behind a socket until the test ends.
func served(t *testing.T, cfg Config) (s *Service, address string) {
	t.Helper()
	return servedFor(t, t, cfg)
}

// servedFor is served until another thing than the test ends.
func servedFor(t *testing.T, scope interface{ Cleanup(func()) }, cfg Config) (s *Service, address string) {
	t.Helper()
	s, address, stop := servedUntil(t, cfg)
	scope.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s, address
}

// servedUntil is served until stop is called.
func servedUntil(t *testing.T, cfg Config) (s *Service, address string, stop func() error) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	server := httptest.NewServer(s.Handler())
	await(t, "Run serves", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.phase == running
	})
	return s, server.Listener.Addr().String(), func() error {
		cancel()
		defer server.Close()
		return <-ended
	}
}

// await waits for what other goroutines do.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not after %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// wire is a listener as sdc-changefeed's is on the wire (spec/changefeed.md
// section 1.2): every byte is its own.
type wire struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// probe asks as the listener does before it upgrades.
func probe(t *testing.T, address string) (status int, body string) {
	t.Helper()
	conn := dial(t, address)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /changefeeds HTTP/1.1\r\naccept: application/octet-stream\r\nuser-agent: restify/1.5.3 (x64-linux; v8/9.4; OpenSSL/1.1.1) node/16.0.0\r\naccept-version: ~1\r\ndate: Sat, 21 Nov 2026 12:00:00 GMT\r\nHost: %s\r\nConnection: close\r\n\r\n", address)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(b)
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

const wireKey = "dGhlIHNhbXBsZSBub25jZQ=="

// upgraded upgrades a connection as the listener does, and checks the answer as
// watershed does.
func upgraded(t *testing.T, address string, version Version) *wire {
	t.Helper()
	conn := dial(t, address)
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /changefeeds HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\naccept: application/octet-stream\r\nuser-agent: restify/1.5.3 (x64-linux)\r\naccept-version: ~%d\r\nHost: %s\r\n\r\n", wireKey, version, address)
	w := &wire{t, conn, bufio.NewReader(conn)}
	response, err := http.ReadResponse(w.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha1.Sum([]byte(wireKey + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	switch h := response.Header; {
	case response.StatusCode != http.StatusSwitchingProtocols:
		t.Fatalf("the upgrade is answered %s", response.Status)
	case len(h.Values("Connection")) != 1 || !strings.EqualFold(h.Get("Connection"), "upgrade"):
		t.Fatalf("Connection: %q, want Upgrade alone", h.Values("Connection"))
	case len(h.Values("Upgrade")) != 1 || !strings.EqualFold(h.Get("Upgrade"), "websocket"):
		t.Fatalf("Upgrade: %q", h.Values("Upgrade"))
	case h.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]):
		t.Fatalf("Sec-WebSocket-Accept: %q", h.Get("Sec-WebSocket-Accept"))
	case h.Get("Sec-WebSocket-Version") != "" && h.Get("Sec-WebSocket-Version") != "13":
		t.Fatalf("Sec-WebSocket-Version: %q", h.Get("Sec-WebSocket-Version"))
	case h.Get("Sec-WebSocket-Protocol") != "" || h.Get("Sec-WebSocket-Extensions") != "":
		t.Fatalf("the answer has a subprotocol or an extension: %v", h)
	}
	return w
}

// send writes one masked frame in several writes: header, mask, payload.
func (w *wire) send(opcode byte, payload []byte) {
	w.t.Helper()
	head := []byte{0x80 | opcode}
	switch n := len(payload); {
	case n < 126:
		head = append(head, 0x80|byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 0x80|126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 0x80|127), uint64(n))
	}
	mask := []byte{1, 2, 3, 4}
	masked := make([]byte, len(payload))
	for i, b := range payload {
		masked[i] = b ^ mask[i%4]
	}
	for _, part := range [][]byte{head, mask, masked} {
		if _, err := w.conn.Write(part); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Opcodes of frames (RFC 6455 section 5.2).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// frame reads one frame, which must be as watershed takes it: whole and unmasked.
func (w *wire) frame() (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(w.in, head[:]); err != nil {
		return 0, nil, err
	}
	if head[0]&0xf0 != 0x80 {
		return 0, nil, fmt.Errorf("frame begins with %#x: fragmented, or reserved bits", head[0])
	}
	if head[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("the frame is masked")
	}
	n := uint64(head[1])
	var long [8]byte
	switch n {
	case 126:
		if _, err := io.ReadFull(w.in, long[6:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(long[:])
	case 127:
		if _, err := io.ReadFull(w.in, long[:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(long[:])
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(w.in, payload)
	return head[0] & 0xf, payload, err
}

// text reads the next text, and answers pings before it.
func (w *wire) text() map[string]any {
	w.t.Helper()
	for {
		opcode, payload, err := w.frame()
		switch {
		case err != nil:
			w.t.Fatal(err)
		case opcode == opPing:
			w.send(opPong, payload)
		case opcode == opText:
			var v map[string]any
			if err := json.Unmarshal(payload, &v); err != nil {
				w.t.Fatalf("%s: %v", payload, err)
			}
			return v
		default:
			w.t.Fatalf("frame %d %q in place of a text", opcode, payload)
		}
	}
}

// closed reads frames up to a close, answers it, and returns its code and reason.
func (w *wire) closed() (code uint16, reason string) {
	w.t.Helper()
	for {
		opcode, payload, err := w.frame()
		if err != nil {
			w.t.Fatal(err)
		}
		if opcode == opClose && len(payload) >= 2 {
			w.send(opClose, payload[:2])
			return binary.BigEndian.Uint16(payload), string(payload[2:])
		}
	}
}

// register upgrades and registers, and returns the first text.
func register(t *testing.T, address string, version Version, registration string) (*wire, map[string]any) {
	t.Helper()
	w := upgraded(t, address, version)
	w.send(opText, []byte(registration))
	return w, w.text()
}
