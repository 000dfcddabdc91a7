package api

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/feedserver"
	"rutter/log/intake"
)

// mostHostile is what hostile clients may make a server's memory grow by, in bytes.
const mostHostile = 64 << 20

// hostileTime is how long they go on; with RUTTER_LONG a minute.
func hostileTime() time.Duration {
	if os.Getenv("RUTTER_LONG") != "" {
		return time.Minute
	}
	if testing.Short() {
		return 3 * time.Second
	}
	return 10 * time.Second
}

// A server bears garbage, slow senders, bombs and floods: it stays up, its memory
// is what it was, and others are answered.
func TestHostileClients(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	s, err := New(Config{Store: newMemory(), Identify: byHeader, Limits: guard.Limits{Rate: map[matrix.Role]int{matrix.CN: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	address := serveLeak(t, s)
	before := heapInUse()
	end := time.Now().Add(hostileTime())
	var crowd sync.WaitGroup
	var limited, refused atomic.Int64
	for i := range 8 {
		crowd.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				insult(address, i, n)
			}
		})
	}
	crowd.Go(func() { // a CN gone mad
		for time.Now().Before(end) {
			switch ask(address, cn1.String(), "GET", "/nics", "") {
			case http.StatusTooManyRequests:
				limited.Add(1)
			case http.StatusForbidden:
				refused.Add(1)
			}
		}
	})
	asked, wrong := 0, 0
	for time.Now().Before(end) {
		asked++
		if code := ask(address, "operator", "POST", "/nic_tags", fmt.Sprintf(`{"name":"t%d"}`, asked)); code != http.StatusOK {
			wrong++
		}
	}
	crowd.Wait()
	if wrong > 0 || asked == 0 {
		t.Errorf("%d of %d writes of an operator failed", wrong, asked)
	}
	if limited.Load() == 0 {
		t.Error("a CN that asked without end was never told to wait")
	}
	// What the last of them sent may still be read.
	for deadline := time.Now().Add(30 * time.Second); heapInUse()-before > mostHostile; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server's memory grew by %d bytes", heapInUse()-before)
		}
	}
	t.Logf("%d writes beside it, the mad CN was told to wait %d times", asked, limited.Load())
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// ask makes a request and returns its status, 0 if there was no answer.
func ask(address, as, method, path, body string) int {
	r, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header.Set(asHeader, as)
	r.Header.Set("Content-Type", "application/json")
	response, err := hostileHTTP.Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

var hostileHTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}

// insult connects once and misbehaves, in one of several ways.
func insult(address string, sort, n int) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(500 * time.Millisecond))
	upgrade := func(path, protocol string) {
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", path, asHeader, cn1, protocol)
	}
	frame := func(kind byte, announced uint32, payload []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, announced)
		return append(append(b, kind, 0, 0, 0, 0), payload...)
	}
	switch sort {
	case 0: // garbage
		b := make([]byte, 4096)
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		_, _ = conn.Write(b)
	case 1: // a header that never ends
		fmt.Fprintf(conn, "GET /nics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
		_, _ = conn.Write(bytes.Repeat([]byte{'a'}, 2*MaxHeader))
	case 2: // a slow sender
		fmt.Fprintf(conn, "POST /changes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n{")
		_, _ = conn.Read(make([]byte, 1))
		return
	case 3: // a body without end
		fmt.Fprintf(conn, "POST /changes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range 4 {
			fmt.Fprintf(conn, "80000\r\n%s\r\n", strings.Repeat("[", 0x80000))
		}
	case 4: // a frame that says it is large
		upgrade(intake.Path, intake.Protocol)
		_, _ = conn.Write(frame(64, 0xffffffff, nil))
	case 5: // one that is, of lengths that are not there
		upgrade(intake.Path, intake.Protocol)
		b, _ := intake.Append(nil, intake.TypeChange, append([]byte{1}, bytes.Repeat([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, 1000)...))
		_, _ = conn.Write(b)
	case 6: // a hello without an identity, and garbage
		upgrade("/feed", feedserver.Protocol)
		_, _ = conn.Write(bytes.Repeat([]byte{0xff}, 1<<16))
	case 7: // and gone
		if n%2 == 0 {
			upgrade("/feed", feedserver.Protocol)
		}
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
}

// Nothing that a stranger sends as a secret is said again anywhere.
func TestNoSecretIsSaid(t *testing.T) {
	const secret = "s3cr3t-0f-a-t0ken"
	notes := &noted{}
	var logged bytes.Buffer
	b := bedOf(t, Config{Identify: byHeader, Audit: notes, Logger: bufferLogger(&logged)})
	for _, as := range []string{"reader", "join", "operator", cn1.String()} {
		for _, path := range []string{"/nic_tags?token=" + secret, "/networks", "/cluster/members", "/nowhere?x=" + secret} {
			w := b.call("POST", path, `{"token":"`+secret+`"}`, asHeader, as, "Authorization", "Bearer "+secret, "X-Token", secret)
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("%s: POST %s is answered with the secret: %s", as, path, pretty(w))
			}
		}
	}
	for _, path := range []string{"/status", "/metrics", "/readyz?verbose"} {
		if w := b.call("GET", path, ""); strings.Contains(w.Body.String(), secret) {
			t.Errorf("%s has the secret", path)
		}
	}
	if strings.Contains(logged.String(), secret) {
		t.Error("the log of the process has the secret")
	}
	if len(notes.records) == 0 {
		t.Error("no refusal was noted")
	}
	for _, r := range notes.records {
		if strings.Contains(fmt.Sprintf("%+v", r), secret) {
			t.Errorf("the audit log has the secret: %+v", r)
		}
	}
}

// noted keeps what is noted.
type noted struct{ records []audit.Record }

func (n *noted) Note(r audit.Record) { n.records = append(n.records, r) }

func bufferLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
