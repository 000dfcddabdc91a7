package gateway

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// TestStalls: an answer that pauses for longer than StallTime is cut off, and does not look
// whole; one that takes longer than that, with shorter pauses, arrives.
func TestStalls(t *testing.T) {
	b := newBed(t, VMAPI, func(cfg *Config) { cfg.StallTime = 400 * time.Millisecond })
	release := make(chan struct{})
	defer close(release)
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "[1")
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	response, err := http.Get(b.url + "/jobs")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if string(text) != "[1" || err == nil {
		t.Errorf("an answer that stands still: %q, %v", text, err)
	}
	await(t, "its slot is free", func() bool { return b.g.behind.slots.total() == 0 })
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		for range 12 {
			_, _ = io.WriteString(w, "1")
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	})
	if got := b.ask("GET", "/jobs", ""); got.body != strings.Repeat("1", 12) {
		t.Errorf("an answer that goes on: %q", got.body)
	}
}

// TestTotal: all clients together have at most MaxTotal requests with the old service, and
// a slot that was left is free again.
func TestTotal(t *testing.T) {
	var s slots
	var leave []func()
	enter := func(n int) error {
		l, err := s.enter(&http.Request{RemoteAddr: fmt.Sprintf("10.0.%d.1:99", n)}, "it")
		if err == nil {
			leave = append(leave, l)
		}
		return err
	}
	for n := range MaxTotal {
		if err := enter(n / MaxUnderWay); err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
	}
	if err := enter(250); err == nil || !strings.Contains(err.Error(), "512 requests") {
		t.Errorf("one too many: %v", err)
	}
	leave[0]()
	if err := enter(250); err != nil {
		t.Errorf("after one was left: %v", err)
	}
	for _, l := range leave[1:] {
		l()
	}
	if s.total() != 0 || len(s.each) != 0 {
		t.Errorf("left over: %d, %v", s.total(), s.each)
	}
}

// TestSweepIsBounded: a list without end is read up to MaxSwept; each round asks for
// maxLooks VMs that were not listed, and the next one for the others, also if the old VMAPI
// never says what became of the first.
func TestSweepIsBounded(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	page := "[" + strings.TrimSuffix(strings.Repeat("1,", vmPage), ",") + "]"
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/vms" {
			_, _ = io.WriteString(w, page)
			return
		}
		old(nil)(w, r)
	})
	const more = maxLooks / 2
	var ops []log.Op
	for n := range maxLooks + more {
		vm := &log.VM{UUID: log.UUID{1, 14: byte(n >> 8), 15: byte(n)}, OwnerUUID: log.UUID{9}, State: "running"}
		ops = append(ops, log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "state", "uuid"}, Object: vm})
	}
	for len(ops) > 0 {
		b.propose(ops[:50]...)
		ops = ops[50:]
	}
	asked := make(map[string]int)
	for round := 1; round <= 2; round++ {
		before := len(b.asked())
		if err := b.g.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		pages, looks := 0, 0
		for _, one := range b.asked()[before:] {
			if strings.HasPrefix(one, "GET /vms?") {
				pages++
				continue
			}
			looks++
			asked[one]++
		}
		if pages != MaxSwept/vmPage || looks != maxLooks {
			t.Errorf("round %d: %d pages, %d VMs", round, pages, looks)
		}
	}
	if len(asked) != maxLooks+more+1 { // with oldVM
		t.Errorf("%d VMs were asked for in two rounds", len(asked))
	}
}

type tripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSync: sync=true has the old VMAPI ask the node, which may take longer than other
// questions; of a node with Rutter's agent the log answers.
func TestSync(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	b.g.behind.client.Transport = tripper(func(r *http.Request) (*http.Response, error) {
		at, limited := r.Context().Deadline()
		if long := time.Until(at) > askTime; !limited || long != (r.URL.Query().Get("sync") == "true") {
			t.Errorf("%s has until %v", r.URL, at)
		}
		return b.g.behind.transport.RoundTrip(r)
	})
	b.answerWith(old(map[string]string{oldVM: object(oldVM, oldCN, "stopped", "2026-01-01T00:00:00.000Z")}))
	if got := b.ask("GET", "/vms/"+oldVM+"?sync=true", ""); got.status != 200 || !strings.Contains(got.body, `"state":"stopped"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if last := b.last(); !strings.Contains(last.uri, "sync=true") {
		t.Errorf("the old one was asked %s", last.uri)
	}
	before := len(b.asked())
	if got := b.ask("GET", "/vms/"+newVM+"?sync=true", ""); got.status != 200 || len(b.asked()) != before {
		t.Errorf("a node with Rutter's agent: %d %s, asked %q", got.status, got.body, b.asked()[before:])
	}
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	if got := b.ask("GET", "/vms/"+oldVM+"?sync=true", ""); got.status != 503 {
		t.Errorf("an old one that cannot say: %d", got.status)
	}
	// One that only the log knows is the log's.
	b.answerWith(old(nil))
	if got := b.ask("GET", "/vms/"+oldVM+"?sync=true", ""); got.status != 200 {
		t.Errorf("one that the old one does not know: %d %s", got.status, got.body)
	}
}

// TestManyInOnePut: a PUT of more VMs than a compute node has is refused before either side
// is asked for one of them.
func TestManyInOnePut(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	var vms []string
	for n := range MaxPut + 1 {
		vms = append(vms, fmt.Sprintf(`"5595d88c-6e4d-4bda-b58e-%012x":{"state":"destroyed"}`, n))
	}
	if got := b.ask("PUT", "/vms?server_uuid="+oldCN, `{"vms":{`+strings.Join(vms, ",")+`}}`); got.status != 422 || len(b.asked()) != 0 {
		t.Errorf("%d %.200s, asked %d times", got.status, got.body, len(b.asked()))
	}
	if got := b.ask("PUT", "/vms?server_uuid="+oldCN, `{"vms":null}`); got.status != 422 || len(b.asked()) != 0 {
		t.Errorf("none: %d %s", got.status, got.body)
	}
}

// TestCompressedAnswer: the record of a VM that is made is in the log before the answer also
// for a client that takes compressed answers: the old VMAPI is not told so.
func TestCompressedAnswer(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && r.Header.Get("Accept-Encoding") != "" {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(http.StatusAccepted)
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, `{"vm_uuid":"`+freshVM+`"}`)
			_ = z.Close()
			return
		}
		old(map[string]string{freshVM: object(freshVM, oldCN, "provisioning", "")})(w, r)
	})
	if got := b.ask("POST", "/vms", `{"owner_uuid":"`+owner+`"}`, "Accept-Encoding=gzip"); got.status != 202 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if b.vm(freshVM) == nil {
		t.Error("the log does not have the VM")
	}
	b.answerWith(nil)
	if b.ask("GET", "/jobs", "", "Accept-Encoding=gzip"); b.last().header.Get("Accept-Encoding") != "gzip" {
		t.Error("an answer that is passed on only may be compressed")
	}
}

// TestLateReports: a sysinfo that the old CNAPI will never take is not sent again, and one
// node is one entry, however its path is written.
func TestLateReports(t *testing.T) {
	b := newBed(t, CNAPI, nil)
	for _, status := range []int{http.StatusUnprocessableEntity, http.StatusInternalServerError} {
		b.answerWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		for _, path := range []string{oldCN + "/sysinfo", oldCN + "/sysinfo?a=1", oldCN + "/sysinfo?a=2", strings.ToUpper(oldCN) + "/sysinfo"} {
			if got := b.ask("POST", "/servers/"+path, `{"sysinfo":{"UUID":"`+oldCN+`","Hostname":"cn1b"}}`); got.status > 299 {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
			b.g.reports.under.Wait()
		}
		want := 0
		if status >= 500 {
			want = 1
		}
		if late := b.g.reports.waiting(); len(late) != want {
			t.Errorf("after %d: %d are late, want %d", status, len(late), want)
		}
	}
}
