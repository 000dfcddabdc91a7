package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store in memory: the real decisions and the real bytes, without
// a cluster.
type memory struct {
	mu       sync.RWMutex // protects what follows
	cluster  log.UUID
	state    *projections.State
	entries  []log.Entry
	hash     log.Hash
	floor    log.Seq
	changed  chan struct{}
	seen     map[log.UUID]log.Result
	contents map[log.UUID]log.Content // of those seen
	encoder  *log.Encoder

	notReady   error
	differs    error // from the other servers
	failWrites error // what Propose returns, as often as failures says
	failures   int
	failReads  error // what Consistent returns
}

func newMemory() *memory {
	return &memory{
		cluster: testUUID(0xc1), state: projections.NewState(), changed: make(chan struct{}),
		seen: make(map[log.UUID]log.Result), contents: make(map[log.UUID]log.Content), encoder: log.NewEncoder(),
	}
}

func testUUID(n int) log.UUID {
	return uuidOf(fmt.Sprintf("00000000-0000-4000-8000-%012x", n))
}

func (m *memory) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failWrites != nil && m.failures > 0 {
		m.failures--
		return log.Result{}, m.failWrites
	}
	content := c.Content
	if content.IsZero() {
		var err error
		if content, err = m.encoder.Content(c); err != nil {
			return log.Result{}, err
		}
	}
	if first, ok := m.seen[c.ID]; ok {
		if m.contents[c.ID] != content {
			return log.Result{ChangeID: c.ID, Refusal: &log.Refusal{Code: log.CodeIDReused}}, nil
		}
		return first, nil
	}
	m.contents[c.ID] = content
	c.Time, c.Seed = m.state.Time()+1_000_000, uint64(len(m.entries)+len(m.seen)+1)
	if c.Time == 1_000_000 {
		c.Time = 1_795_251_600_000_000_000
	}
	events, result := rules.Decide(m.state, c)
	result.First, result.Last = log.Seq(len(m.entries)), log.Seq(len(m.entries))
	for i, e := range events {
		seq := log.Seq(len(m.entries) + 1)
		b, err := m.encoder.Event(e)
		if err != nil {
			return result, err
		}
		if _, err := m.state.Apply(seq, e); err != nil {
			panic(err) // Decide and Apply differ
		}
		m.hash = m.hash.Next(seq, b)
		m.entries = append(m.entries, log.Entry{Seq: seq, Hash: m.hash, Bytes: b})
		if i == 0 {
			result.First = seq
		}
		result.Last = seq
	}
	m.seen[c.ID] = result
	if len(events) > 0 {
		close(m.changed)
		m.changed = make(chan struct{})
	}
	return result, nil
}

func (m *memory) View(fn func(*projections.State, log.Cursor)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.state, m.headLocked())
}

func (m *memory) headLocked() log.Cursor {
	return log.Cursor{Cluster: m.cluster, Seq: log.Seq(len(m.entries)), Chain: m.chainLocked(log.Seq(len(m.entries)))}
}

func (m *memory) chainLocked(seq log.Seq) (chain log.ChainPrefix) {
	if seq > 0 {
		chain = m.entries[seq-1].Hash.Prefix()
	}
	return chain
}

func (m *memory) Head() log.Cursor {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.headLocked()
}

func (m *memory) Floor() log.Seq {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.floor
}

func (m *memory) Changed() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed
}

func (m *memory) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case after < m.floor:
		return nil, log.ErrCompacted
	case after > log.Seq(len(m.entries)):
		return nil, log.ErrAhead
	}
	end := min(int(after)+limit, len(m.entries))
	for end < len(m.entries) && end > int(after) {
		if e, err := m.entries[end-1].Event(); err != nil || e.More == 0 {
			break
		}
		end++
	}
	return slices.Clone(m.entries[after:end]), nil
}

func (m *memory) CheckCursor(c log.Cursor) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case c.Cluster != m.cluster:
		return log.ErrOtherLog
	case c.Seq > log.Seq(len(m.entries)):
		return log.ErrAhead
	case c.Seq < m.floor:
		return log.ErrCompacted
	case c.Chain != m.chainLocked(c.Seq):
		return log.ErrOtherLog
	}
	return nil
}

func (m *memory) WaitSeq(ctx context.Context, seq log.Seq) error {
	for {
		changed := m.Changed()
		if m.Head().Seq >= seq {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (m *memory) Consistent(context.Context) (log.Seq, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return log.Seq(len(m.entries)), m.failReads
}

func (m *memory) Status() Status {
	return Status{ID: "s1", State: "Leader", Leader: "s1", Term: 1, Applied: uint64(m.Head().Seq), Members: []Member{{"s1", "127.0.0.1:7421", true, true}}}
}

func (m *memory) Serving() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.differs
}

func (m *memory) Ready() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.notReady
}

// NewMemory is for the tests that see this package from outside.
func NewMemory() *memory { return newMemory() }

// FailWrites has the next n changes fail with err.
func (m *memory) FailWrites(n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failWrites, m.failures = err, n
}

// compact raises the floor to the head.
func (m *memory) compact() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = log.Seq(len(m.entries))
}

func (m *memory) dump() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return string(m.state.Dump())
}

// bed is a server over a memory.
type bed struct {
	t     testbench
	store *memory
	s     *Server
}

func newBed(t testbench) *bed {
	t.Helper()
	return bedOf(t, Config{Version: "test"})
}

// bedOf is a bed of a server with these settings, and a store of its own.
func bedOf(t testbench, cfg Config) *bed {
	t.Helper()
	store := newMemory()
	cfg.Store = store
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &bed{t, store, s}
}

// call makes a request; headers are name, value, name, value…
func (b *bed) call(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.s.Handler().ServeHTTP(w, r)
	return w
}

// must is call for what has to succeed; the answer is decoded.
func (b *bed) must(method, path, body string, headers ...string) map[string]any {
	b.t.Helper()
	w := b.call(method, path, body, headers...)
	if w.Code >= 300 {
		b.t.Fatalf("%s %s %s: %d %s", method, path, body, w.Code, w.Body)
	}
	var o map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
			b.t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
	return o
}

// Ids of the furnished bed.
var (
	ownerA, ownerB   = testUUID(0xa), testUUID(0xb)
	fabricA, fabricB = testUUID(0xfa), testUUID(0xfb)
	external         = testUUID(0xe0)
	cn1, cn2, cn3    = testUUID(0x101), testUUID(0x102), testUUID(0x103)
)

const (
	vnetA, vnetB = 1001, 1002
	underlayMAC  = "00:00:5e:00:00:0%d"
)

// furnish makes two tags, an external network, two fabrics and three CNs with
// underlay NICs.
func (b *bed) furnish() {
	b.t.Helper()
	b.must("POST", "/nic_tags", `{"name":"external"}`)
	b.must("POST", "/nic_tags", `{"name":"sdc_underlay","mtu":9000}`)
	b.must("POST", "/nic_tags", `{"name":"sdc_overlay","mtu":9000}`)
	network := func(u log.UUID, fields string) {
		b.must("POST", "/networks", fmt.Sprintf(`{"uuid":%q,"vlan_id":0,%s}`, u, fields))
	}
	network(external, `"name":"external","nic_tag":"external","subnet":"192.0.2.0/24","provision_start_ip":"192.0.2.10","provision_end_ip":"192.0.2.200","gateway":"192.0.2.1","resolvers":["192.0.2.53"]`)
	network(testUUID(0xe1), `"name":"underlay","nic_tag":"sdc_underlay","subnet":"198.51.100.0/24","provision_start_ip":"198.51.100.10","provision_end_ip":"198.51.100.200"`)
	fabric := `"name":"net","nic_tag":"sdc_overlay","subnet":"10.0.0.0/24","provision_start_ip":"10.0.0.5","provision_end_ip":"10.0.0.250","gateway":"10.0.0.1","resolvers":[],"fabric":true,"vnet_id":%d,"owner_uuids":[%q]`
	network(fabricA, fmt.Sprintf(fabric, vnetA, ownerA))
	network(fabricB, fmt.Sprintf(fabric, vnetB, ownerB))
	for i, cn := range []log.UUID{cn1, cn2, cn3} {
		b.must("POST", "/servers", fmt.Sprintf(`{"uuid":%q,"hostname":"cn%d"}`, cn, i+1))
		b.underlay(i)
	}
}

// underlay gives the i-th CN its underlay NIC.
func (b *bed) underlay(i int) {
	cn := []log.UUID{cn1, cn2, cn3}[i]
	b.must("POST", fmt.Sprintf("/networks/%s/nics", testUUID(0xe1)),
		fmt.Sprintf(`{"mac":%q,"belongs_to_type":"server","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"underlay":true}`, fmt.Sprintf(underlayMAC, i+1), cn, ownerA, cn))
}

// nic provisions a NIC and returns its MAC.
func (b *bed) nic(network, cn log.UUID) string {
	b.t.Helper()
	o := b.must("POST", fmt.Sprintf("/networks/%s/nics", network), nicBody(network, cn))
	return o["mac"].(string)
}

func nicBody(network, cn log.UUID) string {
	owner := ownerA
	if network == fabricB {
		owner = ownerB
	}
	return fmt.Sprintf(`{"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q}`, testUUID(0x77), owner, cn)
}

// pretty prints an answer's body for a message.
func pretty(w *httptest.ResponseRecorder) string {
	return fmt.Sprintf("%d %s", w.Code, bytes.TrimSpace(w.Body.Bytes()))
}

// testbench is what a bed needs of *testing.T or *rapid.T.
type testbench interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
