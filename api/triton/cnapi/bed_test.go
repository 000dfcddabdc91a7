package cnapi

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rutter/api/internal/apitest"
	"rutter/api/reach"
	"rutter/log"
	"rutter/projections"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	cn1 = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	cn2 = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"
	vm1 = "5595d88c-6e4d-4bda-b58e-97dd02e30001"
)

func newMemory() *apitest.Memory {
	m := apitest.NewMemory()
	m.SetClock(time.Now)
	return m
}

// stateOf returns the state of a store, for a test that makes no change meanwhile.
func stateOf(m *apitest.Memory) (state *projections.State) {
	m.View(func(s *projections.State, _ log.Cursor) { state = s })
	return state
}

var drawn atomic.Uint64

func newID() (log.UUID, error) {
	id := log.UUID{6: 0x70, 8: 0x80}
	binary.BigEndian.PutUint32(id[:], uint32(drawn.Add(1)))
	return id, nil
}

func testUUID(t testing.TB, text string) log.UUID {
	u, err := log.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// reaching is a client that posts to nodes on the address 127.0.0.1.
func reaching(t *testing.T, store *apitest.Memory) *reach.Client {
	t.Helper()
	c := reach.New(reach.Config{View: store.View, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}).Client(nil)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// newService makes a service over a store with one server, cn1.
func newService(t *testing.T, store *apitest.Memory, edit func(*Config)) *Service {
	t.Helper()
	cfg := Config{Store: store, NewID: newID, Self: "s1", Run: 7, Asker: func(*http.Request) (string, log.Author) { return "ada", log.Author{} }}
	if edit != nil {
		edit(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.server(testUUID(t, cn1)) == nil {
		ask(t, s, "POST /servers/"+cn1+"/sysinfo", `{"sysinfo":{"UUID":"`+cn1+`","Hostname":"cn1","Setup":"true","Rutter Agent":"test"}}`, 200)
	}
	return s
}

// ask makes a request as "METHOD /path", wants a status, and returns the answer.
func ask(t *testing.T, s *Service, request, body string, want int) map[string]any {
	t.Helper()
	raw := askRaw(t, s, request, body, want)
	var m map[string]any
	if len(raw) > 0 && raw[0] == '{' {
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatalf("%s: %v in %s", request, err, raw)
		}
	}
	return m
}

func askList(t *testing.T, s *Service, request string) []map[string]any {
	t.Helper()
	var list []map[string]any
	if err := json.Unmarshal(askRaw(t, s, request, "", 200), &list); err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return list
}

func askRaw(t *testing.T, s *Service, request, body string, want int) []byte {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	s.Handler().ServeHTTP(w, r)
	if w.Code != want {
		t.Fatalf("%s %s: answered %d %s, want %d", request, body, w.Code, w.Body, want)
	}
	return w.Body.Bytes()
}

// change makes operations on the log directly, as an agent does.
func change(t *testing.T, store *apitest.Memory, op log.Op) *log.Refusal {
	t.Helper()
	id, _ := newID()
	result, err := store.Propose(t.Context(), &log.Change{ID: id, Actor: "agent", Ops: []log.Op{op}})
	if err != nil {
		t.Fatal(err)
	}
	return result.Refusal
}
