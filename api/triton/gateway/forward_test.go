package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAsItWas: path, query, body and headers arrive as they were sent, and status, body
// and headers come back as they were answered, without credentials on the way.
func TestAsItWas(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("workflow-api", "http://10.99.99.19")
		w.Header().Set("x-joyent-resource-count", "7")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"code":"ValidationFailed","message":"Invalid VM","errors":[{"field":"networks","code":"SubnetFull"}]}`)
	})
	const sent = `{"owner_uuid":"` + owner + `","brand":"joyent","tags":{"a":1}}`
	got := b.ask("POST", "/vms?sync=false&context=%7B%7D", sent, "x-request-id=r1", `x-context={"caller":"x"}`, "Authorization=Basic eA==", "Cookie=a=b", "X-HTTP-Method-Override=DELETE")
	if got.status != 409 || got.header.Get("workflow-api") != "http://10.99.99.19" || got.header.Get("x-joyent-resource-count") != "7" || !strings.Contains(got.body, `"SubnetFull"`) {
		t.Errorf("the answer: %+v", got)
	}
	r := b.last()
	if r.method != "POST" || r.uri != "/vms?sync=false&context=%7B%7D" || r.body != sent || r.header.Get("x-request-id") != "r1" || r.header.Get("x-context") != `{"caller":"x"}` {
		t.Errorf("the request: %+v", r)
	}
	for _, name := range []string{"Authorization", "Cookie", "X-Http-Method-Override"} {
		if r.header.Get(name) != "" {
			t.Errorf("%s was passed on", name)
		}
	}
}

// TestStreams: the parts of an answer arrive as they are sent, not at its end.
func TestStreams(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	next := make(chan struct{})
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "{\"type\":\"progress\"}\n")
			w.(http.Flusher).Flush()
			<-next
		}
	})
	r, _ := http.NewRequestWithContext(t.Context(), "GET", b.url+"/migrations/"+oldVM+"/watch", nil)
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "progress") {
			t.Fatalf("line %d: %q, %v", i, line, err)
		}
		next <- struct{}{} // only now the next is sent
	}
}

// TestHangs: a service that never answers holds its own requests for their time, and what
// the log has is answered meanwhile.
func TestHangs(t *testing.T) {
	b := newBed(t, VMAPI, func(cfg *Config) { cfg.HeaderTime = 300 * time.Millisecond })
	release := make(chan struct{})
	defer close(release)
	b.answerWith(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	done := make(chan answer, 1)
	go func() { done <- b.ask("POST", "/vms/"+oldVM+"?action=start", "{}") }()
	await(t, "the request is with the old service", func() bool { return b.g.behind.slots.total() == 1 })
	if got := b.ask("GET", "/vms/"+oldVM, ""); got.status != 200 {
		t.Errorf("what the log has: %d %s", got.status, got.body)
	}
	if got := <-done; got.status != 504 || got.code() != "GatewayTimeout" || !strings.Contains(got.body, "--vmapi-behind") {
		t.Errorf("what hangs: %d %s", got.status, got.body)
	}
}

// TestUnderWay: one identity has a bounded number of requests with the old service.
func TestUnderWay(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	release := make(chan struct{})
	b.answerWith(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	var under sync.WaitGroup
	for range MaxUnderWay {
		under.Go(func() { b.ask("GET", "/jobs", "") })
	}
	await(t, "all are with the old service", func() bool { return b.g.behind.slots.total() == MaxUnderWay })
	if got := b.ask("GET", "/jobs", ""); got.status != 429 || got.code() != "RequestThrottled" {
		t.Errorf("one more: %d %s", got.status, got.body)
	}
	if got := b.ask("GET", "/vms", ""); got.status != 200 {
		t.Errorf("what the log has: %d", got.status)
	}
	close(release)
	under.Wait()
	await(t, "their slots are free", func() bool { return b.g.behind.slots.total() == 0 })
	if got := b.ask("GET", "/jobs", ""); got.status != 200 {
		t.Errorf("after them: %d", got.status)
	}
}

// rawOld is an old service that answers connections with bytes.
func rawOld(t *testing.T, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); ended.Wait() })
	ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ended.Go(func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					serve(c)
				}
			})
		}
	})
	return "http://" + l.Addr().String()
}

// TestGarbage: what is no answer is a 502 in Triton's form, and an answer that breaks off
// does not look whole.
func TestGarbage(t *testing.T) {
	for name, text := range map[string]string{"no HTTP": "\x00\xff nonsense\r\n\r\n", "nothing": "", "half a header": "HTTP/1.1 200 OK\r\nContent-"} {
		b := newBed(t, VMAPI, func(cfg *Config) {
			cfg.Behind = rawOld(t, func(c net.Conn) { _, _ = io.WriteString(c, text) })
		})
		if got := b.ask("GET", "/jobs", ""); got.status != 502 || got.code() != "BadGateway" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	b := newBed(t, VMAPI, func(cfg *Config) {
		cfg.Behind = rawOld(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n[{\"uuid\":")
		})
	})
	response, err := http.Get(b.url + "/jobs")
	if err == nil {
		_, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	if err == nil {
		t.Error("an answer that broke off looks whole")
	}
}

// TestDown: without the old service what needs it is a 503 with a clear text, and what
// the log has is answered.
func TestDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	b := newBed(t, VMAPI, func(cfg *Config) { cfg.Behind = "http://" + l.Addr().String() })
	got := b.ask("POST", "/vms", `{"owner_uuid":"`+owner+`"}`)
	if got.status != 503 || got.code() != "ServiceUnavailable" || !strings.Contains(got.body, "nothing was sent") || got.header.Get("Retry-After") == "" {
		t.Errorf("a creation: %d %s", got.status, got.body)
	}
	if got := b.ask("GET", "/vms/"+freshVM, ""); got.status != 503 {
		t.Errorf("a VM that only the old one could know: %d %s, want no 404", got.status, got.body)
	}
	for _, path := range []string{"/vms", "/vms/" + oldVM, "/ping"} {
		if got := b.ask("GET", path, ""); got.status != 200 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if w := b.g.Warnings(); len(w) != 1 || !strings.Contains(w[0], "--vmapi-behind") || b.g.up() {
		t.Errorf("the warnings: %q", w)
	}
}

// TestRedirects: a redirect is passed on, not followed: nothing is sent where it leads.
func TestRedirects(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	stranger := make(chan struct{}, 8)
	other := rawOld(t, func(net.Conn) { stranger <- struct{}{} })
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other+"/latest/meta-data", http.StatusTemporaryRedirect)
	})
	if got := b.ask("GET", "/jobs", ""); got.status != 307 {
		t.Errorf("%d", got.status)
	}
	if got := b.ask("GET", "/vms/"+freshVM, ""); got.status != 503 { // the gateway's own request
		t.Errorf("the gateway's own: %d %s", got.status, got.body)
	}
	select {
	case <-stranger:
		t.Error("a redirect was followed")
	default:
	}
}

// TestLoop: a URL that leads back to a gateway is refused with the setting's name, also
// for what the log owns.
func TestLoop(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	for _, path := range []string{"/jobs", "/vms"} {
		if got := b.ask("GET", path, "", HeaderLoop+"=s2"); got.status != 508 || got.code() != "LoopDetected" || !strings.Contains(got.body, "--vmapi-behind") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	two := newBed(t, VMAPI, func(cfg *Config) { cfg.Behind = b.url })
	if got := two.ask("GET", "/jobs", ""); got.status != 508 {
		t.Errorf("a gateway behind a gateway: %d %s", got.status, got.body)
	}
	if n := len(b.asked()); n != 0 {
		t.Errorf("%d requests went round", n)
	}
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// TestLarge: 100 MB of a request are refused at the bound, and 100 MB of an answer are
// passed on without being kept.
func TestLarge(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	const size = 100 << 20
	for _, path := range []string{"/vms", "/vms/" + oldVM + "?action=update", "/nothing"} {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", b.url+path, io.LimitReader(endless{}, size))
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			continue // it was cut off while it sent
		}
		response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	if n := len(b.asked()); n != 0 {
		t.Errorf("%d of them were handed on", n)
	}
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(endless{}, size)) })
	response, err := http.Get(b.url + "/jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); n != size || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

// TestGone: a client that goes away ends its request at the old service too.
func TestGone(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	arrived, left := make(chan struct{}), make(chan struct{})
	b.answerWith(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(left)
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", b.url+"/jobs/x/wait", nil)
	go func() { <-arrived; cancel() }()
	if _, err := http.DefaultTransport.RoundTrip(r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-left
	await(t, "its slot is free", func() bool { return b.g.behind.slots.total() == 0 })
}

// TestPathTricks: a path with two readings reaches neither side's other call.
func TestPathTricks(t *testing.T) {
	b := newBed(t, CNAPI, nil)
	host := strings.TrimPrefix(b.url, "http://")
	for _, line := range []string{
		"POST /servers/" + oldCN + "/execute/ HTTP/1.1", "POST /servers/" + oldCN + "/exe%63ute HTTP/1.1",
		"POST /servers/" + newCN + "/execute/ HTTP/1.1", "POST /%73ervers/" + oldCN + "/execute HTTP/1.1",
		"POST /servers/" + oldCN + "/..;/execute HTTP/1.1", "POST /servers/" + oldCN + "/execute HTTP/1.0",
		"POST /servers/" + oldCN + "/vms/../execute HTTP/1.1", "POST //servers/" + oldCN + "/execute HTTP/1.1",
		"POST /servers//" + oldCN + "/execute HTTP/1.1", "POST /servers/" + oldCN + "%2fexecute HTTP/1.1",
		"POST /servers/" + oldCN + "/%2e%2e/" + oldCN + "/execute HTTP/1.1", "POST /nothing%2f..%2fservers/" + oldCN + "/execute HTTP/1.1",
		"POST http://10.0.0.1/servers/" + oldCN + "/execute HTTP/1.1", "POST /SERVERS/" + oldCN + "/execute HTTP/1.1",
		"POST x:http://10.0.0.1/servers/" + oldCN + "/execute HTTP/1.1", "POST http:servers/" + oldCN + "/execute HTTP/1.1",
		"EXECUTE /servers/" + oldCN + " HTTP/1.1", "POST /servers/" + strings.ToUpper(oldCN) + "/execute HTTP/1.1",
	} {
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "%s\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{\"script\":\"id\"}", line, host)
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if response.StatusCode < 300 {
			t.Errorf("%s: %d", line, response.StatusCode)
		}
		_ = c.Close()
	}
	// The right programs does not make a slash at the end another call.
	b.who.Store("programs")
	if got := b.ask("POST", "/servers/"+oldCN+"/execute/", `{"script":"id"}`); got.status != 400 {
		t.Errorf("a slash at the end: %d", got.status)
	}
	for _, got := range b.asked() {
		t.Errorf("handed on: %s", got)
	}
}
