package vminfo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vminfod"
	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmsource"
	"rutter/log"
)

// listSource is a source whose VMs a test puts.
type listSource struct {
	first []vmdoc.VM
	sink  vmsource.Sink
	scans int
}

func (l *listSource) Name() string { return "list" }
func (l *listSource) Scan()        { l.scans++ }
func (l *listSource) Status() vmsource.Status {
	return vmsource.Status{Name: "list", State: "watching"}
}

func (l *listSource) Run(ctx context.Context, sink vmsource.Sink) error {
	for _, vm := range l.first {
		if _, _, err := sink.Put(vm); err != nil {
			return err
		}
	}
	l.sink = sink
	sink.Loaded()
	<-ctx.Done()
	return nil
}

func testVM(t interface{ Fatal(...any) }, n int, fields string) vmdoc.VM {
	v, err := vmdoc.ParseValue(fmt.Appendf(nil, `{"uuid":%q,"zonename":%q%s}`, testUUID(n), testUUID(n), fields))
	if err != nil {
		t.Fatal(err)
	}
	vm, err := vmdoc.ParseVM(v)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// server is a service on a port of its own.
type server struct {
	*Service
	source *listSource
	addr   string
	client *vminfod.Client
	stop   func()
}

func newServer(t *testing.T, cfg Config, first ...vmdoc.VM) *server {
	t.Helper()
	source := &listSource{first: first}
	cfg.Sources = []vmsource.Source{source}
	service, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx, listener) }()
	transport := &http.Transport{}
	client := vminfod.New(listener.Addr().String(), "test")
	client.Transport = transport
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		transport.CloseIdleConnections()
	})
	t.Cleanup(stop)
	<-service.Ready()
	return &server{service, source, listener.Addr().String(), client, stop}
}

func (s *server) put(t *testing.T, n int, fields string) {
	t.Helper()
	if _, _, err := s.source.sink.Put(testVM(t, n, fields)); err != nil {
		t.Fatal(err)
	}
}

func TestHTTPAnswers(t *testing.T) {
	s := newServer(t, Config{}, testVM(t, 2, `,"alias":"é<&>"`), testVM(t, 1, ""))
	one, two := `{"uuid":"`+testUUID(1)+`","zonename":"`+testUUID(1)+`"}`, `{"uuid":"`+testUUID(2)+`","zonename":"`+testUUID(2)+`","alias":"é<&>"}`
	for _, test := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/ping", 200, `{"ping":"pong"}`},
		{"GET", "/vms", 200, "[" + one + "," + two + "]"},
		{"GET", "/vms/", 200, "[" + one + "," + two + "]"},
		{"GET", "/vms/" + testUUID(2), 200, two},
		{"GET", "/vms/none", 404, "VM Not Found: none"},
		{"GET", "/data", 404, "Unsupported URL Path"},
		{"GET", "/", 404, "Unsupported URL Path"},
		{"POST", "/vms", 400, ""},
		{"HEAD", "/ping", 400, ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, "http://"+s.addr+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: s.client.Transport}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != test.code || string(body) != test.body {
			t.Errorf("%s %s: got %d %q, %v; want %d %q", test.method, test.path, response.StatusCode, body, err, test.code, test.body)
		}
	}
}

func TestHTTPStatus(t *testing.T) {
	s := newServer(t, Config{}, testVM(t, 1, ""))
	events, err := s.client.Events(t.Context(), vminfod.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for _, path := range []string{"/status", "/status?full=true"} {
		text, err := s.client.Get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"pid", "uptime", "memory", "state", "status", "numVms", "curDate", "curTime", "queue", "lastRefresh", "refreshErrors", "eventsListeners"} {
			if fields[name] == nil {
				t.Errorf("%s has no %s: %s", path, name, text)
			}
		}
		if fields["fswatcher"] != nil != strings.Contains(path, "full") {
			t.Errorf("%s: %s", path, text)
		}
		if !strings.Contains(string(text), `"state":"running","status":"working","numVms":1`) || !strings.Contains(string(fields["eventsListeners"]), `"userAgent":"test - `) {
			t.Errorf("%s: %s", path, text)
		}
	}
	for d, want := range map[time.Duration]string{
		300500 * time.Millisecond: "300.5s (5.01m)", 1500 * time.Millisecond: "1.5s", 2 * time.Hour: "7200s (2h)", 36 * time.Hour: "129600s (1.5d)",
	} {
		if got := vmsource.PrettySeconds(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

// TestHTTPReadyLine: the first line byte for byte, encoded twice.
func TestHTTPReadyLine(t *testing.T) {
	now := time.Date(2026, 11, 21, 7, 0, 0, 5e6, time.UTC)
	s := newServer(t, Config{Store: vmstore.Config{Now: func() time.Time { return now }}}, testVM(t, 1, `,"alias":"a\"\n☃"`))
	response, err := s.client.Open(t.Context(), "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Scan()
	var ready struct{ UUID, VMs, Log string }
	if err := json.Unmarshal(lines.Bytes(), &ready); err != nil {
		t.Fatal(err)
	}
	vms, err := json.Marshal(ready.VMs)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"type":"ready","date":"2026-11-21T07:00:00.005Z","uuid":%q,"vms":%s,"seq":0,"log":%q}`, ready.UUID, vms, s.Store().ID())
	if got := lines.Text(); got != want || ready.VMs != `[{"uuid":"`+testUUID(1)+`","zonename":"`+testUUID(1)+`","alias":"a\"\n☃"}]` {
		t.Errorf("got  %s\nwant %s\nvms %s", got, want, ready.VMs)
	}
	s.put(t, 1, `,"alias":"b"`)
	lines.Scan()
	vm := `{"uuid":"` + testUUID(1) + `","zonename":"` + testUUID(1) + `","alias":"b"}`
	want = `{"type":"modify","date":"2026-11-21T07:00:00.005Z","zonename":"` + testUUID(1) + `","uuid":"` + testUUID(1) + `","vm":` + vm +
		`,"changes":[{"prettyPath":"alias","path":["alias"],"action":"changed","oldValue":"a\"\n☃","newValue":"b"}],"seq":1}`
	if got := lines.Text(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.source.sink.Delete(testVM(t, 1, "").UUID)
	lines.Scan()
	want = `{"type":"delete","date":"2026-11-21T07:00:00.005Z","zonename":"` + testUUID(1) + `","uuid":"` + testUUID(1) + `","seq":2}`
	if got := lines.Text(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestHTTPResume(t *testing.T) {
	s := newServer(t, Config{Store: vmstore.Config{Events: 3}})
	for n := range 5 {
		s.put(t, n, "")
	}
	id := s.Store().ID()
	for _, test := range []struct {
		place  vminfod.Position
		first  string
		reset  string
		follow uint64
	}{
		{vminfod.Position{Log: id, Seq: 3}, "resumed", "", 4},
		{vminfod.Position{Log: id, Seq: 2}, "resumed", "", 3},
		{vminfod.Position{Log: id, Seq: 1}, "ready", "not kept", 0},
		{vminfod.Position{Log: id, Seq: 9}, "ready", "after the last", 0},
		{vminfod.Position{Log: "other", Seq: 4}, "ready", "another log", 0},
	} {
		events, err := s.client.Events(t.Context(), test.place)
		if err != nil {
			t.Fatal(err)
		}
		if got := events.Ready; got.Type != test.first || !strings.Contains(got.Reset, test.reset) {
			t.Errorf("%+v: got %s", test.place, got.Line)
		}
		if test.follow > 0 {
			if m, err := events.Next(); err != nil || m.Seq != test.follow {
				t.Errorf("%+v: got %d, %v, want %d", test.place, m.Seq, err, test.follow)
			}
		} else if len(events.Ready.VMs) != 5 {
			t.Errorf("%+v: %d VMs", test.place, len(events.Ready.VMs))
		}
		events.Close()
	}
}

// TestHTTPSlowReader: it gets a lost line, its stream ends, and nothing accumulates for
// it.
func TestHTTPSlowReader(t *testing.T) {
	s := newServer(t, Config{Store: vmstore.Config{Events: 4}, WriteTimeout: time.Hour}) // the kept events are the limit, not the write timeout
	events, err := s.client.Events(t.Context(), vminfod.Position{Log: s.Store().ID(), Seq: 0})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	filler := strings.Repeat("x", 1<<20)
	for n := range 64 { // more than sockets buffer
		s.put(t, 1, fmt.Sprintf(`,"n":%d,"filler":%q`, n, filler))
	}
	if kept, _, _ := s.Store().Kept(); kept != 4 {
		t.Errorf("%d events kept, want 4", kept)
	}
	for {
		if _, err = events.Next(); err != nil {
			break
		}
	}
	if !errors.Is(err, vmstore.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if got := s.Status(false).Rutter.Lost; got != 1 {
		t.Errorf("%d listeners lost, want 1", got)
	}
	if again, err := s.client.Events(t.Context(), events.Position); err != nil || again.Ready.Type != "ready" || again.Ready.Reset == "" {
		t.Errorf("resumed after a loss: %s, %v", again.Ready.Line, err)
	} else {
		again.Close()
	}
}

func TestHTTPTooManyListeners(t *testing.T) {
	s := newServer(t, Config{Listeners: 1})
	events, err := s.client.Events(t.Context(), vminfod.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	var status *vminfod.StatusError
	if _, err := s.client.Events(t.Context(), vminfod.Position{}); !errors.As(err, &status) || status.Code != 503 {
		t.Errorf("got %v, want 503", err)
	}
}

func TestWait(t *testing.T) {
	s := newServer(t, Config{}, testVM(t, 1, `,"quota":1,"tags":{}`))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events, err := s.client.Events(ctx, vminfod.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	s.put(t, 2, "")
	s.put(t, 1, `,"quota":2,"tags":{}`)
	s.put(t, 1, `,"quota":3,"tags":{"a":"b"}`)
	if m, err := events.WaitEvent(ctx, "create", parseValue(t, `{"type":"create","uuid":"`+testUUID(2)+`"}`)); err != nil || m.Seq != 1 {
		t.Errorf("got %d, %v, want 1", m.Seq, err)
	}
	two, three := vmdoc.IntValue(2), vmdoc.IntValue(3)
	wants := [][]vminfod.Wanted{
		{{Path: []vmdoc.Step{{Name: "tags"}, {Any: true}}, Action: vmdoc.Added}},
		{{Path: []vmdoc.Step{{Name: "none"}}}, {Path: []vmdoc.Step{{Name: "quota"}}, Old: &two, New: &three}},
	}
	if err := events.WaitChanges(ctx, "update", parseValue(t, `{"uuid":"`+testUUID(1)+`"}`), wants); err != nil || events.Position.Seq != 3 {
		t.Errorf("got %v at %d, want nil at 3", err, events.Position.Seq)
	}
	if err := events.WaitChanges(ctx, "nothing", vmdoc.Value{}, nil); err != nil {
		t.Errorf("no wants: %v", err)
	}
}

// TestStreamMirrors: another vminfod's set is ours, over cut connections and a
// restart, by random walks.
func TestStreamMirrors(t *testing.T) {
	s := newServer(t, Config{Store: vmstore.Config{Events: 8}})
	proxy := httptest.NewServer(s.Handler())
	defer proxy.Close()
	client := vminfod.New(strings.TrimPrefix(proxy.URL, "http://"), "mirror")
	client.Transport = &http.Transport{DisableKeepAlives: true}
	stream, err := vminfod.NewStream(vminfod.StreamConfig{Client: client, RetryEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := New(Config{Sources: []vmsource.Source{stream}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mirror.Run(ctx, nil) }()
	<-mirror.Ready()
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			n := rapid.IntRange(0, 4).Draw(t, "vm")
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				proxy.CloseClientConnections()
			case 1:
				stream.Scan()
			case 2, 3:
				s.source.sink.Delete(testVM(t, n, "").UUID)
			default:
				fields := fmt.Sprintf(`,"quota":%d`, rapid.IntRange(0, 3).Draw(t, "quota"))
				if _, _, err := s.source.sink.Put(testVM(t, n, fields)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for deadline := time.Now().Add(time.Minute); !sameVMs(s.Store(), mirror.Store()); time.Sleep(100 * time.Microsecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the mirror has not what the original has; %+v", stream.Status())
			}
		}
	})
	if got := stream.Status().Missed; got != 0 {
		t.Errorf("%d changes were missed by events", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func sameVMs(a, b *vmstore.Store) bool {
	x, _ := a.List()
	y, _ := b.List()
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if string(x[i].JSON) != string(y[i].JSON) {
			return false
		}
	}
	return true
}

func TestStoreRefusesAnotherSource(t *testing.T) {
	s := vmstore.New(vmstore.Config{})
	vm := testVM(t, 1, "")
	if _, _, err := s.Put("a", vm); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Put("b", vm); !errors.Is(err, vmsource.ErrDuplicate) {
		t.Errorf("got %v, want ErrDuplicate", err)
	}
	if s.Delete("b", vm.UUID) || s.Count() != 1 {
		t.Error("another source deleted the VM")
	}
}

// TestZonenameOfTwo: a VM with the zonename of another, whatever their sources, is refused with
// who has it, and its source is told when the name is free: the other VM went, or has another.
func TestZonenameOfTwo(t *testing.T) {
	s := vmstore.New(vmstore.Config{})
	freed := 0
	s.OnReleased(func() { freed++ })
	zone := func(n int, name string) vmdoc.VM { return testVM(t, n, fmt.Sprintf(`,"zonename":%q`, name)) }
	put := func(source string, vm vmdoc.VM, want string) {
		t.Helper()
		_, _, err := s.Put(source, vm)
		if want == "" && err != nil || want != "" && (!errors.Is(err, vmsource.ErrZonename) || !strings.Contains(err.Error(), want)) {
			t.Errorf("VM %s: %v, want %q", vm.UUID, err, want)
		}
	}
	first, second := zone(1, "web0"), zone(2, "web0")
	put("a", first, "")
	for _, source := range []string{"a", "b"} {
		put(source, second, "web0 is that of VM "+first.UUID.String()+" of a")
	}
	if vm, source := s.ZoneHolder("web0"); vm != first.UUID || source != "a" || s.Count() != 1 {
		t.Errorf("it is that of %s of %q", vm, source)
	}
	put("a", zone(1, "web1"), "")
	if freed != 1 {
		t.Errorf("told %d times that it is free, want once", freed)
	}
	put("b", second, "")
	put("a", zone(1, "web0"), "of b")
	s.Delete("b", second.UUID)
	if freed != 2 {
		t.Errorf("told %d times that it is free, want twice", freed)
	}
	put("a", zone(1, "web0"), "")
	if _, source := s.ZoneHolder("web1"); source != "" {
		t.Errorf("a name that was given up is that of %q", source)
	}
}

// TestStoreEvents: the events fold to the set, whatever is done, and the number of kept
// events is bounded.
func TestStoreEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := vmstore.New(vmstore.Config{Events: rapid.IntRange(1, 50).Draw(t, "events"), EventBytes: rapid.IntRange(1, 20000).Draw(t, "bytes")})
		s.GoLive()
		folded := make(map[log.UUID]string)
		seen := uint64(0)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			vm := testVM(t, rapid.IntRange(0, 3).Draw(t, "vm"), fmt.Sprintf(`,"a":%d`, rapid.IntRange(0, 2).Draw(t, "a")))
			if rapid.Bool().Draw(t, "delete") {
				s.Delete("x", vm.UUID)
			} else if _, _, err := s.Put("x", vm); err != nil {
				t.Fatal(err)
			}
			events, _, err := s.Since(seen, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Seq != seen+1 {
					t.Fatalf("seq %d after %d", e.Seq, seen)
				}
				seen = e.Seq
				m, err := vminfod.ParseMessage(e.Line[:len(e.Line)-1])
				if err != nil {
					t.Fatal(err)
				}
				if m.Type == "delete" {
					delete(folded, e.UUID)
				} else {
					folded[e.UUID] = string(m.VM.AppendJSON(nil))
				}
			}
			if n, bytes, _ := s.Kept(); n > s.Cfg.Events || bytes > s.Cfg.EventBytes && n > 1 {
				t.Fatalf("%d events of %d bytes are kept", n, bytes)
			}
		}
		vms, seq := s.List()
		if seq != seen || len(vms) != len(folded) {
			t.Fatalf("at %d with %d VMs, folded %d with %d", seq, len(vms), seen, len(folded))
		}
		for _, vm := range vms {
			if folded[vm.UUID] != string(vm.JSON) {
				t.Fatalf("VM %s is %s, folded %s", vm.UUID, vm.JSON, folded[vm.UUID])
			}
		}
	})
}

// FuzzMessage: no line of a stream makes its reader fail.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"type":"ready","uuid":"x","vms":"[{\"uuid\":\"` + testUUID(1) + `\"}]","seq":4,"log":"y"}`,
		`{"type":"modify","vm":{},"changes":[{"path":["nics",null,"ip"],"action":"changed","oldValue":1,"newValue":2,"ident":"m"}]}`,
		`{"type":"delete","uuid":"` + testUUID(1) + `"}`, `{"type":"ready","vms":[]}`, `{"type":1}`, `{"type":"x","seq":"y"}`, `nonsense`,
	} {
		f.Add([]byte(s))
	}
	stream, err := vminfod.NewStream(vminfod.StreamConfig{Client: vminfod.New("127.0.0.1:1", "fuzz")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := vminfod.ParseMessage(line)
		if err != nil {
			if !errors.Is(err, vminfod.ErrLine) {
				t.Fatalf("%v is not ErrLine", err)
			}
			return
		}
		store := vmstore.New(vmstore.Config{})
		sink := store.Sink("fuzz", func() {})
		stream.Load(sink, m, false)
		stream.Take(sink, m)
	})
}

func parseValue(t testing.TB, text string) vmdoc.Value {
	t.Helper()
	v, err := vmdoc.ParseValue([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func testUUID(n int) string { return fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", n) }
