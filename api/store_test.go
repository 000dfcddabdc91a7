package api

import (
	"bytes"
	"fmt"
	"net"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"rutter/api/auth/matrix"
	"rutter/api/internal/apitest"
	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an apitest.Memory as a Store.
type memory struct{ *apitest.Memory }

func newMemory() *memory { return &memory{apitest.NewMemory()} }

func testUUID(n int) log.UUID { return apitest.UUID(n) }

func (m *memory) Status() Status {
	return Status{ID: "s1", State: "Leader", Leader: "s1", Term: 1, Applied: uint64(m.Head().Seq), Members: []Member{{"s1", "127.0.0.1:7421", true, true}}}
}

// NewMemory is for the tests that see this package from outside.
func NewMemory() *memory { return newMemory() }

// bed is a server over a memory.
type bed struct {
	*apitest.World
	store *memory
	s     *Server
}

func newBed(t apitest.T) *bed {
	t.Helper()
	return bedOf(t, Config{Version: "test"})
}

// bedOf is a bed of a server with these settings, and a store of its own.
func bedOf(t apitest.T, cfg Config) *bed {
	t.Helper()
	store := newMemory()
	cfg.Store = store
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return bedWith(t, store, s)
}

func bedWith(t apitest.T, store *memory, s *Server) *bed {
	return &bed{&apitest.World{T: t, Store: store.Memory, Handler: s.Handler()}, store, s}
}

// Short names of what a World has.

func (b *bed) call(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.T.Helper()
	return b.Call(method, path, body, headers...)
}

func (b *bed) must(method, path, body string, headers ...string) map[string]any {
	b.T.Helper()
	return b.Must(method, path, body, headers...)
}

func (b *bed) furnish() { b.T.Helper(); b.Furnish() }

func (b *bed) nic(network, cn log.UUID) string { b.T.Helper(); return b.NIC(network, cn) }

// connect is a feed of the bed's server over a pipe.
func (b *bed) connect() *apitest.Connection {
	return apitest.Connect(func(conn net.Conn) {
		ended := make(chan struct{})
		b.s.feed.Serve(conn, nil, matrix.Identity{Role: matrix.Local}, func() { close(ended) })
		<-ended
	})
}

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// Ids of a furnished bed.
var (
	ownerA, ownerB   = apitest.OwnerA, apitest.OwnerB
	fabricA, fabricB = apitest.FabricA, apitest.FabricB
	external         = apitest.External
	cn1, cn2, cn3    = apitest.CN1, apitest.CN2, apitest.CN3
)

const (
	vnetA, vnetB = apitest.VNetA, apitest.VNetB
	underlayMAC  = apitest.UnderlayMAC
)

// pretty prints an answer's body for a message.
func pretty(w *httptest.ResponseRecorder) string {
	return fmt.Sprintf("%d %s", w.Code, bytes.TrimSpace(w.Body.Bytes()))
}
