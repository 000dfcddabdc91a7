package napi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store in memory: the real decisions without a cluster.
type memory struct {
	mu      sync.RWMutex // protects what follows
	state   *projections.State
	head    log.Seq
	changed chan struct{}
	seen    map[log.UUID]log.Result
	tries   map[log.UUID]int

	serving error
	// fail, if not nil, says what becomes of a try: whether it is written, and
	// what the proposer hears.
	fail func(try int) (written bool, err error)
}

func newMemory() *memory {
	return &memory{state: projections.NewState(), changed: make(chan struct{}), seen: map[log.UUID]log.Result{}, tries: map[log.UUID]int{}}
}

func (m *memory) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries[c.ID]++
	written, failure := true, error(nil)
	if m.fail != nil {
		written, failure = m.fail(m.tries[c.ID])
	}
	if !written {
		return log.Result{}, failure
	}
	if first, ok := m.seen[c.ID]; ok {
		return first, failure
	}
	c.Time, c.Seed = max(m.state.Time(), 1_795_251_600_000_000_000)+1_000_000, uint64(len(m.seen)+1)
	events, result := rules.Decide(m.state, c)
	result.First, result.Last = m.head, m.head
	for i, e := range events {
		m.head++
		if _, err := m.state.Apply(m.head, e); err != nil {
			panic(err) // Decide and Apply differ
		}
		if i == 0 {
			result.First = m.head
		}
		result.Last = m.head
	}
	m.seen[c.ID] = result
	close(m.changed)
	m.changed = make(chan struct{})
	if failure != nil {
		return log.Result{}, failure
	}
	return result, nil
}

func (m *memory) View(fn func(*projections.State, log.Cursor)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.state, log.Cursor{Seq: m.head})
}

func (m *memory) Head() log.Cursor {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return log.Cursor{Seq: m.head}
}

func (m *memory) WaitSeq(ctx context.Context, seq log.Seq) error {
	for {
		m.mu.RLock()
		head, changed := m.head, m.changed
		m.mu.RUnlock()
		if head >= seq {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (m *memory) Consistent(context.Context) (log.Seq, error) { return m.Head().Seq, nil }
func (m *memory) Ready() error                                { return m.Serving() }

func (m *memory) Serving() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.serving
}

// world is a service over a store in memory.
type world struct {
	t     testing.TB
	store *memory
	s     *Service
}

const (
	admin  = "00000000-0000-4000-8000-0000000000ad"
	owner1 = "00000000-0000-4000-8000-000000000001"
	owner2 = "00000000-0000-4000-8000-000000000002"
	net1   = "00000000-0000-4000-8000-000000000011"
	net2   = "00000000-0000-4000-8000-000000000012"
	owned  = "00000000-0000-4000-8000-000000000013" // a network of owner1
	netMTU = "00000000-0000-4000-8000-000000000014" // a network on its own tag
	vm1    = "00000000-0000-4000-8000-000000000021"
	vm2    = "00000000-0000-4000-8000-000000000022"
	cn1    = "00000000-0000-4000-8000-000000000031"
	cn2    = "00000000-0000-4000-8000-000000000032"
	absent = "00000000-0000-4000-8000-0000000000ff"
)

func newWorld(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, store: newMemory()}
	cfg := Config{Store: w.store}
	var err error
	if cfg.Admin, err = log.ParseUUID(admin); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	if w.s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

// furnished is a world with the objects that most tests speak of.
func furnished(t testing.TB, change ...func(*Config)) *world {
	w := newWorld(t, change...)
	for _, tag := range []string{"admin", "external", "sdc_overlay", "big"} {
		mtu := map[string]int{"sdc_overlay": 9000, "big": 9000}[tag]
		w.make("/nic_tags", fmt.Sprintf(`{"name": %q, "mtu": %d}`, tag, max(mtu, 1500)))
	}
	w.network(net1, "admin", "admin", "10.1.0.0/24", ``)
	w.network(net2, "external", "external", "10.2.0.0/24", `"gateway": "10.2.0.1", "resolvers": ["10.2.0.2", "8.8.8.8"], "vlan_id": 5`)
	w.network(owned, "owned", "external", "10.3.0.0/24", `"owner_uuids": ["`+owner1+`"], "vlan_id": 6`)
	w.network(netMTU, "big", "big", "10.4.0.0/24", `"mtu": 9000`)
	return w
}

func (w *world) network(uuid, name, tag, subnet, more string) {
	w.t.Helper()
	prefix := strings.TrimSuffix(subnet, ".0/24")
	body := fmt.Sprintf(`"uuid": %q, "name": %q, "nic_tag": %q, "subnet": %q, "provision_start_ip": "%s.10", "provision_end_ip": "%s.200"`, uuid, name, tag, subnet, prefix, prefix)
	if !strings.Contains(more, "vlan_id") {
		body += `, "vlan_id": 0`
	}
	if more != "" {
		body += ", " + more
	}
	w.make("/networks", "{"+body+"}")
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers are given in pairs.
func (w *world) do(method, path, body string, headers ...string) answer {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.s.Handler().ServeHTTP(rec, r)
	b, _ := io.ReadAll(rec.Result().Body)
	return answer{rec.Code, rec.Result().Header, strings.TrimSpace(string(b))}
}

// make creates an object, and fails the test if that is refused.
func (w *world) make(path, body string) map[string]any {
	w.t.Helper()
	return w.ok(w.do("POST", path, body))
}

func (w *world) ok(a answer) map[string]any {
	w.t.Helper()
	if a.status != http.StatusOK {
		w.t.Fatalf("status: got %d %s, want 200", a.status, a.body)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		w.t.Fatalf("%s: %v", a.body, err)
	}
	return m
}

// listed returns a list's objects.
func (w *world) listed(path string) []map[string]any {
	w.t.Helper()
	a := w.do("GET", path, "")
	var all []map[string]any
	if err := json.Unmarshal([]byte(a.body), &all); err != nil || a.status != http.StatusOK {
		w.t.Fatalf("GET %s: got %d %s: %v", path, a.status, a.body, err)
	}
	return all
}

// canonical gives JSON one form: sorted, without space.
func canonical(t testing.TB, text string) string {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// set makes a setting.
func (w *world) set(name, value string) {
	w.t.Helper()
	result, err := w.store.Propose(w.t.Context(), &log.Change{ID: log.UUID{1, 2, 3}, Ops: []log.Op{{
		Action: log.Create, Kind: log.KindSetting, Set: []string{"name", "value"}, Object: &log.Setting{Name: name, Value: value},
	}}})
	if err != nil || result.Refusal != nil {
		w.t.Fatalf("setting %s: %v, %v", name, err, result.Refusal)
	}
}
