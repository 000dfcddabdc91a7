package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/feedserver"
	"rutter/api/internal/apitest"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// Size of the world in which nothing may leak.
const (
	leakCNs     = 50
	leakFabrics = 12
	leakSteps   = 300
)

// asHeader is where requests of these tests say who they are.
const asHeader = "X-Test-As"

func byHeader(r *http.Request) matrix.Identity {
	text := r.Header.Get(asHeader)
	if text == "" {
		return matrix.Identity{Role: matrix.Local, Name: "test"}
	}
	if role, err := matrix.ParseRole(text); err == nil {
		return matrix.Identity{Role: role, Name: "test"}
	}
	return matrix.Identity{Role: matrix.CN, UUID: uuidOf(text)}
}

// spy is a CN that keeps every byte that it is sent.
type spy struct {
	cn   log.UUID
	conn net.Conn

	mu   sync.Mutex
	got  bytes.Buffer
	seen log.Seq // of the last bookmark
	over chan struct{}
}

func (s *spy) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(b)
}

func (s *spy) place() log.Seq {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// follow connects to the feed and reads until the connection ends.
func (s *spy) follow(t *testing.T, address string, hello *feed.Hello) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := fmt.Appendf(nil, "GET /feed HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", feedserver.Protocol, asHeader, s.cn)
	if b, err = feed.Append(b, hello); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	s.conn, s.over = conn, make(chan struct{})
	go func() {
		defer close(s.over)
		reader := feed.NewReader(io.TeeReader(&apitest.SkipAnswer{Conn: conn}, s))
		for {
			f, err := reader.Next()
			if err != nil {
				return
			}
			if m, ok := decoded(f).(*feed.Bookmark); ok {
				s.mu.Lock()
				s.seen = m.Seq
				s.mu.Unlock()
			}
		}
	}()
}

func decoded(f feed.Frame) feed.Message {
	m, _ := feed.Decode(f)
	return m
}

// leakWorld is a history, and what each CN may have heard of it.
type leakWorld struct {
	*bed
	rng     *rand.Rand
	spies   []*spy
	state   *projections.State
	folded  log.Seq
	allowed []map[string]bool // by CN: markers of what was in its interest at some time
	all     map[string]bool   // markers
}

func marker(kind string, n int) string { return fmt.Sprintf("mk-%s-%06d-km", kind, n) }

func cnNo(i int) log.UUID     { return testUUID(0x5000 + i) }
func fabricNo(i int) log.UUID { return testUUID(0x6000 + i) }

// markerOf is what was planted in an object; "" in those that every client may see.
func markerOf(o log.Object) string {
	switch o := o.(type) {
	case *log.Network:
		return o.Description
	case *log.NIC:
		return o.Model
	case *log.Server:
		return o.Hostname
	case *log.VM:
		return o.Alias
	}
	return ""
}

// fold takes in what has happened: after each event, what each CN is interested in.
func (w *leakWorld) fold() {
	entries, err := w.store.Entries(w.folded, 1<<20)
	if err != nil {
		w.T.Fatal(err)
	}
	for _, e := range entries {
		event, err := e.Event()
		if err != nil {
			w.T.Fatal(err)
		}
		if _, err := w.state.Apply(e.Seq, event); err != nil {
			w.T.Fatal(err)
		}
		if m := markerOf(event.Object); m != "" {
			w.all[m] = true
		}
		for i := range w.allowed {
			for _, scope := range w.state.Interest(cnNo(i)) {
				for rec := range w.state.InScope(scope) {
					w.allowed[i][markerOf(rec.Object)] = true
				}
			}
		}
		w.folded = e.Seq
	}
}

func (w *leakWorld) furnishLeak() {
	w.must("POST", "/nic_tags", `{"name":"sdc_underlay","mtu":9000}`)
	w.must("POST", "/nic_tags", `{"name":"sdc_overlay","mtu":9000}`)
	w.must("POST", "/networks", fmt.Sprintf(`{"uuid":%q,"vlan_id":0,"name":"underlay","description":%q,"nic_tag":"sdc_underlay","subnet":"198.51.100.0/24","provision_start_ip":"198.51.100.10","provision_end_ip":"198.51.100.200"}`,
		testUUID(0xe1), marker("net", 999)))
	for i := range leakFabrics {
		w.must("POST", "/networks", fmt.Sprintf(`{"uuid":%q,"vlan_id":0,"name":"net%d","description":%q,"nic_tag":"sdc_overlay","subnet":"10.0.0.0/24","provision_start_ip":"10.0.0.5","provision_end_ip":"10.0.0.250","resolvers":[],"fabric":true,"vnet_id":%d,"owner_uuids":[%q]}`,
			fabricNo(i), i, marker("net", i), 7000+i, ownerA))
	}
	for i := range leakCNs {
		w.must("POST", "/servers", fmt.Sprintf(`{"uuid":%q,"hostname":%q}`, cnNo(i), marker("cn", i)))
		w.must("POST", "/vms", fmt.Sprintf(`{"uuid":%q,"alias":%q,"owner_uuid":%q,"server_uuid":%q,"state":"running"}`, testUUID(0x7000+i), marker("vm", i), ownerA, cnNo(i)))
		if i%2 == 0 { // the others have no way on vnets
			w.must("POST", fmt.Sprintf("/networks/%s/nics", testUUID(0xe1)), fmt.Sprintf(`{"mac":"06:00:00:00:00:%02x","belongs_to_type":"server","belongs_to_uuid":%q,"owner_uuid":%q,"underlay":true,"model":%q,"nic_tags_provided":["sdc_underlay"]}`,
				i, cnNo(i), ownerA, marker("under", i)))
		}
	}
}

// change makes one random change; some are refused.
func (w *leakWorld) change(n int) {
	cn, fabric := w.rng.IntN(leakCNs), fabricNo(w.rng.IntN(leakFabrics))
	mac := fmt.Sprintf("02:00:00:00:00:%02x", w.rng.IntN(80))
	switch w.rng.IntN(10) {
	case 0, 1, 2, 3:
		w.call("POST", fmt.Sprintf("/networks/%s/nics", fabric), fmt.Sprintf(`{"mac":%q,"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"model":%q}`,
			mac, testUUID(0x7000+cn), ownerA, cnNo(cn), marker("nic", n)))
	case 4, 5:
		w.call("DELETE", "/nics/"+mac, "")
	case 6:
		w.call("PUT", "/nics/"+mac, fmt.Sprintf(`{"cn_uuid":%q}`, cnNo(cn)))
	case 7:
		w.call("PUT", "/servers/"+cnNo(cn).String(), fmt.Sprintf(`{"comments":"%d"}`, n))
	case 8:
		w.call("PUT", "/vms/"+testUUID(0x7000+cn).String(), fmt.Sprintf(`{"server_uuid":%q}`, cnNo(w.rng.IntN(leakCNs))))
	case 9:
		w.call("PUT", "/networks/"+fabric.String(), fmt.Sprintf(`{"gateway":"10.0.0.%d"}`, 1+w.rng.IntN(3)))
	}
}

// pry sends requests of a CN for what it has no right to; the answers count as heard.
func (w *leakWorld) pry(s *spy) {
	other := cnNo(w.rng.IntN(leakCNs))
	for _, path := range []string{
		"/nics?limit=1000", "/networks", "/servers", "/vms", "/vmms", "/servers/" + other.String(), "/servers/" + other.String() + "/history",
		"/networks/" + fabricNo(w.rng.IntN(leakFabrics)).String(), "/nics/02:00:00:00:00:01", "/nics/02:00:00:00:00:01/history", "/log", "/log?kind=nic",
		"/log/state", "/cns", "/cns/" + other.String(), "/cns/" + other.String() + "/feed?after=0", "/wait?seq=1", "/status", "/cluster", "/metrics", "/snapshot",
		"/nics?at=5", "/servers/" + other.String() + "?at=9", "/trace?from=02:00:00:00:00:01&to=02:00:00:00:00:02", "/readyz?verbose",
		fmt.Sprintf("/lookup/vl3?vnet=%d&ip=10.0.0.5", 7000+w.rng.IntN(leakFabrics)), "/vms/lookup?alias=mk", "/nowhere",
	} {
		answer := w.call("GET", path, "", asHeader, s.cn.String())
		_, _ = s.Write(answer.Body.Bytes())
	}
	answer := w.call("PUT", "/servers/"+other.String(), `{"current_platform":"x"}`, asHeader, s.cn.String())
	_, _ = s.Write(answer.Body.Bytes())
	if other != s.cn && answer.Code != http.StatusForbidden {
		w.T.Fatalf("CN %s wrote the server object of %s: %d", s.cn, other, answer.Code)
	}
}

// lies says which CNs claim to hold what is not theirs.
func lies(i int) bool { return i%3 == 0 }

// hello of a CN, which may claim to hold what is not its own.
func (w *leakWorld) hello(i int, session uint64) *feed.Hello {
	h := &feed.Hello{Version: feed.Version, CN: cnNo(i), Incarnation: 1, Session: session}
	if lies(i) {
		h.Cursor = w.store.Head()
		h.Scopes = append(h.Scopes, feed.HeldScope{Scope: log.AllScope(), AsOf: 1}, feed.HeldScope{Scope: log.CNScope(cnNo(i + 1)), AsOf: 1})
		for f := range leakFabrics {
			h.Scopes = append(h.Scopes, feed.HeldScope{Scope: log.VNetScope(uint32(7000 + f)), AsOf: 1})
		}
	}
	return h
}

// No byte about an object outside of a CN's interest ever leaves towards it, by
// what each of 50 CNs received, over sockets, of a random history.
func TestNothingLeaksToACN(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	store := newMemory()
	s, err := New(Config{Store: store, Identify: byHeader, Limits: guard.Limits{Rate: map[matrix.Role]int{}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &leakWorld{
		bed: bedWith(t, store, s), rng: rand.New(rand.NewPCG(seed, 0)), state: projections.NewState(), all: map[string]bool{},
	}
	for i := range leakCNs {
		w.spies = append(w.spies, &spy{cn: cnNo(i)})
		w.allowed = append(w.allowed, map[string]bool{})
	}
	address := serveLeak(t, s)
	w.furnishLeak()
	w.fold()
	for i, s := range w.spies {
		s.follow(t, address, w.hello(i, 1))
	}
	for n := range leakSteps {
		w.change(n)
		if n%20 == 0 {
			w.fold()
			w.pry(w.spies[w.rng.IntN(leakCNs)])
		}
		if n%30 == 29 { // one comes again
			i := w.rng.IntN(leakCNs)
			w.fold()
			w.spies[i].conn.Close()
			<-w.spies[i].over
			w.spies[i].follow(t, address, w.hello(i, uint64(n)))
		}
	}
	w.fold()
	w.settle(t)
	w.judge(t)
}

func serveLeak(t *testing.T, s *Server) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// settle waits until every CN has heard of the head.
func (w *leakWorld) settle(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i, s := range w.spies {
		for s.place() < w.folded {
			select {
			case <-s.over:
				t.Fatalf("the feed of CN %d ended at %d", i, s.place())
			case <-tick.C:
			}
			if time.Now().After(deadline) {
				t.Fatalf("CN %d is at %d, the head at %d", i, s.place(), w.folded)
			}
		}
	}
	for _, s := range w.spies {
		s.conn.Close()
		<-s.over
	}
}

func (w *leakWorld) judge(t *testing.T) {
	t.Helper()
	heard := 0
	for i, s := range w.spies {
		got := s.got.String()
		for m := range w.all {
			switch has := strings.Contains(got, m); {
			case has && !w.allowed[i][m]:
				t.Errorf("CN %d received something of %s, which was never in its interest", i, m)
			case has:
				heard++
			}
		}
		if lies(i) {
			continue // it said that it holds what it does not, and is none the wiser
		}
		for _, scope := range w.state.Interest(s.cn) {
			for rec := range w.state.InScope(scope) {
				if m := markerOf(rec.Object); m != "" && !strings.Contains(got, m) {
					t.Errorf("CN %d never received %s, which is in its interest", i, m)
				}
			}
		}
	}
	t.Logf("%d objects, %d of them heard of by a CN, %d events", len(w.all), heard, w.folded)
}
