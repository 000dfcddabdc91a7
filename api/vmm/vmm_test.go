package vmm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/reach"
	"rutter/log"
	"rutter/log/feed"
)

var (
	testCN, testVM, testVMM = testUUID(1), testUUID(2), testUUID(3)
	statePath               = "/vmms/" + testVMM.String() + "/state"
)

// scripted is a CN that answers by a table of "METHOD path" or "METHOD path
// version"; what is not in it is 404 without a code.
type scripted struct {
	mu      sync.Mutex // protects what follows
	answers map[string]answer
	got     []string
	line    *Conn
	slow    time.Duration // before each answer
	open    int           // pulls that are being answered
	highest int           // of open
}

type answer struct {
	status int
	body   string
}

func connect(s *Service, cn log.UUID, answers map[string]answer) *scripted {
	c := &scripted{answers: answers}
	c.line = s.Connect(cn, true, c.send)
	return c
}

func (c *scripted) send(r *feed.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, r.Method+" "+r.Path+" "+r.Version+" "+string(r.Body))
	a, ok := c.answers[r.Method+" "+r.Path+" "+r.Version]
	if !ok {
		a, ok = c.answers[r.Method+" "+r.Path]
	}
	if !ok {
		a = answer{404, "{}"}
	}
	if a.status == 0 {
		return nil // never
	}
	pull := strings.HasSuffix(r.Path, "/state")
	if pull {
		c.open++
		c.highest = max(c.highest, c.open)
	}
	go func() {
		time.Sleep(c.slow)
		c.mu.Lock()
		if pull {
			c.open--
		}
		c.mu.Unlock()
		c.line.Answer(&feed.Response{Number: r.Number, Status: uint16(a.status), Body: []byte(a.body)})
	}()
	return nil
}

func (c *scripted) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highest
}

// pulls is how many pulls of it are being answered.
func (c *scripted) pulls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func (c *scripted) asked(what string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, got := range c.got {
		if strings.HasPrefix(got, what) {
			n++
		}
	}
	return n
}

func sled(state string, gen int, more string) string {
	return fmt.Sprintf(`{"vmm_state":{"state":%q,"gen":%d,"time_updated":"2026-11-21T09:00:00Z"%s}}`, state, gen, more)
}

func held(state string, gen uint64) *log.VMM {
	return &log.VMM{UUID: testVMM, InstanceID: testVM, SledID: testCN, State: state, Gen: gen}
}

// settle waits until nothing moves any more, for a while at most.
func settle() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

func TestRing(t *testing.T) {
	ack := "PUT /vmms/" + testVMM.String() + "/recorded"
	for _, c := range []struct {
		name    string
		before  *log.VMM
		answers map[string]answer
		want    string // state and generation that the log then has
		acked   int
		reason  string
	}{
		{"a newer state", held("starting", 1), map[string]answer{"GET " + statePath: {200, sled("running", 2, "")}}, "running 2", 1, ""},
		{"an equal one", held("starting", 2), map[string]answer{"GET " + statePath: {200, sled("running", 2, "")}}, "starting 2", 1, ""},
		{"an older one", held("stopping", 3), map[string]answer{"GET " + statePath: {200, sled("running", 2, "")}}, "stopping 3", 1, ""},
		{"one that was made and not seen", held("creating", 1), map[string]answer{"GET " + statePath: {200, sled("starting", 1, "")}}, "starting 1", 1, ""},
		{"a failure with its reason", held("running", 1), map[string]answer{"GET " + statePath: {200, sled("failed", 2, `,"reason":"killed"`)}}, "failed 2", 1, "killed"},
		{"an old agent", held("running", 1), map[string]answer{
			"GET " + statePath + " 2.0.0": {400, `{"error_code":"InvalidRequest"}`},
			"GET " + statePath + " 1.0.0": {200, sled("failed", 2, "")},
		}, "failed 2", 1, ""},
		{"gone", held("running", 4), map[string]answer{"GET " + statePath: {404, `{"error_code":"NO_SUCH_INSTANCE"}`}}, "failed 5", 0, "no_such_instance"},
		{"gone, and final before", held("destroyed", 4), map[string]answer{"GET " + statePath: {404, `{"error_code":"NO_SUCH_INSTANCE"}`}}, "destroyed 4", 0, ""},
		{"404 of another", held("running", 4), map[string]answer{"GET " + statePath: {404, `{"error_code":"Not Found"}`}}, "running 4", 0, ""},
		{"ending", held("running", 4), map[string]answer{"GET " + statePath: {410, `{"error_code":"NO_SUCH_INSTANCE"}`}}, "running 4", 0, ""},
		{"an error", held("running", 4), map[string]answer{"GET " + statePath: {500, `oops`}}, "running 4", 0, ""},
		{"no state", held("running", 4), map[string]answer{"GET " + statePath: {200, `{"vmm_state":{"state":"creating","gen":9}}`}}, "running 4", 0, ""},
		{"silence", held("running", 4), map[string]answer{"GET " + statePath: {}}, "running 4", 0, ""},
		{"unknown, of a known VM", nil, map[string]answer{
			"GET " + statePath: {200, `{"instance_id":"` + testVM.String() + `","vmm_state":{"state":"running","gen":2,"time_updated":"2026-11-21T09:00:00Z"}}`},
		}, "running 2", 1, ""},
		{"unknown, of no VM", nil, map[string]answer{"GET " + statePath: {200, sled("running", 2, "")}}, "none", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, log := alone(t, nil)
				if c.before != nil {
					log.create(t, c.before)
				}
				defer run(s)()
				cn := connect(s, testCN, c.answers)
				if err := s.Ring(testVMM, testCN); err != nil {
					t.Fatal(err)
				}
				settle()
				got, reason := "none", ""
				if vmm := log.vmm(testVMM); vmm != nil {
					got, reason = fmt.Sprint(vmm.State, " ", vmm.Gen), vmm.Reason
				}
				if got != c.want || reason != c.reason {
					t.Errorf("the log has %s %q, want %s %q", got, reason, c.want, c.reason)
				}
				if n := min(cn.asked(ack), 1); n != c.acked {
					t.Errorf("acknowledged %d times, want %d; asked %q", n, c.acked, cn.got)
				}
				if n := s.pulls.len(); n != 0 {
					t.Errorf("%d rings wait", n)
				}
			})
		})
	}
}

func TestRingOfNobodysVMM(t *testing.T) {
	s, _ := alone(t, nil)
	if err := s.Ring(testVMM, log.UUID{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
	for i := range MaxRings {
		if err := s.Ring(testUUID(1000+i), testCN); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Ring(testVMM, testCN); !errors.Is(err, ErrBusy) {
		t.Errorf("one over the bound: got %v, want ErrBusy", err)
	}
	if err := s.Ring(testUUID(1000), testCN); err != nil {
		t.Errorf("one that waits: %v", err)
	}
}

// However often a VMM rings, one pull stands for all that came before it began.
func TestRingsCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := alone(t, nil)
		c.create(t, held("starting", 1))
		cn := connect(s, testCN, map[string]answer{"GET " + statePath: {200, sled("running", 2, "")}})
		cn.slow = 10 * time.Millisecond
		for range 100 {
			_ = s.Ring(testVMM, testCN)
		}
		stop := run(s)
		defer stop()
		time.Sleep(5 * time.Millisecond) // the pull is out: this may be another state
		for range 100 {
			_ = s.Ring(testVMM, testCN)
		}
		settle()
		if n := cn.asked("GET"); n != 2 {
			t.Errorf("%d pulls, want 2", n)
		}
		if n := len(c.of(log.KindVMM, testVMM)); n != 2 {
			t.Errorf("%d events, want 2", n)
		}
	})
}

// cns makes CNs of some VMMs each, and rings for all of them.
func cns(t *testing.T, s *Service, c *central, number, vmms int, answers func(cn int, path string) answer) (all []*scripted) {
	for i := range number {
		script := map[string]answer{}
		cn := connect(s, testUUID(10+i), script)
		cn.slow = 100 * time.Millisecond
		for n := range vmms {
			vmm := held("starting", 1)
			vmm.UUID, vmm.SledID = testUUID(1000*(i+1)+n), testUUID(10+i)
			c.create(t, vmm)
			script["GET /vmms/"+vmm.ID()+"/state"] = answers(i, vmm.ID())
			script["PUT /vmms/"+vmm.ID()+"/recorded"] = answer{200, "{}"}
		}
		all = append(all, cn)
	}
	for i := range number {
		for n := range vmms {
			_ = s.Ring(testUUID(1000*(i+1)+n), testUUID(10+i))
		}
	}
	return all
}

func TestPullsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := alone(t, nil)
		highest := 0
		defer run(s)()
		all := cns(t, s, log, 5, 20, func(int, string) answer { return answer{200, sled("running", 2, "")} })
		for range 200 {
			time.Sleep(10 * time.Millisecond)
			open := 0
			for _, cn := range all {
				if n := cn.pulls(); n > maxPullsOfCN {
					t.Errorf("%d pulls at one CN, want at most %d", n, maxPullsOfCN)
				} else {
					open += n
				}
			}
			highest = max(highest, open)
		}
		if highest != maxPulls {
			t.Errorf("%d pulls at once, want %d", highest, maxPulls)
		}
		settle()
		for i := range 5 {
			for n := range 20 {
				if vmm := log.vmm(testUUID(1000*(i+1) + n)); vmm.State != "running" {
					t.Fatalf("VMM %d of CN %d is %s", n, i, vmm.State)
				}
			}
		}
	})
}

// CNs behind a network that swallows what is sent do not hold the pulls of the
// others; when one of them is there again, nothing of it waits.
func TestSilentNodesHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := alone(t, nil)
		defer run(s)()
		cns(t, s, log, 30, 4, func(int, string) answer { return answer{} })
		time.Sleep(10 * time.Second) // all ten pulls went to them
		well := connect(s, testUUID(1), map[string]answer{"GET " + statePath: {200, sled("running", 2, "")}, "PUT /vmms/" + testVMM.String() + "/recorded": {200, "{}"}})
		log.create(t, held("starting", 1))
		began := time.Now()
		_ = s.Ring(testVMM, testCN)
		for log.vmm(testVMM).State != "running" {
			if time.Sleep(time.Millisecond); time.Since(began) > time.Minute {
				t.Fatal("it is never pulled")
			}
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("a CN that answers waited %s for those that do not", took)
		}
		if well.asked("GET") != 1 {
			t.Errorf("asked %q", well.got)
		}
		back := testUUID(1000 * 30)
		connect(s, testUUID(39), map[string]answer{"GET /vmms/" + back.String() + "/state": {200, sled("running", 2, "")}})
		began = time.Now()
		_ = s.Ring(back, testUUID(39))
		for log.vmm(back).State != "running" {
			if time.Sleep(time.Millisecond); time.Since(began) > time.Minute {
				t.Fatal("what came back is never pulled")
			}
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("a CN that came back waited %s", took)
		}
		time.Sleep(3 * time.Minute)
		if n := s.pulls.len(); n != 0 {
			t.Errorf("%d rings wait still", n)
		}
	})
}

// A VMM and its migrations are written in one change, each by its own generation.
func TestMigrationsInOneChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := alone(t, nil)
		c.create(t, held("migrating", 1))
		in, out := testUUID(20), testUUID(21)
		side := func(name string, id log.UUID, state string, gen int) string {
			return fmt.Sprintf(`,%q:{"migration_id":%q,"state":%q,"gen":%d,"time_updated":"2026-11-21T09:00:00Z"}`, name, id, state, gen)
		}
		body := func(vmm string, more string) string { return strings.TrimSuffix(vmm, "}") + more + "}" }
		cn := connect(s, testCN, map[string]answer{"GET " + statePath: {200, body(sled("running", 2, ""), side("migration_in", in, "in_progress", 2)+side("migration_out", out, "pending", 1))}})
		defer run(s)()
		_ = s.Ring(testVMM, testCN)
		settle()
		events := append(append(c.of(log.KindVMM, testVMM)[1:], c.of(log.KindMigration, in)...), c.of(log.KindMigration, out)...)
		if len(events) != 3 || events[0].ChangeID != events[1].ChangeID || events[0].ChangeID != events[2].ChangeID {
			t.Fatalf("events %v, want three of one change", events)
		}
		m := events[1].Object.(*log.Migration)
		if m.TargetState != "in_progress" || m.TargetVMM != testVMM || m.InstanceID != testVM || m.SourceGen != 0 {
			t.Errorf("migration in: %+v", m)
		}
		// Only one side is newer: the VMM stays as it is.
		cn.mu.Lock()
		cn.answers["GET "+statePath] = answer{200, body(sled("running", 2, ""), side("migration_in", in, "completed", 3)+side("migration_out", out, "failed", 1))}
		cn.mu.Unlock()
		_ = s.Ring(testVMM, testCN)
		settle()
		if n, in, out := len(c.of(log.KindVMM, testVMM)), len(c.of(log.KindMigration, in)), len(c.of(log.KindMigration, out)); n != 2 || in != 2 || out != 1 {
			t.Errorf("events of VMM %d, in %d, out %d; want 2, 2, 1", n, in, out)
		}
	})
}

func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := alone(t, nil)
		register, running := "PUT /vmms/"+testVMM.String(), []byte(`{"state":{"type":"running"}}`)
		cn := connect(s, testCN, map[string]answer{
			register:                           {200, sled("starting", 1, "")},
			"PUT " + statePath:                 {200, `{"updated_runtime":` + sled("running", 2, "") + `}`},
			"GET " + statePath:                 {200, sled("running", 2, "")},
			"DELETE /vmms/" + testVMM.String(): {200, `{"updated_runtime":` + sled("destroyed", 4, "") + `}`},
		})
		ctx := t.Context()
		if _, err := s.SetState(ctx, testVMM, running, "me"); !errors.Is(err, ErrUnknown) {
			t.Errorf("a VMM that nobody knows: %v", err)
		}
		show := func(o Outcome, err error) string {
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("%v %s %d", o.Updated != nil, o.VMM.State, o.VMM.Gen)
		}
		for _, step := range []struct {
			name, want string
			do         func() (Outcome, error)
		}{
			{"register", "true starting 1", func() (Outcome, error) { return s.Register(ctx, testVMM, testVM, testCN, "me") }},
			{"register again", "true starting 1", func() (Outcome, error) { return s.Register(ctx, testVMM, testVM, testCN, "me") }},
			{"run", "true running 2", func() (Outcome, error) { return s.SetState(ctx, testVMM, running, "me") }},
			{"nothing to do, but news", "false stopping 3", func() (Outcome, error) {
				cn.answers["PUT "+statePath], cn.answers["GET "+statePath] = answer{200, `{"updated_runtime":null}`}, answer{200, sled("stopping", 3, "")}
				return s.SetState(ctx, testVMM, running, "me")
			}},
			{"refused", "the compute node answered 409 Conflict: busy", func() (Outcome, error) {
				cn.answers["PUT "+statePath] = answer{409, `{"error_code":"Conflict","message":"busy"}`}
				return s.SetState(ctx, testVMM, running, "me")
			}},
			{"unregister", "true destroyed 4", func() (Outcome, error) { return s.Unregister(ctx, testVMM, "me") }},
		} {
			if got := show(step.do()); got != step.want {
				t.Errorf("%s: got %s, want %s", step.name, got, step.want)
			}
		}
		var actors []string
		for _, e := range c.of(log.KindVMM, testVMM) {
			actors = append(actors, e.Actor)
		}
		if want := []string{"me", "me", "cn:" + testCN.String(), "me"}; !slices.Equal(actors, want) {
			t.Errorf("actors %q, want %q", actors, want)
		}
		// A reboot that was sent and not answered is not sent on another way.
		cn.answers["PUT "+statePath] = answer{}
		if _, err := s.SetState(ctx, testVMM, []byte(`{"state":{"type":"reboot"}}`), "me"); !errors.Is(err, ErrUnreachable) {
			t.Errorf("no answer: %v", err)
		}
		cn.line.Close()
		if _, err := s.SetState(ctx, testVMM, running, "me"); !errors.Is(err, ErrUnreachable) {
			t.Errorf("no connection: %v", err)
		}
	})
}

// peers are the servers of a test; none leads but at, and the session of every CN is with one.
type peers struct {
	all  []*Service
	self int
	at   *int // of the sessions
}

func (p peers) Self() string                                    { return fmt.Sprint(p.self) }
func (p peers) Address(id string) string                        { return id }
func (p peers) Leading() bool                                   { return p.self == 0 }
func (p peers) Where(context.Context, log.UUID) (string, error) { return fmt.Sprint(*p.at), nil }

func (p peers) AskPeer(ctx context.Context, address string, b []byte) ([]byte, error) {
	var i int
	if _, err := fmt.Sscan(address, &i); err != nil {
		return nil, err
	}
	return p.all[i].AnswerPeer(ctx, b)
}

// A ring at any server reaches the CN through the one that has its connection,
// and without one at its admin address.
func TestWayFromAnyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCentral()
		all, at := make([]*Service, 2), 1
		web := reach.New(reach.Config{View: newFollower(c).View}).Client(admin{t})
		for i := range all {
			s, err := New(Config{Store: newFollower(c), NewID: newID, Peers: peers{all, i, &at}, HTTP: web})
			if err != nil {
				t.Fatal(err)
			}
			all[i] = s
			defer run(s)()
		}
		c.create(t, held("starting", 1))
		cn := connect(all[1], testCN, map[string]answer{"GET " + statePath: {200, sled("running", 2, "")}})
		if err := all[0].Ring(testVMM, log.UUID{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := c.vmm(testVMM); got.Gen != 2 || cn.asked("PUT /vmms/"+testVMM.String()+"/recorded") == 0 {
			t.Fatalf("the log has %s %d, and was asked %q", got.State, got.Gen, cn.got)
		}
		cn.line.Close()
		_ = all[0].Ring(testVMM, log.UUID{})
		settle()
		if got := c.vmm(testVMM); got.Gen != 2 {
			t.Fatalf("nobody could be asked, and the log has %s %d", got.State, got.Gen)
		}
		tag := &log.NICTag{Name: "admin", UUID: testUUID(50), MTU: 1500}
		network := `{"uuid":"` + testUUID(51).String() + `","name":"admin","nic_tag":"admin","subnet":"10.9.0.0/24"}`
		object, _, err := log.ParseObject(log.KindNetwork, []byte(network))
		if err != nil {
			t.Fatal(err)
		}
		nic := `{"mac":"02:00:00:00:00:09","belongs_to_type":"server","belongs_to_uuid":"` + testCN.String() + `","owner_uuid":"` + testUUID(9).String() +
			`","network_uuid":"` + testUUID(51).String() + `","ip":"10.9.0.9"}`
		nicObject, _, err := log.ParseObject(log.KindNIC, []byte(nic))
		if err != nil {
			t.Fatal(err)
		}
		c.create(t, tag, object, nicObject)
		_ = all[0].Ring(testVMM, log.UUID{})
		settle()
		if got := c.vmm(testVMM); got.Gen != 3 || got.State != "stopping" {
			t.Errorf("by the admin address: %s %d", got.State, got.Gen)
		}
	})
}

// admin is a CN at 10.9.0.9.
type admin struct{ t *testing.T }

func (a admin) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "10.9.0.9:5309" || r.Header.Get("api-version") != "2.0.0" {
		a.t.Errorf("asked %s %s, version %q", r.Method, r.URL, r.Header.Get("api-version"))
	}
	body := sled("stopping", 3, "")
	if !strings.HasSuffix(r.URL.Path, "/state") {
		body = "{}"
	}
	return &http.Response{StatusCode: 200, Body: readCloser{strings.NewReader(body)}}, nil
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// A CN that gives its own NIC the address of another's machine on the admin network, as
// the gateway's, makes no server send a request there.
func TestLyingNICIsNotDialled(t *testing.T) {
	var connections, asked atomic.Int32
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "{}")
	}))
	web.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	web.Start()
	defer web.Close()
	c := newCentral()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, web.Listener.Addr().String()) // the machine at every address
	}}
	s, err := New(Config{Store: newFollower(c), NewID: newID, HTTP: reach.New(reach.Config{View: newFollower(c).View}).Client(transport)})
	if err != nil {
		t.Fatal(err)
	}
	object := func(kind log.Kind, text string) log.Object {
		o, _, err := log.ParseObject(kind, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	nic := func(cn log.UUID, mac, ip string) log.Object {
		return object(log.KindNIC, `{"mac":"`+mac+`","belongs_to_type":"server","belongs_to_uuid":"`+cn.String()+`","owner_uuid":"`+testUUID(9).String()+
			`","network_uuid":"`+testUUID(51).String()+`","ip":"`+ip+`"}`)
	}
	lies := testUUID(61)
	c.create(t, &log.NICTag{Name: "admin", UUID: testUUID(50), MTU: 1500},
		object(log.KindNetwork, `{"uuid":"`+testUUID(51).String()+`","name":"admin","nic_tag":"admin","subnet":"10.9.0.0/24","gateway":"10.9.0.1"}`),
		nic(testCN, "02:00:00:00:00:09", "10.9.0.9"), nic(lies, "02:00:00:00:00:10", "10.9.0.1"))
	if _, err := s.askAdmin(t.Context(), lies, request(http.MethodGet, "/vmms", "2.0.0", nil)); !errors.Is(err, errNotSent) || connections.Load() != 0 {
		t.Errorf("the node that lies: %v, %d connections", err, connections.Load())
	}
	if _, err := s.askAdmin(t.Context(), testCN, request(http.MethodGet, "/vmms", "2.0.0", nil)); err != nil || connections.Load() != 1 || asked.Load() != 1 {
		t.Errorf("the honest node: %v, %d connections", err, connections.Load())
	}
}

func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leads := new(atomic.Bool)
		leads.Store(true)
		at := 0 // of the sessions: this server, so no other server is asked
		s, c := alone(t, func(cfg *Config) { cfg.Peers = leading{peers{at: &at}, leads} })
		expunged, silent := testUUID(70), testUUID(71)
		c.create(t, &log.Server{UUID: expunged, Status: statusExpunged}, &log.Server{UUID: silent})
		answers := map[string]answer{}
		add := func(n int, cn log.UUID, state string, a answer) {
			vmm := held(state, 5)
			vmm.UUID, vmm.SledID = testUUID(n), cn
			c.create(t, vmm)
			answers["GET /vmms/"+vmm.ID()+"/state"] = a
		}
		gone := answer{404, `{"error_code":"NO_SUCH_INSTANCE"}`}
		add(100, testCN, "running", answer{200, sled("running", 5, "")})
		add(101, testCN, "starting", answer{200, sled("running", 6, "")})
		add(102, testCN, "running", gone)
		add(103, testCN, "destroyed", gone)
		add(104, testCN, "creating", gone)
		add(105, testCN, "running", answer{503, ""})
		add(106, expunged, "running", gone)
		add(107, expunged, "failed", gone)
		add(108, silent, "running", gone)
		for i := range 40 {
			add(200+i, testCN, "running", answer{200, sled("running", 5, "")})
		}
		cn := connect(s, testCN, answers)
		cn.slow = time.Millisecond
		defer run(s)()
		time.Sleep(31 * time.Second)
		if n := cn.most(); n != maxChecks {
			t.Errorf("%d checks at once, want %d", n, maxChecks)
		}
		want := map[int]string{
			100: "running 5 ", 101: "running 6 ", 102: "failed 6 no_such_instance", 103: "destroyed 5 ", 104: "creating 5 ",
			105: "running 5 ", 106: "failed 6 sled_expunged", 107: "failed 5 ", 108: "running 5 ",
		}
		check := func() {
			t.Helper()
			for n, want := range want {
				if vmm := c.vmm(testUUID(n)); fmt.Sprint(vmm.State, " ", vmm.Gen, " ", vmm.Reason) != want {
					t.Errorf("VMM %d is %s %d %q, want %s", n, vmm.State, vmm.Gen, vmm.Reason, want)
				}
			}
		}
		check()
		events := c.count()
		time.Sleep(time.Minute) // twice more: nothing new
		if check(); c.count() != events {
			t.Errorf("%d events in the next two sweeps", c.count()-events)
		}
		leads.Store(false)
		before := cn.asked("GET")
		time.Sleep(time.Minute)
		if n := cn.asked("GET"); n != before {
			t.Errorf("who does not lead asked %d times", n-before)
		}
	})
}

// leading says who leads.
type leading struct {
	peers
	leads *atomic.Bool
}

func (l leading) Leading() bool { return l.leads.Load() }

func TestOutcomeJSON(t *testing.T) {
	b, err := json.Marshal(Outcome{VMM: held("running", 2)})
	if err != nil || !strings.HasPrefix(string(b), `{"updated_runtime":null,"vmm":{"id":`) {
		t.Errorf("got %s, %v", b, err)
	}
}

// A compute node by its certificate registers VMMs of the VMs that the log has on it. One
// that is asked too early is recorded when the VM is there.
func TestVMMWaitsForItsVM(t *testing.T) {
	c := newCentral()
	s, err := New(Config{Store: newFollower(c), NewID: newID, Bound: true})
	if err != nil {
		t.Fatal(err)
	}
	cn, vm := testUUID(1), testUUID(2)
	report := claim{vmm: testUUID(3), cn: cn, actor: actorCN + cn.String(), state: State{InstanceID: vm, VMM: Runtime{State: vmRunning, Gen: 1, Updated: time.Now()}}}
	if _, _, err := s.record(t.Context(), report); !errors.Is(err, errNotPlaced) {
		t.Errorf("without the VM: %v", err)
	}
	if len(c.events) != 0 {
		t.Errorf("%d events were made", len(c.events))
	}
	place := log.Op{Action: log.Create, Kind: log.KindVM, Object: &log.VM{UUID: vm, OwnerUUID: testUUID(4), ServerUUID: cn}}
	if result, err := c.propose(&log.Change{ID: testUUID(5), Ops: []log.Op{place}}); err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
	if _, _, err := s.record(t.Context(), report); err != nil {
		t.Errorf("with the VM: %v", err)
	}
}
