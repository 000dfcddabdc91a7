package gateway

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rutter/api/auth/matrix"
	"rutter/api/internal/apitest"
	"rutter/api/internal/rest"
	"rutter/api/triton/cnapi"
	"rutter/api/triton/vmapi"
	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	oldCN   = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01" // with a cn-agent
	newCN   = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02" // with Rutter's agent
	nextCN  = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed03" // with a cn-agent
	oldVM   = "5595d88c-6e4d-4bda-b58e-97dd02e30001" // on oldCN
	newVM   = "5595d88c-6e4d-4bda-b58e-97dd02e30002" // on newCN
	freshVM = "5595d88c-6e4d-4bda-b58e-97dd02e30003" // in neither yet
	owner   = "930896af-bf8c-48d4-885c-6573a94b1853"
	oldNIC  = "90:b8:d0:00:00:01"
)

var drawn atomic.Uint64

func newID() (id log.UUID, err error) {
	binary.BigEndian.PutUint64(id[8:], drawn.Add(1))
	return id, nil
}

// bed is a gateway on a real port, before an old service on a real port.
type bed struct {
	t     *testing.T
	store *apitest.Memory
	g     *Gateway
	url   string
	// who is the right of the client: read, write or programs.
	who atomic.Value

	mu   sync.Mutex
	got  []request // what the old service was asked for
	with http.HandlerFunc
}

// request is one that the old service got.
type request struct {
	method, uri, body string
	header            http.Header
}

func (b *bed) answerWith(h http.HandlerFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.with = h
}

// asked are the requests that the old service got, without the gateway's own GETs of VMs.
func (b *bed) asked() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.got {
		all = append(all, r.method+" "+r.uri)
	}
	return all
}

func (b *bed) last() request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[len(b.got)-1]
}

// newBed starts both. set changes the gateway's settings; nil: none.
func newBed(t *testing.T, surface string, set func(*Config)) *bed {
	t.Helper()
	b := &bed{t: t, store: apitest.NewMemory()}
	b.store.SetClock(time.Now)
	b.who.Store("write")
	b.store.SetFeature(log.FeatureTriton)
	b.fill()
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.got = append(b.got, request{r.Method, r.RequestURI, string(body), r.Header.Clone()})
		with := b.with
		b.mu.Unlock()
		if with == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		with(w, r)
	}))
	t.Cleanup(old.Close)
	cfg := Config{
		Surface: surface, Behind: old.URL, Store: b.store, NewID: newID, Self: "s1", Table: b.table(surface),
		Programs: func(r *http.Request) bool { who, _ := matrix.From(r.Context()); return who.Programs },
		Operator: func(r *http.Request) bool { who, _ := matrix.From(r.Context()); return who.Role == matrix.Operator },
	}
	if set != nil {
		set(&cfg)
	}
	var err error
	if b.g, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.g.behind.transport.CloseIdleConnections)
	handler := b.g.Table().At(rest.Place{Gate: rest.Open})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		right := b.who.Load().(string)
		who := matrix.Identity{Role: matrix.Foreign, Name: "10.0.0.1", Write: right != "read", Programs: right == "programs"}
		handler.ServeHTTP(w, r.WithContext(matrix.With(r.Context(), who)))
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	b.url = front.URL
	return b
}

func (b *bed) table(surface string) *rest.Table {
	b.t.Helper()
	if surface == VMAPI {
		s, err := vmapi.New(vmapi.Config{Store: b.store, NewID: newID})
		if err != nil {
			b.t.Fatal(err)
		}
		return s.Table()
	}
	s, err := cnapi.New(cnapi.Config{Store: b.store, NewID: newID})
	if err != nil {
		b.t.Fatal(err)
	}
	return s.Table()
}

func (b *bed) fill() {
	b.t.Helper()
	id := func(text string) log.UUID {
		u, err := log.ParseUUID(text)
		if err != nil {
			b.t.Fatal(err)
		}
		return u
	}
	create := func(set string, o log.Object) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
	}
	mac, _ := log.ParseMAC(oldNIC)
	network := log.UUID{0xe, 15: 1}
	b.propose(
		create("mtu name", &log.NICTag{Name: "ext", MTU: 1500}),
		create("gateway mtu name nic_tag provision_end_ip provision_start_ip resolvers subnet uuid vlan_id", &log.Network{
			UUID: network, Name: "net", NICTag: "ext", VLANID: 7, MTU: 1400, Subnet: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"),
			ProvisionStart: netip.MustParseAddr("10.0.0.10"), ProvisionEnd: netip.MustParseAddr("10.0.0.250"), Resolvers: log.Addresses{netip.MustParseAddr("10.0.0.2")},
		}),
		create("hostname status sysinfo uuid", &log.Server{UUID: id(oldCN), Hostname: "cn1", Status: "running", Sysinfo: `{"CN Agent Port":5309,"UUID":"` + oldCN + `"}`}),
		create("hostname status sysinfo uuid", &log.Server{UUID: id(nextCN), Hostname: "cn3", Status: "running", Sysinfo: `{"CN Agent Port":5309,"UUID":"` + nextCN + `"}`}),
		create("hostname status sysinfo uuid", &log.Server{UUID: id(newCN), Hostname: "cn2", Status: "running", Sysinfo: `{"Rutter Agent":"1.0","UUID":"` + newCN + `"}`}),
		create("alias last_modified owner_uuid server_uuid state uuid", &log.VM{LastModified: log.Time(17e17), UUID: id(oldVM), Alias: "web0", OwnerUUID: id(owner), ServerUUID: id(oldCN), State: "running"}),
		create("alias last_modified owner_uuid server_uuid state uuid", &log.VM{LastModified: log.Time(17e17), UUID: id(newVM), Alias: "web1", OwnerUUID: id(owner), ServerUUID: id(newCN), State: "running"}),
		create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid", &log.NIC{
			MAC: mac, BelongsToType: "zone", BelongsToUUID: id(oldVM), OwnerUUID: id(owner), CNUUID: id(oldCN), NetworkUUID: network, IP: netip.MustParseAddr("10.0.0.15"),
		}),
	)
}

func (b *bed) propose(ops ...log.Op) {
	b.t.Helper()
	c := &log.Change{Ops: ops}
	c.ID, _ = newID()
	result, err := b.store.Propose(b.t.Context(), c)
	if err != nil || result.Refusal != nil {
		b.t.Fatal(err, result.Refusal)
	}
}

// answer is one of the gateway.
type answer struct {
	status int
	body   string
	header http.Header
}

// code is the code of an error.
func (a answer) code() string {
	var e struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &e)
	return e.Code
}

// ask sends a request; headers are NAME=VALUE, or NAME+=VALUE for one more.
func (b *bed) ask(method, path, body string, headers ...string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		if more, is := strings.CutSuffix(name, "+"); is {
			r.Header.Add(more, value)
			continue
		}
		r.Header.Set(name, value)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{response.StatusCode, string(text), response.Header}
}

// vm is a VM of the log; nil if it has none.
func (b *bed) vm(id string) *log.VM {
	vm, _ := b.g.vmOf(id)
	return vm
}

// await waits for a condition.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
