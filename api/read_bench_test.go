package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"rutter/api"
	"rutter/api/internal/apitest"
)

// sink takes an answer and forgets it.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// BenchmarkRead is one read of one object through everything that stands before it.
func BenchmarkRead(b *testing.B) {
	memory := api.NewMemory()
	s, err := api.New(api.Config{Store: memory})
	if err != nil {
		b.Fatal(err)
	}
	world := &apitest.World{T: b, Store: memory.Memory, Handler: s.Handler()}
	world.Must("POST", "/nic_tags", `{"name":"external"}`)
	r := httptest.NewRequest("GET", "/nic_tags/external", nil)
	w := &sink{make(http.Header)}
	b.ReportAllocs()
	for b.Loop() {
		s.Handler().ServeHTTP(w, r)
	}
}
